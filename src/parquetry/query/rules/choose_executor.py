"""Chooses who runs the plan: in this process, or on Spark."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from parquetry.query.compile.plain_select import Refusal
from parquetry.query.planning.plan import Decision, Plan
from parquetry.query.planning.rule import Rule

NAME = "local"

# Rough speeds of one core over Parquet and in joins, and what a query costs before its first byte (`./run bench spine`,
# `./run bench joins`). What this machine takes against them is measured by its first queries (planning/speeds.py).
LOCAL_BYTES_PER_CORE_S = 150e6
SPARK_BYTES_PER_CORE_S = 60e6
_LOCAL_ROWS_PER_CORE_S = 25e6  # of any side of a join
_SPARK_ROWS_PER_CORE_S = 3e6
_LOCAL_FLOOR_S = 0.003
_SPARK_FLOOR_S = 0.2
_SPARK_JOIN_S = 0.05  # of each join: a stage of its own
WORKER_FLOOR_S = 0.25  # what Python workers add to a Spark job, before they read as fast as a local core


@dataclass(frozen=True)
class Estimate:
    """What a plan reads, a table once for each mention, and the seconds that takes on a rough machine."""

    bytes: int
    rows: int
    joins: int
    local_s: float
    spark_s: float


def estimate(plan: Plan) -> Estimate:
    """The time of the plan's scans and joins, from what is left to read: no row is looked at."""
    tables = plan.tables.values()
    size = sum(int(t.bytes * t.column_share) * len(t.refs) for t in tables)
    rows = sum(t.rows * len(t.refs) for t in tables)
    joins = max(0, sum(len(t.refs) for t in tables) - 1)
    joined = rows if joins else 0
    here, there = os.cpu_count() or 1, spark_cores()
    local_s = _LOCAL_FLOOR_S + (size / LOCAL_BYTES_PER_CORE_S + joined / _LOCAL_ROWS_PER_CORE_S) / here
    workers_s = math.inf if joins else WORKER_FLOOR_S + size / (LOCAL_BYTES_PER_CORE_S * there)
    scan_s = min(workers_s, size / (SPARK_BYTES_PER_CORE_S * there))
    spark_s = _SPARK_FLOOR_S + joins * _SPARK_JOIN_S + scan_s + joined / (_SPARK_ROWS_PER_CORE_S * there)
    return Estimate(size, rows, joins, local_s, spark_s)


def _apply(plan: Plan) -> Plan:
    """The user's choice; else local whenever it can run the plan and is expected to be sooner done than Spark."""
    local = plan.bound.local
    if plan.wanted != "auto":
        return plan.decide(Decision(NAME, plan.executor, "as asked", plan.executor))
    if isinstance(local, Refusal):
        return plan.decide(Decision(NAME, "spark", local.reason, "local", "refused"))
    rough = estimate(plan)
    local_s, spark_s = rough.local_s * plan.slowness["local"], rough.spark_s * plan.slowness["spark"]
    chosen = "local" if local_s <= spark_s else "spark"
    joined = f" and {rough.rows:,} rows in {rough.joins} join{'' if rough.joins == 1 else 's'}" if rough.joins else ""
    why = f"about {rough.bytes:,} bytes{joined}: local {local_s * 1e3:.0f} ms, Spark {spark_s * 1e3:.0f} ms expected"
    figures = {"bytes": rough.bytes, "rows": rough.rows, "joins": rough.joins, "local_ms": local_s * 1e3}
    figures["spark_ms"] = spark_s * 1e3
    return plan.decide(Decision(NAME, chosen, why, chosen, figures=figures), executor=chosen)


LOCAL = Rule(NAME, "runs the query in this process where that gives Spark's answer sooner", _apply)


def spark_cores() -> int:
    """The cores of the running Spark session; without one, a session would get this machine's."""
    import sys

    if "pyspark" in sys.modules:
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        if context is not None:
            return (
                _local_cores(context) if (context.master or "").startswith("local") else int(context.defaultParallelism)
            )
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _local_cores(context: Any) -> int:
    """Of Spark in this process, where they never change: asking the JVM takes longer than planning a small query."""
    return int(context.defaultParallelism)
