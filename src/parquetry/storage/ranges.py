"""Deals rows to tasks by ranges of the sort key, with bounds from a sample of the key columns alone.

Spark's own range partitioning samples by running the whole input, all columns and checks included, a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHARE = 0.001  # of the rows; a task gets a million or so, so about a thousand of them
_LEAST_PER_TASK = 20  # fewer samples place the bounds too badly
_MOST_TASKS = 128  # every row is compared with every bound; beyond this Spark's binary search is the better way


def partition_by_range(frame: DataFrame, tasks: int, order: Sequence[str]) -> DataFrame:
    """``frame`` in ``tasks`` partitions whose ranges of ``order`` do not overlap; equal keys stay together."""
    if tasks > _MOST_TASKS:
        return frame.repartitionByRange(tasks, *order)
    from pyspark.sql import functions as F

    sample = frame.select(*order).sample(fraction=_SHARE, seed=0).sort(*order).collect()
    if len(sample) < _LEAST_PER_TASK * tasks:
        return frame.repartitionByRange(tasks, *order)
    types = frame.select(*order).schema
    key = F.struct(*[F.col(c) for c in order])
    task: Any = F.lit(0)
    for n in range(1, tasks):
        bound = sample[n * len(sample) // tasks]
        values = [F.lit(v).cast(f.dataType).alias(f.name) for v, f in zip(bound, types, strict=True)]
        task = task + (key >= F.struct(*values)).cast("int")
    return frame.repartitionById(tasks, task)
