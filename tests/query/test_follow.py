"""What others commit: a moved QT is seen at once, the rest when memory is ready for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.model.state import AdvanceQT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from parquetry.warehouse import Warehouse

QUERY = "SELECT k, sum(v) AS v FROM t GROUP BY k"


@pytest.fixture
def pair(tmp_path: Path, spark: SparkSession) -> Iterator[tuple[Warehouse, Warehouse]]:
    """Two connections, as of two processes: one that changes the warehouse and one that asks."""
    with (
        parquetry.connect(tmp_path / "warehouse", spark=spark) as writer,
        parquetry.connect(tmp_path / "warehouse", spark=spark) as reader,
    ):
        writer.create_table("t", "k int, v bigint", key=["k"], settings={"compaction_width": 2, "max_query_deltas": 8})
        _add(writer, 1)
        writer.maintain()
        yield writer, reader


def _add(wh: Warehouse, v: int) -> None:
    wh.ingest("t", pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([v], pa.int64())}))


def _ask(wh: Warehouse) -> tuple[int, int]:
    """The answer, and the version that it was read at."""
    result = wh.sql(QUERY, executor="local")
    return result.rows()[0]["v"], result.plan.snapshot.state.version


def test_a_moved_qt_is_seen_at_once_and_hidden_commits_are_not_looked_at(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    _, version = _ask(reader)
    reader._engine.follower.close()  # only what a query itself sees
    _add(writer, 10)
    assert _ask(reader) == (1, version), "it has nothing to look at: not even the catalog's version moves for it"
    writer.maintain()
    answer, newer = _ask(reader)
    assert (answer, newer > version) == (11, True)


def test_compaction_by_others_is_shown_when_memory_is_ready_for_it(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    _add(writer, 10)
    state = writer.catalog.state()
    writer.catalog.commit([AdvanceQT({state.table("t").table_id: state.clock}, state.clock)], kind="advance qt")
    for _ in range(3):
        assert _ask(reader)[0] == 11
    hot = reader._engine._local.hot
    hot.wait()
    reader._engine.follower.look()
    _, before = _ask(reader)
    assert len(hot._copies) == 2
    writer.maintain()
    assert len(writer.catalog.state().table("t").deltas) == 1
    end = time.monotonic() + 20
    while _ask(reader)[1] == before and time.monotonic() < end:  # queries make the follower look
        time.sleep(0.01)
    result = reader.sql(QUERY, executor="local")
    assert result.rows()[0]["v"] == 11
    assert result.stats["deltas"] == 1
    (delta,) = writer.catalog.state().table("t").deltas
    reader._engine.follower.look()
    assert set(hot._copies) == {f.path for f in delta.files}, "copied before it was shown; the old ones left"
