"""Deals joins that Spark runs to workers, so that neither table is shuffled, where that is expected to be sooner done.

Every way is a rule of its own, priced in bytes; the last rule takes the cheapest, or leaves the join to Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from parquetry.model.types import type_name
from parquetry.query.compile.alignment import find_alignment
from parquetry.query.compile.join_parts import JoinParts, compile_parts, in_one_part
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.compile.whole import WholeQuery
from parquetry.query.planning.join_plan import JoinPlan
from parquetry.query.planning.plan import Decision, Plan
from parquetry.query.planning.rule import Rule
from parquetry.query.rules.choose_executor import (
    LOCAL_BYTES_PER_CORE_S,
    SPARK_BYTES_PER_CORE_S,
    WORKER_FLOOR_S,
    spark_cores,
)
from parquetry.query.rules.join_ways import Dealing, Way, broadcast, co_range, hyper, one_worker
from parquetry.query.rules.worker_refusals import A_VIEW_ANSWERS, too_small, workers_refuse
from parquetry.splits.worker_duckdb import worker_memory
from parquetry.workload.plain_select import NotPlain

NAME = "join_workers"
_SHUFFLED = 3  # times that a shuffle join handles every byte: read, write, read (RB-E5)
_BROADCAST_BYTES = 10 << 20  # Spark sends a table of up to this size to everyone instead
_MOST_TABLES = 64
_STAGE_S = 0.25  # what a table more costs Spark before its first byte: a scan, an exchange, their code
_LEAST_BYTES = 2 << 20  # below, nothing takes long enough to start Python workers for


def _way(name: str, meaning: str, way: Way) -> Rule:
    return Rule(name, meaning, lambda plan: _considered(plan, name, lambda: _dealt(plan, way)))


def _dealt(plan: Plan, way: Way) -> JoinPlan | Refusal:
    dealing = _dealing(plan)
    return dealing if isinstance(dealing, Refusal) else way(dealing)


def _considered(plan: Plan, name: str, make: Callable[[], JoinPlan | Refusal]) -> Plan:
    """Adds the way to what can be chosen from."""
    if plan.executor != "spark" or not _joins(plan):
        return plan
    found = workers_refuse(plan) or make()
    if isinstance(found, Refusal):
        return plan.decide(Decision(name, "not possible", found.reason, outcome="refused"))
    found = replace(found, seconds=_seconds(found))
    figures = {"tasks": len(found.tasks), "bytes": found.bytes, "largest": found.largest, "ms": found.seconds * 1e3}
    why = f"{len(found.tasks)} tasks read about {int(found.bytes):,} bytes: {found.seconds * 1e3:.0f} ms expected"
    told = Decision(name, found.told, why, outcome="considered", figures=figures)
    return plan.decide(told, ways=(*plan.ways, found))


def _whole_in_one(plan: Plan) -> JoinPlan | Refusal:
    whole = plan.bound.local
    assert isinstance(whole, WholeQuery)
    parts = in_one_part(whole, tuple(type_name(f.type) for f in whole.schema))
    return one_worker(plan, parts, worker_memory())


CO_RANGE_JOIN = _way("co_range_join", "cuts tables in the order of the join column at the same values", co_range)
HYPER_JOIN = _way("hyper_join", "joins groups of blocks whose ranges of the join column overlap", hyper)
BROADCAST_JOIN = _way("broadcast_join", "deals out the largest table of a join and reads the others whole", broadcast)
ONE_WORKER = Rule(
    "one_worker",
    "runs a small query whole in one worker",
    lambda plan: _considered(plan, "one_worker", lambda: _whole_in_one(plan)),
)


def _choose(plan: Plan) -> Plan:
    """The cheapest way, or Spark's own join."""
    if plan.executor != "spark" or not plan.ways:
        return plan
    best = min(plan.ways, key=lambda way: way.seconds)
    own = _own_seconds(plan)
    figures = {"own_ms": own * 1e3, "ms": best.seconds * 1e3}
    expected = f"{best.seconds * 1e3:.0f} ms expected, {own * 1e3:.0f} ms by Spark's own join"
    if plan.splits is None and plan.bytes_estimate < _LEAST_BYTES:
        why = too_small(plan).reason
        return plan.decide(Decision(NAME, "Spark's own join", why, outcome="refused", figures=figures))
    if plan.splits is None and own < best.seconds:
        return plan.decide(Decision(NAME, "Spark's own join", expected, outcome="refused", figures=figures))
    decided = f"{best.way}, {len(best.tasks)} tasks, nothing shuffled"
    return plan.decide(Decision(NAME, decided, expected, figures=figures), join=best)


JOIN_WORKERS = Rule(NAME, "runs a join in workers on Spark where that is sooner done than Spark's own", _choose)
JOIN_RULES = (CO_RANGE_JOIN, HYPER_JOIN, BROADCAST_JOIN, ONE_WORKER, JOIN_WORKERS)


def _joins(plan: Plan) -> bool:
    """Whether this is a query for these rules: one that scan workers do not take."""
    return isinstance(plan.bound.local, WholeQuery)


def _dealing(plan: Plan) -> Dealing | Refusal:
    """The query in parts, and who may get what."""
    # A join can have as many rows as its tables' rows multiplied: so many digits, which seldom change.
    digits = len(str(math.prod(max(1, t.rows) ** len(t.refs) for t in plan.tables.values())))
    parts = plan.bound.once(("join parts", plan.view, digits), lambda: _parts(plan, 10**digits))
    if isinstance(parts, Refusal):
        return parts
    if len(parts.mentions) > _MOST_TABLES:
        return Refusal("it names too many tables")
    tree = plan.bound.tree
    try:
        alignment = find_alignment(tree, plan.snapshot.state.readable)  # type: ignore[arg-type]  # parts have a SELECT
    except NotPlain as e:
        return Refusal(str(e))
    return Dealing(plan, parts, alignment, spark_cores(), worker_memory(), plan.splits)


def _parts(plan: Plan, rows: int) -> JoinParts | Refusal:
    """The parts of a query that joins at most to ``rows`` rows."""
    whole = plan.bound.local
    assert isinstance(whole, WholeQuery)
    if plan.view is not None:
        return A_VIEW_ANSWERS
    return compile_parts(plan.bound.tree, plan.snapshot.state.readable, plan.bound.sql, whole, rows)


def _seconds(way: JoinPlan) -> float:
    per_core = max(way.bytes / min(spark_cores(), len(way.tasks)), way.largest)
    return WORKER_FLOOR_S + per_core / LOCAL_BYTES_PER_CORE_S


def _own_seconds(plan: Plan) -> float:
    """Of Spark's own join: everything is shuffled unless all tables but the largest can be sent to everyone."""
    sizes = sorted(t.bytes * t.column_share for t in plan.tables.values())
    times = 1 if all(size <= _BROADCAST_BYTES for size in sizes[:-1]) else _SHUFFLED
    return _STAGE_S * len(sizes) + times * sum(sizes) / (SPARK_BYTES_PER_CORE_S * spark_cores())
