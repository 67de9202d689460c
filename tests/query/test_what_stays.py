"""What a connection remembers does not grow with the queries it has answered and the commits it has seen."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.model.state import ReplaceDeltas
from parquetry.query.local import admit_rows
from parquetry.warehouse import Warehouse
from tests.views.without_spark import ingest, publish, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE k >= 0"


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[Warehouse]:
    with parquetry.connect(tmp_path / "wh") as opened:
        opened.create_table("t", "k bigint not null, v bigint", key=["k"], model="append")
        yield opened


def rows(start: int, n: int = 10) -> pa.Table:
    return pa.table({"k": pa.array(range(start, start + n), pa.int64()), "v": pa.array(range(n), pa.int64())})


def test_versions_that_nobody_reads_are_forgotten(wh: Warehouse) -> None:
    snapshots = wh._engine.snapshots
    for i in range(20):
        ingest(wh, "t", rows(10 * i), f"batch {i}")
        publish(wh)
        assert wh.sql(QUERY, executor="local").rows()[0]["n"] == 10 * (i + 1)
    held = wh.sql(QUERY, executor="local")
    wh._engine._planned = type(wh._engine._planned)()
    gc.collect()
    assert {held.plan.snapshot.state.version} == {s.state.version for s in snapshots._in_use}
    assert len(snapshots._in_use) == 1


def test_merges_of_files_that_are_gone_are_forgotten(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    held = wh._engine._local.held
    monkeypatch.setattr(admit_rows, "_MOST_BYTES", 3 * 160 + 100)  # room for copies, not for what is merged of them
    for i in range(3):
        ingest(wh, "t", rows(10 * i), f"batch {i}")
        publish(wh)
        for _ in range(4):
            wh.sql(QUERY, executor="local").rows()
            held.wait()
    assert held._merging
    state = wh.catalog.state()
    t = state.table("t")
    one = write(wh, t, rows(0, 30), (t.deltas[0].t_lo, t.deltas[-1].t_hi))
    wh.catalog.commit([ReplaceDeltas(t.table_id, tuple(d.delta_id for d in t.deltas), one)], kind="compact")
    held.forget(wh.catalog.state())
    assert not held._merging
    assert wh.sql(QUERY, executor="local").rows()[0]["n"] == 30


def test_split_queries_leave_nothing_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.accumulators import _accumulatorRegistry

    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", "k bigint not null, v bigint", key=["k"], model="append", settings={"row_group_rows": 20})
        ingest(wh, "t", rows(0, 200), "all")
        publish(wh)
        ask = lambda: wh.sql(QUERY, splits=3)  # noqa: E731
        assert ask().rows() == [{"n": 200, "v": sum(range(200))}]
        gc.collect()
        folder = spark.sparkContext._temp_dir
        assert folder is not None
        before = len(_accumulatorRegistry), len(os.listdir(folder))
        for _ in range(3):
            found = ask()
            assert found.rows() == [{"n": 200, "v": sum(range(200))}]
            assert found.stats["rows_scanned"] == 200
            assert found.spark().collect()[0]["n"] == 200
        gc.collect()
        assert (len(_accumulatorRegistry), len(os.listdir(folder))) == before
        assert not wh._engine._workers._reports_in(spark.sparkContext).value
