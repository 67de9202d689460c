"""Structured Streaming into a table: every micro-batch is one ingest with its own label, so exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parquetry.catalog import Catalog
from parquetry.ingest.ingest import ingest, ingestable
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


def start_stream(
    catalog: Catalog,
    store: Store,
    table: str,
    frame: DataFrame,
    *,
    name: str,
    checkpoint: str,
    trigger: Mapping[str, Any],
) -> StreamingQuery:
    """Ingests each micro-batch; one that is replayed after a crash keeps its label.

    Labels are ``<name>/<batch number>``: a stream that starts over with a new checkpoint needs a new name.
    """
    target = ingestable(catalog, table)

    def take(batch: DataFrame, number: int) -> None:
        ingest(catalog, store, lambda: batch.sparkSession, target, batch, label=f"{name}/{number}")

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    return writer.queryName(name).trigger(**trigger).start()
