"""Whichever way a small delta is taken into a view, the view stores the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.views import refresh
from parquetry.views.direct import direct_reader
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "k int, e int, a int, `b c` string, d date, at timestamp, n bigint, small smallint, money decimal(9,2), x double"
DATA = pa.table(
    {
        "k": pa.array([1, 1, 2, 3, 3, 3], pa.int32()),
        "e": pa.array([6, 5, 4, 3, 2, 1], pa.int32()),
        "a": pa.array([1, 1, 2, None, 2, 1], pa.int32()),
        "b c": pa.array(["é", None, "z", "z", "", "é"]),
        "d": pa.array([date(2026, 1, 1), None, date(1969, 12, 31), date(2026, 1, 1), date(2026, 1, 2), None]),
        "at": pa.array([datetime(2026, 1, 1, 5, tzinfo=UTC)] * 5 + [None], pa.timestamp("us", "UTC")),
        "n": pa.array([2**62, None, -5, 2**53 + 1, 7, -1], pa.int64()),
        "small": pa.array([32_767, 1, None, -32_768, 4, 32_767], pa.int16()),
        "money": pa.array(
            [Decimal("1.10"), None, Decimal("-9.99"), Decimal("0.01"), Decimal("9999999.99"), None], pa.decimal128(9, 2)
        ),
        "x": pa.array([float("nan"), -0.0, 0.5, None, float("inf"), 1.0]),
    }
)

VALUES = (
    "sum(n) AS n, avg(small) AS small, avg(n) AS mean, sum(money) AS money, avg(money) AS cost, count(*) AS c, "
    "count(x) AS xs, min(x) AS low, max(x) AS high, max(at) AS latest, min(`b c`) AS first"
)
DIRECT = {
    "prefix": f"SELECT k, {VALUES} FROM t GROUP BY k",
    "shared": f"SELECT K, a, d, {VALUES} FROM t GROUP BY K, a, d",
    "other": f"SELECT at, `b c`, {VALUES} FROM t GROUP BY at, `b c`",
    "renamed": "SELECT `b c` AS what, d AS a FROM t GROUP BY `b c`, d",
}
ON_SPARK = {
    "filtered": "SELECT a, count(*) AS c FROM t WHERE n > 0 GROUP BY a",
    "computed": "SELECT a + 1 AS b, count(*) AS c FROM t GROUP BY a + 1",
    "summed": "SELECT a, sum(n - 1) AS c FROM t GROUP BY a",
    "floats": "SELECT x, count(*) AS c FROM t GROUP BY x",
    "distinct": "SELECT a, approx_count_distinct(n) AS c FROM t GROUP BY a",
}

BY_TASKS = {"in_process_bytes": 0}  # which would not need this reader


@pytest.fixture
def filled(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", DDL, key=["k", "e"])
        wh.ingest("t", DATA, "all")
        yield wh


def stored(wh: Warehouse, definition: str) -> pa.Table:
    """The rows that a new view of this definition stores."""
    wh.create_view("v", definition, settings=BY_TASKS)
    wh.maintain()
    found = wh.sql("SELECT * FROM v", executor="local").arrow()
    wh.drop_view("v")
    return found


@pytest.mark.parametrize("definition", DIRECT.values(), ids=list(DIRECT))
def test_all_ways_store_the_same(filled: Warehouse, definition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.create_view("asked", definition, settings=BY_TASKS)
    state = filled.catalog.state()
    table = state.table("t")
    assert direct_reader(filled.store, state.table("asked"), table, table.deltas) is not None
    filled.drop_view("asked")
    direct = stored(filled, definition)
    monkeypatch.setattr(refresh, "direct_reader", lambda *_: None)
    by_spark = stored(filled, definition)
    monkeypatch.setattr(refresh, "AT_ONCE_ROWS", 0)
    streamed = stored(filled, definition)
    assert direct.num_rows
    assert repr(direct.to_pylist()) == repr(by_spark.to_pylist()) == repr(streamed.to_pylist())
    assert direct.schema == by_spark.schema


@pytest.mark.parametrize("definition", ON_SPARK.values(), ids=list(ON_SPARK))
def test_what_is_computed_is_left_to_spark(filled: Warehouse, definition: str) -> None:
    filled.create_view("v", definition, settings=BY_TASKS)
    state = filled.catalog.state()
    table = state.table("t")
    assert direct_reader(filled.store, state.table("v"), table, table.deltas) is None


def test_a_delta_from_before_a_column_came_has_nulls_there(filled: Warehouse) -> None:
    filled.add_column("t", "late", "int")
    filled.create_view("v", "SELECT a, sum(late) AS late, count(*) AS c FROM t GROUP BY a", settings=BY_TASKS)
    state = filled.catalog.state()
    table = state.table("t")
    assert direct_reader(filled.store, state.table("v"), table, table.deltas) is not None
    filled.maintain()
    found = filled.sql("SELECT * FROM v", executor="local").arrow().to_pylist()
    assert sorted(r["c"] for r in found) == [1, 2, 3]
    assert {r["late"] for r in found} == {None}


@pytest.mark.parametrize(("groups", "files"), [(7, 1), (1_000, 3)])
def test_a_large_delta_is_written_in_as_few_files_as_its_groups_need(
    groups: int, files: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("AT_ONCE_ROWS", 0), ("_TASK_BYTES", 1_000), ("_TASK_ROWS", 400)):
        monkeypatch.setattr(refresh, name, value)
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", "k int, g int", key=["k"])
        keys = range(4_000)
        rows = {"k": pa.array(keys, pa.int32()), "g": pa.array([k % groups for k in keys], pa.int32())}
        wh.ingest("t", pa.table(rows), tasks=2)
        wh.create_view("v", "SELECT g, count(*) AS n, sum(k) AS k FROM t GROUP BY g", settings=BY_TASKS)
        wh.maintain()
        (delta,) = wh.catalog.state().table("v").deltas
        assert len(delta.files) == files
        found = wh.sql("SELECT g, n, k FROM v ORDER BY g", executor="local").rows()
        parts = [range(g, 4_000, groups) for g in range(groups)]
        assert found == [{"g": g, "n": len(part), "k": sum(part)} for g, part in enumerate(parts)]
    assert not spark.sparkContext._jsc.getPersistentRDDs(), "nothing stays in memory"
