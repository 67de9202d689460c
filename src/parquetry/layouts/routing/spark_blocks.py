"""Adds a layout's block to every row of a Spark frame, on the executors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from parquetry.layouts.pruning.descriptors import describe
from parquetry.layouts.pruning.features import Evaluator, columns_used, number_of, pack
from parquetry.layouts.routing.extra_blocks import extra_blocks_of
from parquetry.layouts.routing.route import route_spark
from parquetry.model.layout import Feature, LayoutSpec
from parquetry.model.settings import Settings
from parquetry.storage.merge import BLOCK
from parquetry.storage.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_VECTORS = 100_000


def with_blocks(frame: DataFrame, spec: LayoutSpec | None) -> DataFrame:
    """``frame`` with ``__block``; unchanged under the plain key order, which is one single block.

    A row inside the regions of extra blocks comes once more for each of them.
    """
    if spec is None:
        return frame
    routed = frame.withColumn(BLOCK, route_spark(spec))
    if not spec.extra:
        return routed
    from pyspark.sql import functions as F

    columns, extra = list(spec.columns), spec.extra

    def copies(*arrays: pa.Array) -> pa.Array:
        return extra_blocks_of(extra, pa.table(list(arrays), names=columns))

    found = F.arrow_udf(copies, "array<int>")(*[F.col(quote(c)) for c in columns])  # type: ignore[call-overload]
    return routed.withColumn(BLOCK, F.explode(F.concat(F.array(BLOCK), found)))


def count_vectors(frame: DataFrame, features: Sequence[Feature]) -> dict[int, int]:
    """How many rows have each feature vector: the reduce step, on the executors (WP-07, WP-08).

    Of more distinct vectors than the driver should hold, those of the most rows.
    """
    from pyspark.sql import functions as F

    conditions = tuple(dict.fromkeys(o for f in features for o in f.opaque))
    own = columns_used(features)
    names = [*own, *(o.text for o in conditions)]
    sent = [*(F.col(quote(c)) for c in own), *(F.expr(f"coalesce({o.text}, FALSE)") for o in conditions)]
    made: list[Evaluator] = []  # by the first batch of a task, for the others

    def vector(*arrays: pa.Array) -> pa.Array:
        table = pa.table(list(arrays), names=names)
        if not made:
            made.append(Evaluator(features, table.schema))
        return pa.array([bytes(v) for v in pack(made[0].bits(table))], pa.binary())

    vectors = frame.select(F.arrow_udf(vector, "binary")(*sent).alias("vector"))  # type: ignore[call-overload]
    counted = vectors.groupBy("vector").count().orderBy(F.desc("count"), "vector").limit(_MOST_VECTORS).toArrow()
    found = zip(counted.column("vector").to_pylist(), counted.column("count").to_pylist(), strict=True)
    return {number_of(v): n for v, n in found}


def descriptor_of(layout: LayoutSpec | None, settings: Settings) -> Callable[[pa.Table], str] | None:
    """What write tasks call to describe a row group precisely; None when the table wants none (PW-21)."""
    if layout is None or not settings.descriptor_boxes:
        return None
    return partial(_describe, layout.columns, settings.descriptor_boxes)


def _describe(columns: tuple[str, ...], count: int, rows: pa.Table) -> str:
    return json.dumps([b.to_json() for b in describe(rows, columns, count)])
