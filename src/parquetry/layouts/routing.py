"""Adds a layout's block to every row of a Spark frame, on the executors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parquetry.layouts.route import route_spark
from parquetry.model.layout import layout_from_json
from parquetry.storage.merge import BLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_blocks(frame: DataFrame, layout: Mapping[str, Any] | None) -> DataFrame:
    """``frame`` with ``__block``; unchanged under the plain key order, which is one single block."""
    if layout is None:
        return frame
    return frame.withColumn(BLOCK, route_spark(layout_from_json(layout)))


def blocks_of(layout: Mapping[str, Any] | None) -> int:
    return 1 if layout is None else int(layout["blocks"])
