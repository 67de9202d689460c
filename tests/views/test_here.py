"""A small refresh makes in the process what Spark would make, step by step."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquetry
from parquetry.storage.row_group_numbers import ROW_GROUP
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: dict[str, dict[str, Any]] = {
    "a": {"model": "append"},
    "u": {"model": "upsert"},
    "g": {"model": "aggregate", "values": {"n": "sum", "x": "max", "d": "sum", "s": "replace", "day": "min"}},
}
COLUMNS = "k int, n bigint, x double, d decimal(12,2), s string, day date"
VIEWS = {
    "plain": "SELECT s, sum(n) AS n, count(*) AS c, min(x) AS lo, max(day) AS hi FROM a GROUP BY s",
    "filtered": "SELECT s, sum(d) AS d, avg(n) AS m, count(x) AS c FROM a WHERE k < 300 AND day IS NOT NULL GROUP BY s",
    "computed": "SELECT k % 7 AS r, upper(s) AS t, sum(n * 2) AS n, avg(d) AS d FROM a GROUP BY k % 7, upper(s)",
    "by_year": "SELECT year(day) AS y, CASE WHEN n > 5000 THEN 'large' ELSE 'small' END AS size, count(*) AS c FROM a "
    "GROUP BY year(day), CASE WHEN n > 5000 THEN 'large' ELSE 'small' END",
    "distinct_groups": "SELECT s, day FROM a GROUP BY s, day",
    "retracted": "SELECT s, sum(n) AS n, count(*) AS c, avg(d) AS d FROM u GROUP BY s",
    "recomputed": "SELECT s, max(n) AS hi, min(day) AS lo, avg(x) AS x FROM u GROUP BY s",
    "over_sums": "SELECT s, sum(n) AS n FROM g GROUP BY s",
    "joined": "SELECT a.s, sum(a.n) AS n, count(*) AS c FROM a JOIN u ON a.k = u.k GROUP BY a.s",
    "joined_most": "SELECT u.s, max(a.n) AS n FROM a JOIN u ON a.k = u.k WHERE u.n > 100 GROUP BY u.s",
}
HERE = set(VIEWS)


@pytest.fixture(scope="module")
def pair(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same tables and views twice: one warehouse writes in the process, the other on Spark."""
    folder = tmp_path_factory.mktemp("pair")
    opened = [parquetry.connect(folder / name, spark=spark) for name in ("here", "spark")]
    for wh, settings in zip(opened, ({}, {"in_process_bytes": 0}), strict=True):
        for name, how in TABLES.items():
            wh.create_table(name, COLUMNS, key=["k"], **how)
        for name, definition in VIEWS.items():
            wh.create_view(name, definition, settings=settings)
    yield opened
    for wh in opened:
        wh.close()


def batch(number: int, rows: int = 300) -> pa.Table:
    draw = random.Random(number)
    days = [None, "2024-02-29", "1999-12-31", "2024-03-01"]
    table = pa.table(
        {
            "k": pa.array([draw.randrange(400) for _ in range(rows)], pa.int32()),
            "n": [draw.choice([None, draw.randrange(10_000)]) for _ in range(rows)],
            "x": [draw.choice([None, 0.5, -0.25, 8.0, 1024.0]) for _ in range(rows)],
            "d": pa.array([draw.choice([None, draw.randrange(10**6)]) for _ in range(rows)], pa.int64()),
            "s": [draw.choice([None, "", "a", "b", "long text"]) for _ in range(rows)],
            "day": [draw.choice(days) for _ in range(rows)],
        }
    )
    return table.set_column(3, "d", table["d"].cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2))).set_column(
        5, "day", table["day"].cast(pa.date32())
    )


def stored(wh: Warehouse, view: str) -> Counter[str]:
    """Every row that the view's deltas hold, with the delta's timestamps."""
    found: Counter[str] = Counter()
    for delta in wh.catalog.state().table(view).deltas:
        for file in delta.files:
            for row in pq.read_table(wh.store.url(file.path)).drop_columns([ROW_GROUP]).to_pylist():
                found[repr((delta.t_lo, delta.t_hi, delta.level, row))] += 1
    return found


def test_every_step_is_the_same(pair: list[Warehouse]) -> None:
    for number in range(3):
        for i, table in enumerate(TABLES):
            for wh in pair:
                wh.ingest(table, batch(10 * number + i), label=str(number))
        for wh in pair:
            wh.maintain()
        for view in VIEWS:
            assert stored(pair[0], view) == stored(pair[1], view), (view, number)
    for view, definition in VIEWS.items():
        shown, asked = (
            Counter(map(repr, pair[0].sql(text, off=["views"], executor="local").rows()))
            for text in (f"SELECT * FROM {view}", definition)
        )
        assert shown == asked, view
    assert pair[0].verify() == []


def test_they_were_made_without_spark(pair: list[Warehouse], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from parquetry.views.refresh import RefreshWork

    asked: list[str] = []

    def noted(work: RefreshWork, *_: Any, **__: Any) -> Any:
        asked.append(work.view.name)
        raise AssertionError("Spark was asked")

    monkeypatch.setattr(RefreshWork, "shuffled", noted)
    for i, table in enumerate(TABLES):
        pair[0].ingest(table, batch(100 + i))
    pair[0].maintain()
    assert not asked


def test_what_duckdb_stops_at_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", "k int, s string", key=["k"])
        wh.create_view("v", "SELECT upper(s) AS u, count(*) AS n FROM t GROUP BY upper(s)")
        wh.ingest("t", pa.table({"k": pa.array([1, 2, 3], pa.int32()), "s": ["straße", "STRASSE", "ǆ"]}))
        wh.maintain()
        asked = "SELECT upper(s) AS u, count(*) AS n FROM t GROUP BY upper(s)"
        shown = Counter(map(repr, wh.sql("SELECT * FROM v", executor="local").rows()))
        assert shown == Counter(map(repr, wh.sql(asked, executor="spark", off=["views"]).rows()))
