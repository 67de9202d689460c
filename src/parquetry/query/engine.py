"""From SQL text to rows: bind at a snapshot, apply the rules in order, run, log."""

from __future__ import annotations

import atexit
import gc
import threading
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry.catalog import Catalog
from parquetry.errors import ParquetryError, QueryError
from parquetry.model.queryable import candidate, ready
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.explain import Explanation, matching_rows_query
from parquetry.query.local.executor import LocalExecutor
from parquetry.query.local.prepared import LeftToSpark
from parquetry.query.local.reader import BEYOND_PLAN
from parquetry.query.log import QueryLog
from parquetry.query.memory.follower import Follower
from parquetry.query.memory.plan_cache import Planned
from parquetry.query.planning.bind import BoundQuery
from parquetry.query.planning.plan import Decision, Plan, TablePlan, read_whole
from parquetry.query.planning.rule import apply_rules
from parquetry.query.planning.snapshots import Snapshot, Snapshots
from parquetry.query.planning.speeds import Speeds
from parquetry.query.result import Result
from parquetry.query.rules import AGAIN, RULE_NAMES, RULES
from parquetry.query.rules.choose_executor import LOCAL, estimate
from parquetry.query.rules.choose_view import PRICING, VIEWS
from parquetry.query.rules.prune_row_groups import explain_filters
from parquetry.query.spark.executor import SparkExecutor, lives
from parquetry.query.spark.scan_workers import ScanWorkers
from parquetry.splits.selection import Wish
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from parquetry.model.state import State

BIND = "bind"
EXECUTORS = ("auto", "local", "spark")
_MOST_STOPPED = 256
_MANY_ROWS = 1 << 19  # to read: no query that reads so many is answered from memory, so its time tells the machine's
_MUCH, _FEW_ROWS = 4, 10_000  # times more to read, or less, for a view to be chosen anew; few enough not to matter


_OPEN: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """What was not closed ends before the interpreter does: threads would run into its ruins."""
    for engine in list(_OPEN):
        with suppress(ParquetryError):
            engine.close()


class Engine:
    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        spark: Callable[[], SparkSession],
        trusted: bool = False,
        speeds: Speeds | None = None,
    ) -> None:
        self._store, self._catalog = store, catalog
        self.snapshots = Snapshots(catalog)
        self._local = LocalExecutor(store)
        self._spark = SparkExecutor(store, spark, trusted)
        self._workers = ScanWorkers(store, spark)
        self._planned = Planned(trusted)
        self._speeds = speeds or Speeds()
        self._stopped: dict[str, str] = {}  # texts that the local executor could not finish, and why
        self.follower = Follower(catalog.state, self._get_ready, self.snapshots.show, self._local.held.forget)
        self.log = QueryLog(catalog)
        parts = (catalog, self.log, self.follower.end, self.snapshots, self._local)
        self._end = weakref.finalize(self, _abandoned, *parts)
        self._end.atexit = False
        _OPEN.add(self)

    def plan(
        self,
        sql: str,
        *,
        wanted: str = "auto",
        off: Collection[str] = (),
        wanted_splits: int | None = None,
        anew: bool = False,
    ) -> Plan:
        """Binds the query at the newest QT and applies every rule that is on; ``anew`` takes no remembered plan."""
        self._catalog.check_process()  # before any lock that the parent of a forked process may hold
        started = time.perf_counter()
        if wanted not in EXECUTORS:
            raise QueryError(f"unknown executor '{wanted}'; choose one of {', '.join(EXECUTORS)}")
        if wanted_splits is not None:
            if wanted == "local":
                raise QueryError("splits are for Spark's workers; leave them out, or choose executor 'spark'")
            wanted = "spark"
            Wish(wanted_splits)  # refuses less than one
        for rule in off:
            if rule not in RULE_NAMES:
                raise QueryError(f"unknown rule '{rule}'; rules: {', '.join(RULE_NAMES)}")
        with self.follower.query():
            snapshot = self.snapshots.take()
            asked = (sql, wanted, frozenset(off), wanted_splits)
            stopped = self._stopped.get(sql) if wanted == "auto" else None
            before = None if anew or stopped else self._planned.get(asked, snapshot)
            plan = before and self._again(before)
            if plan is None:
                by = "spark" if stopped else wanted
                plan = self._plan(snapshot, sql, by, frozenset(off), wanted_splits)
                plan = replace(plan, times=1 if before is None else before.times)
                if stopped:
                    plan = plan.decide(Decision(LOCAL.name, "spark", f"DuckDB stopped before: {stopped}", "spark"))
            if plan is not before:
                self._planned.keep(asked, plan)
            return replace(plan, plan_ms=(time.perf_counter() - started) * 1e3)

    def _again(self, plan: Plan) -> Plan | None:
        """The plan as it is if it reads the deltas of its snapshot, else the same choice over these. None if there is
        so much more or less to read than when it was chosen that another choice may be better."""
        snapshot = plan.snapshot
        if plan.reads(snapshot):
            return plan
        states = {n: snapshot.state.table(n) for n in plan.tables}
        tables = {
            n: read_whole(snapshot, states[n], t.refs, self._store, stored=t.stored) for n, t in plan.tables.items()
        }
        chosen = tuple(d for d in plan.decisions if d.rule in (BIND, VIEWS.name))
        undecided = replace(plan, tables=tables, decisions=chosen, picks=False, holds=False)
        again = apply_rules(replace(undecided, scan=None, ways=(), join=None), AGAIN)
        fewer, more = sorted((again.rows, plan.chosen_rows))
        same = more <= max(_MUCH * fewer, _FEW_ROWS) and again.executor == plan.executor
        return again if same else None

    def _plan(self, snapshot: Snapshot, sql: str, wanted: str, off: frozenset[str], splits: int | None) -> Plan:
        plan = self._start(self._planned.bound(sql, snapshot), snapshot, wanted, off, splits)
        plan = apply_rules(plan, RULES)
        if wanted == "local" and isinstance(plan.bound.local, Refusal):  # nor is there a view that it could read
            reason = plan.bound.local.reason
            raise QueryError(f"the local executor cannot run this query: {reason}. Use executor 'auto' or 'spark'")
        return replace(plan, chosen_rows=plan.rows)

    def _start(
        self, bound: BoundQuery, snapshot: Snapshot, wanted: str, off: frozenset[str], splits: int | None = None
    ) -> Plan:
        """The plan before any rule: right, and slow."""
        tables: dict[str, TablePlan] = {}
        for name in dict.fromkeys(r.table for r in bound.refs):
            state = snapshot.state.table(name)
            if not ready(snapshot.state, state):
                raise QueryError(f"view '{name}' is still being filled; run maintain, then ask again")
            tables[name] = read_whole(snapshot, state, tuple(r for r in bound.refs if r.table == name), self._store)
        executor = "local" if wanted == "local" else "spark"
        slowness = self._speeds.factors()
        plan = Plan(bound, snapshot, self._store, tables, off, wanted, splits, executor, slowness=slowness)
        read = ", ".join(f"{n} ({len(t.deltas)} delta{'' if len(t.deltas) == 1 else 's'})" for n, t in tables.items())
        return plan.decide(Decision(BIND, read or "no table", snapshot.named))

    def explain(
        self, sql: str, *, wanted: str, off: Collection[str], analyze: bool, wanted_splits: int | None = None
    ) -> Explanation:
        """The plan with what each filter does; with ``analyze`` also run, against the least that had to be read."""
        plan = self.plan(sql, wanted=wanted, off=off, wanted_splits=wanted_splits, anew=True)
        plan = explain_filters(plan)
        if not analyze:
            return Explanation(plan)
        _, stats = self._run(plan)
        count, matching = matching_rows_query(plan), None
        if count is not None:
            counted, _ = self._run(self._plan(plan.snapshot, count, "auto", frozenset(), None), logged=False)
            (matching,) = counted.column(0).to_pylist()
        return Explanation(plan, stats, matching)

    def query(
        self, sql: str, *, wanted: str = "auto", off: Collection[str] = (), wanted_splits: int | None = None
    ) -> Result:
        plan = self.plan(sql, wanted=wanted, off=off, wanted_splits=wanted_splits)
        return Result(plan, self._run, self._spark_frame)

    def warm(self, state: State) -> None:
        """Reads the indexes of all present deltas into memory, and whatever else readers here will need (NA-27)."""
        for t in state.tables.values():
            with suppress(Exception):  # a query will tell
                open_snapshot(self._store, t.deltas, t.schema)
        self.follower.look()

    def _get_ready(self, state: State) -> None:
        """Gets ready for readers of ``state``, at the QT that it will show next: what they often ask for is in memory,
        planned and prepared."""
        coming = replace(state, qt=candidate(state))
        self._local.held.warm(coming, self.follower.give_way)
        self.follower.give_way()
        waiting = self._planned.waiting(Snapshot(coming))
        if not waiting:
            return
        self.follower.give_way()
        statements = self._local.statements()
        for asked, before in waiting:
            self.follower.give_way()
            if self.follower.closed:
                return
            with suppress(ParquetryError, pa.ArrowException, OSError):  # a query will tell
                plan = self._again(before)
                if plan is not None:
                    self._local.prepare(plan, statements)
                    self._planned.keep_for_later(asked, plan)

    def close(self) -> None:
        """Ends the threads, the pin and the catalog's connections; so does the end of the last reference to it all."""
        left = self._end.detach()
        if left is not None and not self._catalog.forked:
            self.follower.close()
            _end(*left[2])

    def release(self) -> None:
        """Lets go of versions that nobody reads any more; frames in Spark live until its garbage collector runs."""
        if self.snapshots.has_frames:
            gc.collect()
            with suppress(Exception):  # without Spark there are no frames
                self._spark.collect_garbage()
        self.snapshots.move()

    def _runner(self, plan: Plan) -> LocalExecutor | SparkExecutor | ScanWorkers:
        if plan.executor == "local":
            return self._local
        return self._workers if plan.in_workers else self._spark

    def _spark_frame(self, plan: Plan) -> DataFrame:
        """A frame whose files stay while it, or any frame made from it, lives."""
        self._catalog.check_process()
        plan = replace(plan, snapshot=self.snapshots.held(plan.snapshot))
        if plan.join is not None and plan.join.parts.stops:  # where a frame runs, nobody could leave it to Spark
            plan = replace(plan, join=None)
        frame = self._workers.frame(plan) if plan.in_workers else self._spark.frame(plan)
        self.snapshots.hold_while(plan.snapshot, lives(frame))
        return frame

    def _run(self, plan: Plan, *, logged: bool = True) -> tuple[pa.Table, dict[str, Any]]:
        self._catalog.check_process()
        started, first = time.perf_counter(), plan
        with self.follower.query():
            try:
                table, measured = self._runner(plan).run(plan)
            except LeftToSpark as e:
                plan = self._on_spark(plan, str(e))
                table, measured = self._runner(plan).run(plan)
            seconds = time.perf_counter() - started
            stats = statistics_of(plan, measured, table.num_rows, seconds * 1e3)
            if logged:
                self.log.add(plan, stats)
            if plan is first and plan.rows > _MANY_ROWS and plan.scan is None:
                rough = estimate(plan)
                self._speeds.note(plan.executor, rough.local_s if plan.executor == "local" else rough.spark_s, seconds)
        return table, stats

    def _on_spark(self, plan: Plan, why: str) -> Plan:
        """The same query for Spark. Its text is remembered, so that DuckDB does not try again soon."""
        asked = plan.asked or plan.bound
        while len(self._stopped) >= _MOST_STOPPED:
            self._stopped.pop(next(iter(self._stopped)), None)
        self._stopped[asked.sql] = why
        again = apply_rules(self._start(asked, plan.snapshot, "spark", plan.off), PRICING)
        told = Decision(LOCAL.name, "spark", f"DuckDB stopped: {why}", "spark")
        return replace(again.decide(told), plan_ms=plan.plan_ms, times=plan.times)

    def frame(self, table: str) -> DataFrame:
        """The whole table at the QT as a Spark frame."""
        self._catalog.check_process()
        snapshot = self.snapshots.take()
        t = snapshot.state.table(table)
        quoted = "`" + t.name + "`"
        return self._spark_frame(self.plan(f"SELECT * FROM {quoted}", wanted="spark"))


def _abandoned(catalog: Catalog, *parts: Any) -> None:
    """Nobody has the connection any more. The garbage collector tells so in whichever thread it runs, inside any lock:
    the end needs a thread of its own. In a forked process all of it is the parent's."""
    if not catalog.forked:
        threading.Thread(target=_end, args=(catalog, *parts), name="parquetry end", daemon=True).start()


def _end(
    catalog: Catalog, log: QueryLog, follower: Callable[[], None], snapshots: Snapshots, local: LocalExecutor
) -> None:
    follower()
    log.close()
    snapshots.close()
    local.close()
    catalog.close()


def statistics_of(plan: Plan, measured: dict[str, Any], rows_out: int, run_ms: float) -> dict[str, Any]:
    """The figures that every query reports, under the same names everywhere."""
    skipped: dict[str, int] = {}
    for t in plan.tables.values():
        for proof, n in t.skipped_by.items():
            skipped[proof] = skipped.get(proof, 0) + n
    blocks = sum(t.groups_total for t in plan.tables.values())
    return {
        "executor": plan.executor,
        "qt": plan.snapshot.qt,
        "view": plan.view,
        "replica": None,
        "deltas": sum(len(t.deltas) for t in plan.tables.values()),
        "blocks_total": blocks,
        "blocks_read": min(measured["blocks_read"], blocks),  # a query that names a table twice may read it twice
        "skipped_by": skipped,
        "files_read": measured["files_read"],
        "rows_scanned": measured["rows_scanned"],
        "rows_out": rows_out,
        "bytes_read": measured["bytes_read"],
        "splits": measured.get("splits", 1),
        "elapsed_ms": round(plan.plan_ms + run_ms, 3),
        "plan_ms": round(plan.plan_ms, 3),
        **_beyond(plan, measured["rows_scanned"]),
        **({"scan": measured["scan"]} if "scan" in measured else {}),
    }


def _beyond(plan: Plan, rows: int) -> dict[str, float]:
    """Tells when more was read than the plan keeps, and how many times as much."""
    kept = sum(t.rows * len(t.refs) for t in plan.tables.values())
    return {"beyond_plan": round(rows / kept, 2)} if rows > kept * (1 + BEYOND_PLAN) > 0 else {}
