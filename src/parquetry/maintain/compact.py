"""Merges neighbouring deltas of a table into one, on Spark's executors, and swaps them in one commit (NA-43)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parquetry import failpoints
from parquetry.catalog import LAYOUT_OF_THIS_COMMIT, Catalog
from parquetry.errors import ParquetryError
from parquetry.ingest.failure import explain_failure
from parquetry.layouts.routing import blocks_of, descriptor_of, with_blocks
from parquetry.maintain.new_ranges import Workload, with_new_ranges
from parquetry.maintain.pick import Compact
from parquetry.model.state import Edit, PublishLayout, ReplaceDeltas, TableState
from parquetry.storage.attempt import attempt, clean_up
from parquetry.storage.delta_writer import new_delta_id, write_delta
from parquetry.storage.frames import scan
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_S = 60.0
_TASK_BYTES = 64 << 20


def compact(
    catalog: Catalog,
    store: Store,
    spark: SparkSession,
    table: TableState,
    stage: Compact,
    holder: str,
    workload: Workload = lambda _: (),
) -> bool:
    """Performs the stage; False when another worker holds the table's lease. A lost lease commits nothing.

    Rows of new calendar ranges get a layout of their own here, from the ``workload`` of that moment (WP-19).
    """
    lease = catalog.acquire(f"rewrite:{table.table_id}", holder, LEASE_S)
    if lease is None:
        return False
    with catalog.keep(lease, LEASE_S) as kept:
        delta_id = new_delta_id()
        with attempt(catalog, delta_id, holder):
            failpoints.reach("compact.start")
            size = sum(d.bytes for d in stage.deltas)
            cores = spark.sparkContext.defaultParallelism
            tasks = -(-size // _TASK_BYTES)
            edits: list[Edit] = []
            try:
                # Nobody else changes the layout under this lease, but somebody may have before it was taken.
                now = catalog.state().tables.get(table.name)
                if now is not None and now.layout_id == table.layout_id:
                    spec = with_new_ranges(spark, store, table, stage.deltas, workload)
                    if spec is not None:
                        table = replace(table, layout=spec.to_json(), layout_id=LAYOUT_OF_THIS_COMMIT)
                        edits.append(PublishLayout(table.table_id, table.layout))
                written = write_delta(
                    with_blocks(scan(spark, store, table.schema, stage.deltas), table.layout),
                    store=store,
                    table_id=table.table_id,
                    delta_id=delta_id,
                    schema=table.schema,
                    schema_id=table.schema_id,
                    layout_id=table.layout_id,
                    blocks=blocks_of(table.layout),
                    describe=descriptor_of(table.layout, table.settings),
                    settings=table.settings,
                    tasks=1 if tasks <= 1 else max(tasks, cores),
                    level=max(d.level for d in stage.deltas) + 1,
                    times=(stage.deltas[0].t_lo, stage.deltas[-1].t_hi),
                    expected_rows=sum(d.rows for d in stage.deltas),
                )
                failpoints.reach("compact.before_commit")
                old = tuple(d.delta_id for d in stage.deltas)
                catalog.commit(
                    [*edits, ReplaceDeltas(table.table_id, old, written.delta)],
                    kind="compact",
                    lease=kept.lease,
                    detail={"table": table.name, "deltas": len(old), "rows": sum(d.rows for d in stage.deltas)},
                )
            except BaseException as e:
                clean_up(catalog, store, table.table_id, delta_id)
                if isinstance(e, ParquetryError) or not isinstance(e, Exception):
                    raise
                raise explain_failure(e, table.name) from e
            failpoints.reach("compact.committed")
    return True
