"""Spark as the systems on it use it: a session with given settings, a timed query, and what its tasks read."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers._model import Answer, arrow_rows

# So that Spark's counters tell what a query asks for: they do not see vectored reads, and a buffer larger than a small
# row group's columns would be filled, and counted, for each.
COUNTED = {"spark.hadoop.parquet.hadoop.vectored.io.enabled": "false", "spark.buffer.size": "4096"}
_FILE_METRICS = ("number of files read", "number of result data files")


def start(settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def ask(spark: Any, sql: str, measure: bool) -> Answer:
    """Runs a query, analysis included, as Arrow."""
    started = time.perf_counter()
    found = spark.sql(sql).toArrow()
    ms = (time.perf_counter() - started) * 1e3
    return Answer(arrow_rows(found), ms, *(_read(spark) if measure else ()))


def timed(spark: Any, *statements: str) -> float:
    """Seconds that statements take one after the other."""
    started = time.perf_counter()
    for sql in statements:
        spark.sql(sql).collect()
    return time.perf_counter() - started


def columns_of(spark: Any, path: str) -> str:
    """A Parquet file's columns as CREATE TABLE wants them."""
    return ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in spark.read.parquet(path).schema)


def merge_into(table: str, path: str, key: Sequence[str]) -> str:
    """The statement that puts a file's rows in the place of those with the same key."""
    same = " AND ".join(f"t.{c} = s.{c}" for c in key)
    return (
        f"MERGE INTO {table} t USING (SELECT * FROM parquet.`{path}`) s ON {same} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def jar_version(spark: Any, artifact: str) -> str:
    jars = spark.conf.get("spark.jars.packages").split(",")
    return str(next(j.rpartition(":")[2] for j in jars if artifact in j))


def _read(spark: Any) -> tuple[int, int | None]:
    """The bytes that the tasks of the last query counted as input, and the files that its scans opened.

    What a table format asks of its own log while it plans are queries inside the query; they are left out.
    """
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    queries = spark._jsparkSession.sharedState().statusStore()
    executions = queries.executionsList()
    at = executions.size() - 1
    while executions.apply(at).rootExecutionId() != executions.apply(at).executionId():
        at -= 1
    last = executions.apply(at)
    values, files = queries.executionMetrics(last.executionId()), {}
    for i in range(last.metrics().size()):
        metric = last.metrics().apply(i)
        value = values.get(metric.accumulatorId())
        if metric.name() in _FILE_METRICS and value.isDefined():
            files[metric.accumulatorId()] = int(re.sub(r"\D", "", value.get().splitlines()[-1]) or 0)
    stages = [int(s) for s in last.stages().mkString(",").split(",") if s]
    return sum(_input_bytes(context, s) for s in stages), sum(files.values()) if files else None


def _input_bytes(context: Any, stage: int) -> int:
    none, quantiles = context._jvm.java.util.ArrayList(), context._gateway.new_array(context._jvm.double, 0)
    attempts = context._jsc.sc().statusStore().stageData(stage, False, none, False, quantiles)
    return sum(int(attempts.apply(i).inputBytes()) for i in range(attempts.size()))
