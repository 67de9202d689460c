"""Workers: one Spark task per split of a scan, or part of a join, DuckDB inside it (PP-14, NA-47, NA-48, RB-21).

A worker reads the rows of its keys in all deltas, filters by key, merges equal keys by the table's model, filters,
joins, projects and aggregates its part. Its Arrow batches go on to Spark, which aggregates what the workers give, or
runs the user's own text over their rows.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry.model.types import arrow_type
from parquetry.query.compile.partials import PARTIALS
from parquetry.query.compile.plain_select import LocalPlan
from parquetry.query.local.prepared import LeftToSpark, run
from parquetry.query.planning.join_plan import JoinPlan
from parquetry.query.planning.plan import Plan
from parquetry.query.planning.split_plan import SplitPlan
from parquetry.query.spark.executor import explained, running
from parquetry.spark import active_session_kept, private_session
from parquetry.splits.assignment import SplitTask
from parquetry.splits.other_orders import KeyOrder
from parquetry.splits.split_rows import StoredTable, rows_of, stored_table
from parquetry.splits.worker_duckdb import connect_in_worker
from parquetry.storage import spark_text
from parquetry.storage.merge import quote
from parquetry.storage.scan.duck import table_sql
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class ScanJob:
    """What every worker of a query needs besides its part; sent to executors by pickling."""

    tables: tuple[StoredTable, ...]
    statement: str  # with a mark for the stored rows of each table
    names: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(n, arrow_type(t)) for n, t in zip(self.names, self.types, strict=True)])

    @property
    def ddl(self) -> str:
        return ", ".join(f"{spark_text.quote(n)} {t}" for n, t in zip(self.names, self.types, strict=True))


@dataclass(frozen=True)
class Part:
    """One worker's part: what it reads of each table."""

    ordinal: int
    reads: tuple[SplitTask, ...]


@dataclass(frozen=True)
class Worked:
    """What one worker did: rows it had to look at, bytes it read, seconds on the clock and of CPU."""

    split: int
    rows: int
    bytes: int
    seconds: float
    cpu: float


def job_of(plan: Plan, scan: SplitPlan, store: Store) -> ScanJob:
    """The statement and the stored table for the workers of a plan."""
    local = plan.bound.local
    assert isinstance(local, LocalPlan)
    (t,) = plan.tables.values()
    stored = t.scan(local.columns)
    rows = f"({table_sql(stored, _mark(0), key_filter=t.key_filter)})"
    if scan.parts is not None:
        statement = scan.parts.worker_sql(local, rows)
        columns = [(p.name, p.type) for p in scan.parts.columns]
    else:
        wanted = [c for c in t.state.readable.columns if c.name in local.columns] or list(t.state.readable.columns[:1])
        where = " AND ".join(c.sql for c in local.where) or "true"
        statement = f'SELECT {", ".join(quote(c.name) for c in wanted)} FROM {rows} AS "__rows" WHERE {where}'
        columns = [(c.name, c.type) for c in wanted]
    return ScanJob((stored_table(stored, store, scan.order),), statement, *zip(*columns, strict=True))


def join_job(plan: Plan, join: JoinPlan, store: Store) -> ScanJob:
    """The statement and the stored tables for the workers of a join."""
    tables, relations = [], {}
    for i, source in enumerate(join.parts.mentions):
        t = plan.tables[source.table]
        stored = t.scan(source.columns)
        tables.append(stored_table(stored, store, KeyOrder(t.state.layout_id)))
        relations[source.number] = f"({table_sql(stored, _mark(i))})"
    columns = [(p.name, p.type) for p in join.parts.columns]
    return ScanJob(tuple(tables), join.parts.sql(relations), *zip(*columns, strict=True))


def _mark(table: int) -> str:
    """Stands for the stored rows of a table in a statement: no SQL text holds a zero byte."""
    return f"\0rows {table}\0"


def scan_split(job: ScanJob, part: Part) -> tuple[pa.Table, Worked]:
    """One worker's rows, and what it took."""
    import duckdb

    started, cpu = time.perf_counter(), time.process_time()
    text, rows, size = job.statement, 0, 0
    streams: dict[str, pa.RecordBatchReader] = {}
    for i, (task, table) in enumerate(zip(part.reads, job.tables, strict=True)):
        source = rows_of(task, table, f"__picked_{i}")
        text = text.replace(_mark(i), source.sql)
        streams |= source.streams
        rows, size = rows + source.rows, size + source.bytes
    connection = _duckdb()
    try:
        found = run(connection, "sql", text, **streams).to_arrow_table().cast(job.schema)
    except duckdb.IOException:
        raise
    except duckdb.Error as e:
        raise LeftToSpark(str(e).splitlines()[0]) from e
    profile = json.loads(connection.get_profiling_information(format="json"))
    size += int(profile.get("io", {}).get("total_bytes_read", 0))
    spent = time.perf_counter() - started, time.process_time() - cpu
    return found, Worked(part.ordinal, rows, size, *spent)


@lru_cache(maxsize=1)
def _duckdb() -> Any:
    """One instance per worker process, which serves one task at a time; footers stay in memory between tasks."""
    connection = connect_in_worker()
    connection.execute("SET parquet_metadata_cache = true")
    connection.execute("SET enable_profiling = 'no_output'")
    return connection


_Work = tuple[ScanJob, tuple[Part, ...]]


@dataclass(frozen=True)
class _Carried:
    """Stands for a broadcast where the value itself is sent with the function."""

    value: _Work


class ScanWorkers:
    """Runs plans that were cut into splits. Every query gets a session of its own."""

    def __init__(self, store: Store, spark: Callable[[], SparkSession]) -> None:
        self._store, self._spark = store, spark
        self._lock = threading.Lock()
        self._reports: tuple[SparkContext, Any] | None = None
        self._running: set[str] = set()

    def frame(self, plan: Plan) -> DataFrame:
        """The query as a lazy Spark frame over the workers' rows."""
        # Nobody knows how long it lives, so nothing is left with Spark for it: what workers need travels with it.
        return self._frame(plan, _Carried(self._work(plan)), None, "")

    def run(self, plan: Plan) -> tuple[pa.Table, dict[str, Any]]:
        """The rows, and what the workers counted."""
        context, query = self._spark().sparkContext, uuid.uuid4().hex
        reports = self._reports_in(context)
        shared = context.broadcast(self._work(plan))
        self._running.add(query)
        try:
            frame = self._frame(plan, shared, reports, query)
            with explained(plan, self._store), running(context, plan):
                table = frame.toArrow()
            # A task that ran twice reports twice; any one of its reports will do.
            done = list({w.split: w for w in reports.value.get(query, ())}.values())
        finally:
            self._running.discard(query)
            for late in [q for q in list(reports.value) if q not in self._running]:
                reports.value.pop(late, None)
            shared.destroy()  # else its file stays for as long as Spark runs
        return table, measured(plan, done)

    def _work(self, plan: Plan) -> _Work:
        if plan.join is not None:
            job, tasks = join_job(plan, plan.join, self._store), plan.join.tasks
        else:
            assert plan.scan is not None
            job, tasks = job_of(plan, plan.scan, self._store), tuple((t,) for t in plan.scan.tasks)
        return job, tuple(Part(i, reads) for i, reads in enumerate(tasks))

    def _reports_in(self, context: SparkContext) -> Any:
        """What workers report, by query: one accumulator for all queries, since Spark never forgets one."""
        with self._lock:
            if self._reports is None or self._reports[0] is not context:
                self._reports = context, context.accumulator({}, _by_query())
            return self._reports[1]

    def _frame(self, plan: Plan, shared: Broadcast[_Work] | _Carried, reports: Any, query: str) -> DataFrame:
        final = _final(plan)
        job, tasks = shared.value
        with active_session_kept(), explained(plan, self._store):
            session = private_session(self._spark())

            def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                job, tasks = shared.value
                for batch in batches:
                    for ordinal in batch.column(0).to_pylist():
                        found, spent = scan_split(job, tasks[ordinal])
                        if reports is not None:
                            reports.add({query: [spent]})
                        yield from found.to_batches(_BATCH_ROWS)

            rows = session.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, job.ddl)
            if final is not None:
                rows.createOrReplaceTempView(PARTIALS)
                few = max(len(tasks), session.sparkContext.defaultParallelism)
                now = int(session.conf.get("spark.sql.shuffle.partitions") or 200)
                session.conf.set("spark.sql.shuffle.partitions", str(min(now, few)))
                frame = session.sql(final)
            else:
                (name,) = plan.tables
                rows.createOrReplaceTempView(name)
                frame = session.sql(plan.bound.sql)
        return frame


def _final(plan: Plan) -> str | None:
    """What Spark makes of the workers' rows; None: it runs the user's own text over them."""
    if plan.join is not None:
        return plan.join.parts.final
    assert plan.scan is not None
    return None if plan.scan.parts is None else plan.scan.parts.final


def _by_query() -> Any:
    from pyspark.accumulators import AccumulatorParam

    class ByQuery(AccumulatorParam[dict[str, list[Worked]]]):
        def zero(self, value: dict[str, list[Worked]]) -> dict[str, list[Worked]]:
            return {}

        def addInPlace(
            self, value1: dict[str, list[Worked]], value2: dict[str, list[Worked]]
        ) -> dict[str, list[Worked]]:
            for query, spent in value2.items():
                value1.setdefault(query, []).extend(spent)
            return value1

    return ByQuery()


def measured(plan: Plan, done: list[Worked]) -> dict[str, Any]:
    """The figures of a query that ran through workers (PP-52). Skew is the largest against the average."""
    scan, join = plan.scan, plan.join
    planned: dict[str, Any] = {}
    if join is not None:
        planned = {"wanted": len(join.tasks), "estimated_skew": round(join.skew, 3)}
    elif scan is not None:
        planned = {
            "wanted": scan.splits.wanted,
            "theta": scan.theta,
            "rounds": scan.rounds_read,
            "index_nodes": scan.nodes_read,
            "plan_ms": round(scan.plan_ms, 3),
            "estimated_skew": round(scan.splits.skew, 3),
        }
    return {
        "bytes_read": sum(w.bytes for w in done),
        "rows_scanned": sum(w.rows for w in done),
        "blocks_read": sum(t.groups_read for t in plan.tables.values()),
        "files_read": sum(len(t.files) for t in plan.tables.values()),
        "splits": len(done),
        "scan": {
            **planned,
            "workers": sum(w.rows > 0 for w in done),
            "row_skew": round(_skew([w.rows for w in done]), 3),
            "time_skew": round(_skew([w.cpu for w in done]), 3),
            "slowest_s": round(max((w.seconds for w in done), default=0.0), 3),
            "worker_s": round(sum(w.seconds for w in done), 3),
        },
    }


def _skew(values: list[float] | list[int]) -> float:
    return max(values) * len(values) / sum(values) if values and sum(values) else 1.0
