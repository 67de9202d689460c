"""Plans are remembered: only for the version that they were made at, and without holding it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow as pa
import pytest

import parquetry
from parquetry.query import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from parquetry.warehouse import Warehouse

QUERY = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE k >= 2"


@pytest.fixture
def wh(tmp_path: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with parquetry.connect(tmp_path / "warehouse", spark=spark) as opened:
        opened.create_table("t", "k int, v bigint", key=["k"])
        _add(opened, [1, 2, 3])
        yield opened


def _add(wh: Warehouse, keys: list[int]) -> None:
    wh.ingest("t", pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys, pa.int64())}))
    wh.maintain()


def test_the_same_text_is_planned_once_for_each_version_and_set_of_rules(wh: Warehouse) -> None:
    with mock.patch.object(engine, "bind", wraps=engine.bind) as bind:
        assert [wh.sql(QUERY, executor="local").rows() for _ in range(3)] == [[{"n": 2, "v": 5}]] * 3
        assert bind.call_count == 1
        wh.sql(QUERY, executor="local", off=["prune_minmax"]).rows()
        assert bind.call_count == 2
        _add(wh, [4])
        assert wh.sql(QUERY, executor="local").rows() == [{"n": 3, "v": 9}]
        assert bind.call_count == 3


def test_a_remembered_plan_holds_no_snapshot(wh: Warehouse) -> None:
    result = wh.sql(QUERY, executor="local")
    held = weakref.ref(result.plan.snapshot)
    assert result.rows()
    wh._engine.snapshots.move()
    del result
    gc.collect()
    assert held() is None
    assert wh.sql(QUERY, executor="local").rows() == [{"n": 2, "v": 5}]
