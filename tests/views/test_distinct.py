"""approx_count_distinct kept in views: Spark's own answer from any view, roll-up and executor."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import parquetry
from parquetry.warehouse import Warehouse
from tests.views.random_views import DDL, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT = "approx_count_distinct(v) AS dv, approx_count_distinct(w) AS dw, approx_count_distinct(f) AS df, count(*) AS n"
VIEWS = {
    "first": f"SELECT k, {_KEPT} FROM appended GROUP BY k",
    "second": f"SELECT k, c, {_KEPT} FROM appended GROUP BY k, c",
    "third": f"SELECT g, month(day) AS m, {_KEPT}, approx_count_distinct(d + 1) AS dd FROM appended GROUP BY g, m",
    "changing": f"SELECT g, c, {_KEPT}, approx_count_distinct(day) AS dday FROM upserted WHERE k < 15 GROUP BY g, c",
}
QUERIES = [
    ("SELECT k, approx_count_distinct(v) FROM appended GROUP BY k", "first"),
    ("SELECT approx_count_distinct(w) AS dw, count(*) AS n FROM appended", "third"),
    ("SELECT c, approx_count_distinct(v) AS x, approx_count_distinct(f) FROM appended GROUP BY c", "second"),
    (
        "SELECT k, approx_count_distinct(W) + 1 AS x FROM appended WHERE c = 'a' GROUP BY k HAVING count(*) > 3",
        "second",
    ),
    ("SELECT g, approx_count_distinct(d + 1) AS x FROM appended GROUP BY g ORDER BY x DESC, g LIMIT 2", "third"),
    ("SELECT month(day) AS m, approx_count_distinct(g) AS x FROM appended GROUP BY month(day)", "third"),
    ("SELECT c, approx_count_distinct(w) AS x FROM upserted WHERE k < 15 GROUP BY c", "changing"),
    ("SELECT approx_count_distinct(day) AS x FROM upserted WHERE k < 15 AND g > 1", "changing"),
]


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Two tables whose batches reach the views one by one, some merged before and some after."""
    rng = random.Random(3)
    with parquetry.connect(tmp_path_factory.mktemp("distinct") / "wh", spark=spark) as wh:
        for table, model in (("appended", "append"), ("upserted", "upsert")):
            wh.create_table(table, DDL, key=["k", "day"], model=model, settings={"max_query_deltas": 3})
        for name, sql in VIEWS.items():
            wh.create_view(name, sql, settings={"max_query_deltas": 3, "compaction_width": 3})
        for number, size in enumerate((2_000, 300, 50, 700)):
            for table in ("appended", "upserted"):
                wh.ingest(table, rows(rng, size), f"batch {number}", tasks=1)
            wh.maintain()
        yield wh


def answer(wh: Warehouse, sql: str, executor: str, *off: str) -> list[tuple[object, ...]]:
    table = wh.sql(sql, executor=executor, off=off).arrow()
    return [tuple(table.schema.names), *sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)]


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shows_what_spark_counts(filled: Warehouse, name: str) -> None:
    wanted = answer(filled, VIEWS[name], "spark", "views")
    assert answer(filled, f"SELECT * FROM {name}", "local") == wanted
    assert answer(filled, f"SELECT * FROM {name}", "spark") == wanted


@pytest.mark.parametrize(("sql", "view"), QUERIES)
def test_queries_give_sparks_answer_from_a_view(filled: Warehouse, sql: str, view: str) -> None:
    plan = filled.sql(sql).plan
    assert plan.view == view, [d for d in plan.decisions if d.rule == "views"]
    wanted = answer(filled, sql, "spark", "views")
    assert answer(filled, sql, "spark") == wanted
    if "approx_count_distinct(g)" not in sql:  # no sketch of it is kept: Spark counts the groups
        assert plan.executor == "local"
        assert answer(filled, sql, "local") == wanted


def test_another_precision_is_not_kept(filled: Warehouse) -> None:
    told = filled.explain("SELECT k, approx_count_distinct(v, 0.01) AS x FROM appended GROUP BY k").decisions
    why = {d.decided: d.why for d in told if d.rule == "views"}
    assert "default precision" in why["not matched: first"]
    with pytest.raises(parquetry.ParquetryError, match="default precision"):
        filled.create_view("fine", "SELECT k, approx_count_distinct(v, 0.01) AS x FROM appended GROUP BY k")


def test_a_view_over_a_view_counts_its_groups(filled: Warehouse) -> None:
    sql = "SELECT c, approx_count_distinct(k) AS customers, max(dv) AS most FROM second GROUP BY c"
    filled.create_view("above", sql)
    filled.maintain()
    assert answer(filled, "SELECT * FROM above", "local") == answer(filled, sql, "spark", "views")
