"""The Spark executor: the user's own SQL text over temporary views that hold the kept files of each table."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry.errors import ParquetryError, QueryError, StorageError
from parquetry.query.local.prepared import LeftToSpark
from parquetry.query.planning.damage import find_damage
from parquetry.query.planning.plan import Plan
from parquetry.query.spark.relations import relations_in
from parquetry.spark import activate, active_session_kept, private_session
from parquetry.storage.scan.spark import deal_out, table_rows
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


class SparkExecutor:
    """Runs anything Spark SQL can say. Every query gets a session of its own, so snapshots never mix."""

    def __init__(self, store: Store, spark: Callable[[], SparkSession], trusted: bool = False) -> None:
        self._store, self._spark, self._trusted = store, spark, trusted

    def frame(self, plan: Plan) -> DataFrame:
        """The query as a lazy Spark frame over the plan's snapshot."""
        return self._prepared(plan)[0]

    def _prepared(self, plan: Plan) -> tuple[DataFrame, Plan]:
        """The frame, and the plan as it will be run."""
        spark = self._spark()
        with active_session_kept(), explained(plan, self._store):
            session = private_session(spark, trusted=self._trusted)
            plan = self._as_spark_reads(session, plan)
            return self._frame(session, plan), plan

    def _as_spark_reads(self, session: SparkSession, plan: Plan) -> Plan:
        """The plan, with tables read whole where Spark's parser finds other relations in the text than the binder."""
        expected = plan.bound.relations
        if expected is None:
            return plan
        activate(session)
        found = relations_in(session, plan.bound.sql, plan.tables, self._trusted)
        return plan if found == expected else replace(plan, tables={n: t.whole() for n, t in plan.tables.items()})

    def collect_garbage(self) -> None:
        """Spark forgets frames that nobody has any more; those that it has run some seconds later."""
        jvm: Any = self._spark().sparkContext._jvm
        jvm.java.lang.System.gc()

    def _frame(self, session: SparkSession, plan: Plan) -> DataFrame:
        # Spark passes over an empty file without a word. Object stores show files whole, and asking them takes long.
        if self._store.local and (damage := find_damage(plan, self._store)):
            raise damage
        scans = {name: t.scan(t.state.readable.names) for name, t in plan.tables.items()}
        if not plan.picks:
            scans = {name: replace(scan, kept=None) for name, scan in scans.items()}
        deal_out(session, list(scans.values()))
        for name, scan in scans.items():
            table_rows(session, self._store, scan).createOrReplaceTempView(name)
        frame = session.sql(plan.bound.sql)
        for name in plan.tables:
            session.catalog.dropTempView(name)  # the frame's plan has it; a session may live longer than its frames
        return frame

    def run(self, plan: Plan) -> tuple[pa.Table, dict[str, int]]:
        """The rows, and what Spark's tasks counted as input."""
        frame, plan = self._prepared(plan)
        with explained(plan, self._store), running(frame.sparkSession.sparkContext, plan) as group:
            table = frame.toArrow()
        return table, _measured(frame, group, plan)


def lives(frame: DataFrame) -> Callable[[], bool]:
    """Tells whether Spark still has the frame, or one that was made from it: all of them share what it reads from.

    Spark's garbage collector decides, every half an hour at the latest, and so sooner than vacuum's grace period."""
    jvm: Any = frame.sparkSession.sparkContext._jvm
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found = [leaves.apply(i) for i in range(leaves.size())]
    # A join of a frame with itself copies the leaf of a plan, but not the relation in it.
    read = [leaf.relation() if leaf.nodeName().startswith("Relation") else leaf for leaf in found]
    weak = [jvm.java.lang.ref.WeakReference(r) for r in read]

    def told() -> bool:
        try:
            return not all(r.refersTo(None) for r in weak)  # to get it would be to hold it
        except Exception:  # Spark has ended, and its frames with it
            return False

    return told


@contextmanager
def running(context: SparkContext, plan: Plan) -> Iterator[str]:
    """The job group of a query's jobs, which can be cancelled together."""
    group = f"parquetry-{uuid.uuid4().hex}"
    context.setJobGroup(group, plan.bound.sql[:200], interruptOnCancel=True)
    try:
        yield group
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _measured(frame: DataFrame, group: str, plan: Plan) -> dict[str, int]:
    context = frame.sparkSession.sparkContext
    scala = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    tracker, status = context.statusTracker(), scala.statusStore()
    size = rows = 0
    stages = {s for job in tracker.getJobIdsForGroup(group) for s in _stage_ids(tracker, job)}
    for stage in stages:
        found = status.stageData(stage, False, _no_status(context), False, _no_quantiles(context))
        for i in range(found.size()):
            size += found.apply(i).inputBytes()
            rows += found.apply(i).inputRecords()
    return {
        "bytes_read": int(size),
        "rows_scanned": int(rows),
        "blocks_read": sum(t.groups_read for t in plan.tables.values()),
        "files_read": sum(len(t.files) for t in plan.tables.values()),
    }


def _stage_ids(tracker: object, job: int) -> list[int]:
    info = tracker.getJobInfo(job)  # type: ignore[attr-defined]
    return list(info.stageIds) if info is not None else []


def _no_status(context: object) -> object:
    return context._jvm.java.util.ArrayList()  # type: ignore[attr-defined]


def _no_quantiles(context: object) -> object:
    return context._gateway.new_array(context._jvm.double, 0)  # type: ignore[attr-defined]


class explained:
    """Turns what Spark raises into one line that says what to do."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self._plan, self._store = plan, store

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if error is None or isinstance(error, ParquetryError) or not isinstance(error, Exception):
            return
        if damage := find_damage(self._plan, self._store):
            raise damage from error
        text = str(error)
        if told := re.search(r"parquetry\.errors\.StorageError: (.+)", text):  # by a worker, which names the file
            raise StorageError(told.group(1)) from error
        if told := re.search(r"\bLeftToSpark: (.+)", text):  # by DuckDB in a worker
            raise LeftToSpark(told.group(1)) from error
        if "FAILED_READ_FILE" in text or "FileNotFoundException" in text or "PATH_NOT_FOUND" in text:
            missing = re.search(r"(file:/\S+|/\S+\.parquet)", text)
            raise StorageError(
                f"cannot read data file {missing.group(1) if missing else ''}; "
                "run 'parquetry verify' to see what is affected"
            ) from error
        first = re.sub(r"\s+", " ", text.split("\n\nJVM stacktrace")[0].split("\n== SQL")[0]).strip()
        raise QueryError(f"Spark cannot run the query: {first[:400]}") from error
