"""Takes the next delta of a view's sources into the view: one delta of the same time range, in one commit (NA-28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from parquetry import failpoints
from parquetry.catalog import Catalog
from parquetry.errors import ParquetryError, StorageError
from parquetry.layouts.routing import blocks_of, descriptor_of, with_blocks
from parquetry.model.delta import Delta
from parquetry.model.freshness import next_step, sources_of
from parquetry.model.state import AddViewDelta, State, TableState
from parquetry.spark import active_session_kept, private_session
from parquetry.storage.attempt import attempt, clean_up
from parquetry.storage.delta_writer import new_delta_id, write_delta
from parquetry.storage.failure import explain_failure
from parquetry.storage.merge import ORDER
from parquetry.storage.store import Store
from parquetry.views.changes import Step
from parquetry.views.classes import initial_values, plan_class
from parquetry.views.normalize import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_S = 60.0
_TASK_BYTES = 64 << 20


def refresh(
    catalog: Catalog, store: Store, spark: SparkSession, state: State, view: TableState, until: int, holder: str
) -> bool:
    """Builds ``view`` up to ``until``; False when another worker is on it or it has moved on since it was picked.

    The view's delta has the source delta's time range, so completeness is checked by comparing ranges. Files of
    ``state`` must stay until this returns: its caller holds a pin.
    """
    deltas = next_step(state, view)
    if view.view is None or not deltas or max(d.t_hi for d in deltas) != until:
        return False
    lease = catalog.acquire(f"refresh:{view.table_id}", holder, LEASE_S)
    if lease is None:
        return False
    with catalog.keep(lease, LEASE_S) as kept, active_session_kept():
        delta_id = new_delta_id()
        with attempt(catalog, delta_id, holder):
            failpoints.reach("view.start")
            try:
                _check_files(store, deltas)
                spec, session = view.view.spec, private_session(spark)
                step = Step(session, store, state, spec, view.view.built, until)
                how = plan_class(view, sources_of(state, view)[0], deltas, store)
                if how.number < 3:
                    # The file is one partition, so its rows come in order.
                    session.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 40))
                    session.conf.set("spark.sql.files.minPartitionNum", "1")
                made = step.frame() if how.number == 3 else initial_values(spec, view, step.rows_in_order())
                frame = made.select(*[quoted(n) for n in view.schema.names]).selectExpr("*", f"0L AS {ORDER}")
                tasks = -(-sum(d.bytes for d in deltas) // _TASK_BYTES) if how.number == 3 else 1
                written = write_delta(
                    with_blocks(frame, view.layout),
                    store=store,
                    table_id=view.table_id,
                    delta_id=delta_id,
                    schema=view.schema,
                    schema_id=view.schema_id,
                    layout_id=view.layout_id,
                    blocks=blocks_of(view.layout),
                    describe=descriptor_of(view.layout, view.settings),
                    settings=view.settings,
                    tasks=1 if tasks <= 1 else max(tasks, spark.sparkContext.defaultParallelism),
                    times=(min(d.t_lo for d in deltas), until),
                    sorted_by=how.shared if how.number < 3 else None,
                )
                failpoints.reach("view.before_commit")
                catalog.commit(
                    [AddViewDelta(view.table_id, view.view.built, until, written.delta)],
                    kind="refresh view",
                    lease=kept.lease,
                    detail={"view": view.name, "t": until, "rows": _rows(written.delta), "class": how.number},
                )
            except BaseException as e:
                clean_up(catalog, store, view.table_id, delta_id)
                if isinstance(e, ParquetryError) or not isinstance(e, Exception):
                    raise
                raise explain_failure(e, view.name) from e
            failpoints.reach("view.committed")
    return True


def _check_files(store: Store, deltas: Sequence[Delta]) -> None:
    """Spark passes over an empty file without a word; a view would never get what was in it."""
    for f in (f for d in deltas for f in d.files if store.local):
        if store.size(f.path) != f.bytes:
            raise StorageError(
                f"data file '{f.path}' has {store.size(f.path)} bytes instead of {f.bytes}; "
                "run 'parquetry verify' to see what is damaged, and restore it from a backup"
            )


def _rows(delta: Delta | None) -> int:
    return 0 if delta is None else delta.rows
