"""Writes the delta that takes the place of neighbouring ones: for compaction, and for a relayout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from parquetry.layouts.write_rows import fits_here, rewriting_tasks, write_rows
from parquetry.model.delta import Delta
from parquetry.model.state import TableState
from parquetry.splits.merged_runs import cut_runs
from parquetry.storage.delta_writer import DeltaJob, RowsInParts
from parquetry.storage.scan.arrow import scanned_rows
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import stored_rows
from parquetry.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def merge_deltas(
    spark: Callable[[], SparkSession], store: Store, table: TableState, delta_id: str, deltas: Sequence[Delta]
) -> Delta | None:
    """The delta with the rows of neighbouring ``deltas``, oldest first; None when they merge to nothing.

    Few rows are merged in the process. Of more, runs in the order of the table's layout are merged part by part on
    Spark's executors; others are dealt out anew.
    """
    here = fits_here(table, deltas)
    tasks = 1 if here else rewriting_tasks(spark(), sum(d.bytes for d in deltas))
    rows: DataFrame | pa.Table | RowsInParts
    if here:
        rows = scanned_rows(store, plan_scan(table, deltas, visible=False), deltas)
    elif (runs := cut_runs(store, table, deltas, tasks)) is not None:
        rows = RowsInParts(spark(), len(runs.tasks), runs)
    else:
        rows = stored_rows(spark(), store, plan_scan(table, deltas, visible=False))
    job = DeltaJob(
        table,
        delta_id,
        tasks,
        level=max(d.level for d in deltas) + 1,
        times=(deltas[0].t_lo, deltas[-1].t_hi),
        expected_rows=sum(d.rows for d in deltas),
    )
    return write_rows(rows, store, job).delta
