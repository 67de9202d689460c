"""Frames, and frames made from them, keep their files while they live; a result only until its rows are there."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with parquetry.connect(tmp_path / "wh", spark=spark) as made:
        made.create_table("t", "k int", key=["k"], settings={"compaction_width": 2})
        for label in "ab":
            made.ingest("t", pa.table({"k": pa.array(range(3), pa.int32())}), label=label)
        made.maintain()
        yield made


def replace_all(wh: Warehouse) -> None:
    wh.ingest("t", pa.table({"k": pa.array([9], pa.int32())}), label="more")
    wh.maintain()
    wh.relayout("t", "key")


def vacuumed(wh: Warehouse) -> int:
    """The deltas that go once Spark has forgotten the frames, which takes it some seconds."""
    deltas, end = 0, time.monotonic() + 60
    while time.monotonic() < end:
        done = wh.vacuum(grace_s=0)
        deltas += done.deltas
        if done.held_by is None:
            return deltas
        time.sleep(0.5)
    raise AssertionError(f"still held by {done.held_by}")


def test_a_joined_frame_keeps_the_files_of_both(wh: Warehouse) -> None:
    a = wh.table("t")
    joined = a.join(wh.table("t").withColumnRenamed("k", "j"), a.k == 1)
    counted = joined.groupBy().count()
    del a, joined
    gc.collect()
    replace_all(wh)
    assert wh.vacuum(grace_s=0).held_by is not None
    assert counted.collect()[0][0] == 12
    del counted
    assert vacuumed(wh) > 0


def test_a_finished_result_holds_nothing_back(wh: Warehouse) -> None:
    result = wh.sql("SELECT k FROM t WHERE k = 1", executor="local")
    assert len(result.rows()) == 2
    assert result.spark().count() == 2
    replace_all(wh)
    assert vacuumed(wh) > 0
    assert len(result.rows()) == 2
    with pytest.raises(parquetry.ParquetryError, match="vacuumed meanwhile"):
        result.spark()
