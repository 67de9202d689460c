"""Writes rows as a delta of a table: routed by its layout, in its present schema and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from parquetry.layouts.pruning.features import opaque_conditions
from parquetry.layouts.routing.route import in_blocks
from parquetry.layouts.routing.spark_blocks import descriptor_of, with_blocks
from parquetry.model.delta import Delta
from parquetry.model.layout import LayoutSpec
from parquetry.model.state import TableState
from parquetry.storage.delta_writer import DeltaJob, RowsInParts, Written, write_delta
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASK_BYTES = 64 << 20  # stored bytes that one write task takes on
_MEMORY_PER_STORED = 4  # bytes in memory for a stored one, about
_VALUE_BYTES = 4  # of a value in memory, at least


def rewriting_tasks(spark: SparkSession, size: int) -> int:
    """The write tasks for ``size`` stored bytes: one for little, else at least one for every core."""
    tasks = -(-size // _TASK_BYTES)
    return 1 if tasks <= 1 else max(tasks, spark.sparkContext.defaultParallelism)


def write_rows(rows: DataFrame | pa.Table | RowsInParts, store: Store, job: DeltaJob) -> Written:
    """Writes the delta, each row in the block that the table's layout gives it; rows in parts bring their blocks."""
    described = replace(job, describe=descriptor_of(job.table.layout, job.table.settings))
    if isinstance(rows, pa.Table):
        rows = in_blocks(rows, job.table.layout)
    elif not isinstance(rows, RowsInParts):
        rows = with_blocks(rows, job.table.layout)
    return write_delta(rows, store, described)


def fits_here(table: TableState, deltas: Sequence[Delta]) -> bool:
    """Whether rows of these deltas are read and written in the process: there are few, and it can route them."""
    return few_bytes(table, deltas) and routes_here(table.layout)


def few_bytes(table: TableState, deltas: Sequence[Delta]) -> bool:
    """Whether so much may be read in the process to write a delta of ``table``."""
    stored = _MEMORY_PER_STORED * sum(d.bytes for d in deltas)
    # Equal values take next to nothing in a file, but each its place in memory.
    values = _VALUE_BYTES * sum(d.rows for d in deltas) * len(table.schema.columns)
    return max(stored, values) <= table.settings.in_process_bytes


def routes_here(layout: LayoutSpec | None) -> bool:
    """Only Spark evaluates opaque conditions exactly as queries that ask for them do."""
    return layout is None or not opaque_conditions(layout)
