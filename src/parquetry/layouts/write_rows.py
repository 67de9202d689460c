"""Writes rows as a delta of a table: routed by its layout, in its present schema and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parquetry.layouts.routing.spark_blocks import descriptor_of, with_blocks
from parquetry.model.delta import Delta
from parquetry.model.state import TableState
from parquetry.storage.delta_writer import DeltaJob, Written, write_delta
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import stored_rows
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASK_BYTES = 64 << 20  # stored bytes that one write task takes on


def rewriting_tasks(spark: SparkSession, size: int) -> int:
    """The write tasks for ``size`` stored bytes: one for little, else at least one for every core."""
    tasks = -(-size // _TASK_BYTES)
    return 1 if tasks <= 1 else max(tasks, spark.sparkContext.defaultParallelism)


def write_rows(frame: DataFrame, store: Store, job: DeltaJob) -> Written:
    """Writes the delta, each row in the block that the table's layout gives it."""
    described = replace(job, describe=descriptor_of(job.table.layout, job.table.settings))
    return write_delta(with_blocks(frame, job.table.layout), store, described)


def merge_deltas(
    spark: SparkSession, store: Store, table: TableState, delta_id: str, deltas: Sequence[Delta]
) -> Delta | None:
    """Writes the delta that takes the place of neighbouring ``deltas``; None when their rows merge to nothing."""
    job = DeltaJob(
        table,
        delta_id,
        rewriting_tasks(spark, sum(d.bytes for d in deltas)),
        level=max(d.level for d in deltas) + 1,
        times=(deltas[0].t_lo, deltas[-1].t_hi),
        expected_rows=sum(d.rows for d in deltas),
    )
    return write_rows(stored_rows(spark, store, plan_scan(table, deltas)), store, job).delta
