"""Adds a layout's block to every row of a Spark frame, on the executors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry.layouts.descriptors import describe
from parquetry.layouts.extra import extra_blocks_of
from parquetry.layouts.route import route_spark
from parquetry.model.layout import layout_from_json
from parquetry.model.settings import Settings
from parquetry.storage.merge import BLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_blocks(frame: DataFrame, layout: Mapping[str, Any] | None) -> DataFrame:
    """``frame`` with ``__block``; unchanged under the plain key order, which is one single block.

    A row inside the regions of extra blocks comes once more for each of them.
    """
    if layout is None:
        return frame
    spec = layout_from_json(layout)
    routed = frame.withColumn(BLOCK, route_spark(spec))
    if not spec.extra:
        return routed
    from pyspark.sql import functions as F

    columns, extra = list(spec.columns), spec.extra

    def copies(*arrays: pa.Array) -> pa.Array:
        return extra_blocks_of(extra, pa.table(list(arrays), names=columns))

    quoted = [F.col("`" + c.replace("`", "``") + "`") for c in columns]
    found = F.arrow_udf(copies, "array<int>")(*quoted)  # type: ignore[call-overload]
    return routed.withColumn(BLOCK, F.explode(F.concat(F.array(BLOCK), found)))


def blocks_of(layout: Mapping[str, Any] | None) -> int:
    return 1 if layout is None else int(layout["blocks"])


def descriptor_of(layout: Mapping[str, Any] | None, settings: Settings) -> Callable[[pa.Table], str] | None:
    """What write tasks call to describe a row group precisely; None when the table wants none (PW-21)."""
    if layout is None or not settings.descriptor_boxes:
        return None
    return partial(_describe, tuple(layout["columns"]), settings.descriptor_boxes)


def _describe(columns: tuple[str, ...], count: int, rows: pa.Table) -> str:
    return json.dumps([b.to_json() for b in describe(rows, columns, count)])
