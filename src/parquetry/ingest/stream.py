"""Structured Streaming into a table: every micro-batch is one ingest with its own label, so exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


def start_stream(
    frame: DataFrame,
    ingest_batch: Callable[[DataFrame, str], Any],
    *,
    name: str,
    checkpoint: str,
    trigger: dict[str, Any],
) -> StreamingQuery:
    """Runs ``ingest_batch(batch, label)`` for each micro-batch; a batch replayed after a crash keeps its label.

    Labels are ``<name>/<batch number>``: a stream that starts over with a new checkpoint needs a new name.
    """

    def take(batch: DataFrame, number: int) -> None:
        ingest_batch(batch, f"{name}/{number}")

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    return writer.queryName(name).trigger(**trigger).start()
