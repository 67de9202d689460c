"""Takes the next delta of a view's sources into the view: one delta of the same time range, in one commit (NA-28)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from parquetry import failpoints
from parquetry.catalog import Catalog
from parquetry.errors import ParquetryError
from parquetry.layouts.write_rows import fits_here, write_rows
from parquetry.model.delta import Delta
from parquetry.model.queryable import next_step, sources_of
from parquetry.model.state import AddViewDelta, State, TableState
from parquetry.model.view import ViewSpec
from parquetry.spark import active_session_kept, private_session
from parquetry.storage.checked_file import wrong_size
from parquetry.storage.delta_writer import DeltaJob, RowsInParts, Written, new_delta_id, write_files
from parquetry.storage.explain_failure import explain_failure
from parquetry.storage.kept import KeptFile
from parquetry.storage.leased import LEASE_S, REFRESH
from parquetry.storage.merge import ORDER
from parquetry.storage.scan.scan import read_tasks
from parquetry.storage.spark_text import quote
from parquetry.storage.store import Store
from parquetry.storage.write_attempt import attempt, clean_up
from parquetry.views.changes import Step
from parquetry.views.classes import ViewClass, in_one_file, initial_values, plan_class
from parquetry.views.direct import direct_reader
from parquetry.views.here import Compile, OnlySpark, compiles, refreshed_here, refreshed_in_parts
from parquetry.views.skew import Cluster, between, cluster

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TASK_BYTES = 64 << 20  # of the table that a task aggregates
_TASK_ROWS = 1 << 20  # of the view that a task writes
AT_ONCE_ROWS = 1 << 20
"""Rows of one table up to which a single task aggregates before it sorts: streaming would send them all to Python.

Where it can, that task reads the table's files itself.
"""


def refresh(
    catalog: Catalog,
    store: Store,
    spark: Callable[[], SparkSession],
    state: State,
    view: TableState,
    until: int,
    holder: str,
    compile_: Compile = lambda _text, _tables: None,
) -> bool:
    """Builds ``view`` up to ``until``; False when another worker is on it or it has moved on since it was picked.

    The view's delta has the source delta's time range, so completeness is checked by comparing ranges. Files of
    ``state`` must stay until this returns: its caller holds a pin. ``compile_`` is what makes it without Spark.
    """
    deltas = next_step(state, view)
    if view.view is None or not deltas or max(d.t_hi for d in deltas) != until:
        return False
    lease = catalog.acquire(f"{REFRESH}:{view.table_id}", holder, LEASE_S)
    if lease is None:
        return False
    with catalog.keep(lease, LEASE_S) as kept, active_session_kept():
        delta_id = new_delta_id()
        with attempt(catalog, delta_id, holder):
            failpoints.reach("view.start")
            try:
                # Spark passes over an empty file without a word; the view would never get what was in it.
                for task in read_tasks(deltas) if store.local else ():
                    if wrong := wrong_size(store, task.file):
                        raise wrong
                source = sources_of(state, view)[0]
                in_parts = compiles(state, view, until, compile_)
                how = plan_class(view, source, deltas, store, in_parts=in_parts)
                prefix = source.schema.key[: how.shared]
                work = RefreshWork(spark, store, state, view, until, delta_id, how, prefix, compile_)
                written = work.write(deltas)
                failpoints.reach("view.before_commit")
                catalog.commit(
                    [AddViewDelta(view.table_id, view.view.built, until, written.delta)],
                    kind="refresh view",
                    lease=kept.lease,
                    detail={
                        "view": view.name,
                        "t": until,
                        "rows": _rows(written.delta),
                        "class": how.number,
                        "why": how.why,
                    },
                )
            except BaseException as e:
                clean_up(catalog, store, view.table_id, delta_id)
                if isinstance(e, ParquetryError) or not isinstance(e, Exception):
                    raise
                raise explain_failure(e, view.name) from e
            failpoints.reach("view.committed")
    return True


@dataclass(frozen=True)
class RefreshWork:
    """One refresh that is under way. ``prefix`` are the leading key columns that the view shares with its table."""

    spark: Callable[[], SparkSession]
    store: Store
    state: State
    view: TableState
    until: int
    delta_id: str
    how: ViewClass
    prefix: tuple[str, ...]
    compile_: Compile = lambda _text, _tables: None

    def write(self, deltas: Sequence[Delta]) -> Written:
        """The view's delta, a small one in the process; else heavy clusters have own tasks beside the stream."""
        view, times = self.view, (min(d.t_lo for d in deltas), self.until)
        if fits_here(view, deltas):
            few = refreshed_here(self.store, self.state, view, deltas, self.until, self.compile_)
            if few is not None:
                return write_rows(few, self.store, DeltaJob(view, self.delta_id, 1, times=times))
        tasks = -(-sum(d.bytes for d in deltas) // _TASK_BYTES)
        tasks = 1 if tasks <= 1 else max(tasks, self.spark().sparkContext.defaultParallelism)
        if self.how.number < 3 and not self.how.heavy:
            written = self._in_parts(deltas, tasks)
            if written is not None:
                return written
        kept = tuple(f for c in self.how.heavy for f in self._cut_up(c, max(2, tasks)))
        at_once = self._at_once(deltas)
        streams = self.how.number < 3 and in_one_file(deltas) and not at_once
        tasks = 1 if at_once or streams else tasks
        read = direct_reader(self.store, view, sources_of(self.state, view)[0], deltas) if at_once else None
        sorted_by: int | None
        rows: DataFrame | RowsInParts
        with ExitStack() as stack:
            if read is not None:
                rows, sorted_by = RowsInParts(self.spark(), 1, read), 0
            else:
                made = self.streamed() if streams else self.shuffled(at_once=at_once)
                if tasks > 1:
                    # Aggregated once: how many groups there are, and which, decides what tasks write them.
                    made = made.persist()
                    stack.callback(made.unpersist)
                    tasks = min(tasks, max(1, -(-made.count() // _TASK_ROWS)))
                rows = self._stored(made)
                sorted_by = self.how.shared if streams else None
            job = DeltaJob(view, self.delta_id, tasks, times=times, kept=kept, sorted_by=sorted_by)
            return write_rows(rows, self.store, job)

    def _in_parts(self, deltas: Sequence[Delta], tasks: int) -> Written | None:
        """Written by tasks that read their stretches of the table's runs themselves; None where Spark has to."""
        parts = refreshed_in_parts(
            self.store, self.state, self.view, deltas, self.until, self.compile_, self.how.shared, tasks
        )
        if parts is None:
            return None
        times = (min(d.t_lo for d in deltas), self.until)
        job = DeltaJob(self.view, self.delta_id, len(parts.tasks), times=times)
        try:
            return write_rows(RowsInParts(self.spark(), len(parts.tasks), parts), self.store, job)
        except Exception as e:
            if OnlySpark.__name__ not in str(e):
                raise
            return None  # its task's files go when the delta is written: they are not among its own

    def _at_once(self, deltas: Sequence[Delta]) -> bool:
        alone = self.spec.how == "merge" and len(self.spec.sources) == 1 and not self.how.heavy
        return alone and sum(d.rows for d in deltas) <= AT_ONCE_ROWS

    def shuffled(self, only: Column | None = None, *, at_once: bool = False) -> DataFrame:
        """The groups, aggregated before and after Spark deals them out by the view's key; ``at_once``: in one task."""
        return self._step(private_session(self.spark()), only).frame(at_once=at_once)

    def streamed(self) -> DataFrame:
        """Every row as a group of its own, in the order of the file; one partition for each stretch without skew."""
        session = private_session(self.spark())
        # The file is one partition, so its rows come in order.
        session.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 40))
        session.conf.set("spark.sql.files.minPartitionNum", "1")
        session.conf.set("spark.sql.unionOutputPartitioning", "false")  # else the stretches become one partition
        stretches = between(self.prefix, self.how.heavy) if self.how.heavy else [None]
        read = [initial_values(self.spec, self.view, self._step(session, s).rows_in_order()) for s in stretches]
        return reduce(lambda a, b: a.unionAll(b), read)

    def _cut_up(self, heavy: Cluster, tasks: int) -> tuple[KeptFile, ...]:
        rows = self._stored(self.shuffled(cluster(self.prefix, heavy)))
        return write_files(rows, self.store, DeltaJob(self.view, self.delta_id, tasks)).files

    @property
    def spec(self) -> ViewSpec:
        assert self.view.view is not None
        return self.view.view.spec

    def _step(self, session: SparkSession, only: Column | None) -> Step:
        assert self.view.view is not None
        return Step(session, self.store, self.state, self.spec, self.view.view.built, self.until, only)

    def _stored(self, made: DataFrame) -> DataFrame:
        return made.select(*[quote(n) for n in self.view.schema.names]).selectExpr("*", f"0L AS {ORDER}")


def _rows(delta: Delta | None) -> int:
    return 0 if delta is None else delta.rows
