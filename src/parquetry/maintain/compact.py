"""Merges neighbouring deltas of a table into one and swaps them in one commit (NA-43).

Few rows are merged in the process, more of them on Spark's executors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from parquetry import failpoints
from parquetry.catalog import LAYOUT_OF_THIS_COMMIT, Catalog
from parquetry.maintain.merge_deltas import merge_deltas
from parquetry.maintain.new_ranges import Workload, with_new_ranges
from parquetry.maintain.pick import Compact
from parquetry.model.state import Edit, PublishLayout, ReplaceDeltas, TableState
from parquetry.storage.leased import REWRITE, TURN, under_lease
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    catalog: Catalog,
    store: Store,
    spark: Callable[[], SparkSession],
    table: TableState,
    stage: Compact,
    holder: str,
    workload: Workload = lambda _: (),
) -> bool:
    """Performs the stage; False when another worker holds the table's lease, or waits to rewrite the table in a new
    layout. A lost lease commits nothing.

    Rows of new calendar ranges get a layout of their own here, from the ``workload`` of that moment (WP-19).
    """
    if f"{TURN}:{table.table_id}" in catalog.at_work(f"{TURN}:"):
        return False
    with under_lease(REWRITE, catalog, store, table, holder) as work:
        if work is None:
            return False
        delta_id = work.new_delta()
        failpoints.reach("compact.start")
        edits: list[Edit] = []
        # Nobody else changes the layout under this lease, but somebody may have before it was taken.
        now = catalog.state().tables.get(table.name)
        if now is not None and now.layout_id == table.layout_id:
            spec = with_new_ranges(spark, store, table, stage.deltas, workload)
            if spec is not None:
                table = replace(table, layout=spec, layout_id=LAYOUT_OF_THIS_COMMIT)
                edits.append(PublishLayout(table.table_id, spec))
        new = merge_deltas(spark, store, table, delta_id, stage.deltas)
        failpoints.reach("compact.before_commit")
        old = tuple(d.delta_id for d in stage.deltas)
        detail = {"table": table.name, "deltas": len(old), "rows": sum(d.rows for d in stage.deltas)}
        work.commit([*edits, ReplaceDeltas(table.table_id, old, new)], "compact", detail)
        failpoints.reach("compact.committed")
    return True
