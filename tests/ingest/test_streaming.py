"""Structured Streaming: every micro-batch arrives exactly once, whatever happens between commit and checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Source:
    """A folder that files drop into, and the stream that reads it, one file per micro-batch."""

    def __init__(self, wh: Warehouse, spark: SparkSession, folder: Path) -> None:
        self.wh, self.spark, self.folder = wh, spark, folder
        self.checkpoint = folder / "checkpoint"
        (folder / "in").mkdir()
        self.files = 0

    def drop(self, rows: int = 10) -> None:
        first = self.files * rows
        keys = pa.array(range(first, first + rows), pa.int32())
        pq.write_table(
            pa.table({"k": keys, "s": [f"file {self.files}"] * rows}), self.folder / "in" / f"{self.files}.parquet"
        )
        self.files += 1

    def run(self, name: str) -> None:
        frame = self.spark.readStream.schema("k int, s string").option("maxFilesPerTrigger", 1)
        query = self.wh.stream(
            "streamed", frame.parquet(str(self.folder / "in")), name=name, checkpoint=str(self.checkpoint)
        )
        assert query.awaitTermination(120)

    def committed(self) -> list[Path]:
        return sorted((self.checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name))


@pytest.fixture
def source(wh: Warehouse, spark: SparkSession, tmp_path: Path) -> Source:
    if "streamed" in wh.catalog.state().tables:
        wh.drop_table("streamed")
    # So small that a handful of batches is a backlog which the QT has to wait for.
    wh.create_table("streamed", "k int, s string", key=["k"], settings={"max_query_deltas": 2})
    return Source(wh, spark, tmp_path)


def test_every_batch_arrives_and_a_backlog_never_blocks(source: Source, wh: Warehouse) -> None:
    for _ in range(4):
        source.drop()
    source.run("plain")
    assert len(wh.deltas("streamed")) == 4, "nothing was maintained, everything was taken"
    source.drop()
    source.run("plain")
    assert len(wh.deltas("streamed")) == 5
    wh.maintain()
    assert wh.sql("SELECT count(*) AS n, count(DISTINCT k) AS d FROM streamed").rows() == [{"n": 50, "d": 50}]


def test_a_batch_replayed_after_a_crash_changes_nothing(source: Source, wh: Warehouse) -> None:
    for _ in range(2):
        source.drop()
    source.run("crashing")
    version = wh.catalog.version()
    # What is on disk when the process dies after our commit and before Spark's.
    last = source.committed()[-1]
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    source.run("crashing")
    assert wh.catalog.version() == version
    assert len(wh.deltas("streamed")) == 2
    source.drop()
    source.run("crashing")
    wh.maintain()
    assert wh.sql("SELECT count(*) AS n, count(DISTINCT k) AS d FROM streamed").rows() == [{"n": 30, "d": 30}]


def test_a_bad_batch_stops_the_stream_and_leaves_what_came_before(source: Source, wh: Warehouse) -> None:
    source.drop()
    source.run("strict")
    pq.write_table(pa.table({"k": pa.array([None], pa.int32()), "s": ["x"]}), source.folder / "in" / "bad.parquet")
    with pytest.raises(Exception, match="null in key column 'k'"):
        source.run("strict")
    assert len(wh.deltas("streamed")) == 1
