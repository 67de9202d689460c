"""Chooses who runs the plan: in this process, or on Spark."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from parquetry.query.compile.plain_select import Refusal
from parquetry.query.planning.plan import Decision, Plan
from parquetry.query.planning.rule import Rule

NAME = "local"

# Rough speeds of one core over Parquet, and what a Spark job costs before its first byte: measured by
# `./run bench spine`; only their ratios matter here.
LOCAL_BYTES_PER_CORE_S = 150e6
SPARK_BYTES_PER_CORE_S = 60e6
_LOCAL_FLOOR_S = 0.003
_SPARK_FLOOR_S = 0.2
WORKER_FLOOR_S = 0.25  # what Python workers add to a Spark job, before they read as fast as a local core


def _apply(plan: Plan) -> Plan:
    """The user's choice; else local whenever it can run the plan and is expected to be sooner done than Spark."""
    local = plan.bound.local
    if plan.wanted != "auto":
        return plan.decide(Decision(NAME, plan.executor, "as asked", plan.executor))
    if isinstance(local, Refusal):
        return plan.decide(Decision(NAME, "spark", local.reason, "local", "refused"))
    size = plan.bytes_estimate
    local_s = _LOCAL_FLOOR_S + size / (LOCAL_BYTES_PER_CORE_S * (os.cpu_count() or 1))
    workers_s = WORKER_FLOOR_S + size / (LOCAL_BYTES_PER_CORE_S * spark_cores())
    spark_s = _SPARK_FLOOR_S + min(workers_s, size / (SPARK_BYTES_PER_CORE_S * spark_cores()))
    chosen = "local" if local_s <= spark_s else "spark"
    why = f"about {size:,} bytes: local {local_s * 1e3:.0f} ms, Spark {spark_s * 1e3:.0f} ms expected"
    figures = {"bytes": size, "local_ms": local_s * 1e3, "spark_ms": spark_s * 1e3}
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
