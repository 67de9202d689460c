"""Rewriting to views, checked in this process alone: the same rows, names and types with views and without."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

import parquetry
from parquetry.query.local_plan import LocalPlan
from parquetry.warehouse import Warehouse
from tests.views import without_spark
from tests.views.random_views import DDL, random_query, random_view, rows

QUERIES = 500
VIEWS = 8


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Warehouse, list[str]]]:
    rng = random.Random(11)
    with parquetry.connect(tmp_path_factory.mktemp("match") / "wh") as wh:
        wh.create_table("t", DDL, key=["k", "day"])
        for n in range(2):
            without_spark.ingest(wh, "t", rows(rng, 1_500), f"batch {n}")
        without_spark.publish(wh)
        hows = [("merge", "retract", "replace")[n % 3] for n in range(VIEWS)]
        views = [random_view(rng, "t", exact=how == "retract") for how in hows]
        for n, (sql, how) in enumerate(zip(views, hows, strict=True)):
            without_spark.create_view(wh, f"v{n}", sql, how)
        without_spark.create_view(wh, "plain", "SELECT c, g, count(*) AS n FROM t GROUP BY c, g")
        without_spark.publish(wh)
        assert len(wh.deltas("plain")) == 2
        yield wh, views


def canonical(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(r)) for r in zip(*(c.to_pylist() for c in table.columns), strict=True))


def test_a_view_read_by_its_name_is_its_definition(filled: tuple[Warehouse, list[str]]) -> None:
    wh, views = filled
    for n, sql in enumerate(views):
        got = wh.sql(f"SELECT * FROM v{n}", executor="local").arrow()
        wanted = wh.sql(sql, executor="local", off=["views"]).arrow()
        assert got.schema.equals(wanted.schema)
        assert canonical(got) == canonical(wanted)


def test_random_queries_answer_the_same_with_and_without_views(filled: tuple[Warehouse, list[str]]) -> None:
    wh, views = filled
    rng = random.Random(12)
    answered: dict[str, int] = {}
    asked = 0
    while asked < QUERIES:
        sql = random_query(rng, "t", views)
        plan, plain = wh.sql(sql).plan, wh.sql(sql, off=["views"]).plan
        if not isinstance(plain.bound.local, LocalPlan):
            continue
        asked += 1
        assert isinstance(plan.bound.local, LocalPlan), f"{sql}: {plan.bound.local}"
        got, wanted = wh.sql(sql, executor="local"), wh.sql(sql, executor="local", off=["views"]).arrow()
        assert got.arrow().schema.equals(wanted.schema), sql
        assert canonical(got.arrow()) == canonical(wanted), f"{sql} by {plan.view}: {plan.bound.sql}"
        if "ORDER BY" in sql:
            assert got.arrow().equals(wanted), sql
        told = [d for d in plan.decisions if d.rule == "views"]
        assert told
        assert all(d.why for d in told), "every choice and refusal has its reason"
        if plan.view:
            answered[plan.view] = answered.get(plan.view, 0) + 1
            assert got.stats["view"] == plan.view
    assert sum(answered.values()) > QUERIES / 4, answered
    assert len(answered) >= VIEWS // 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT c, count(*) AS g FROM t GROUP BY c ORDER BY g DESC, c",
        "SELECT c, count(*) AS g FROM t GROUP BY c ORDER BY 0 - g, t.c LIMIT 2",
        "SELECT g, c AS c, count(*) AS n FROM t GROUP BY g, c ORDER BY c DESC, g",
    ],
)
def test_order_by_looks_among_outputs_first(filled: tuple[Warehouse, list[str]], sql: str) -> None:
    wh, _ = filled
    assert wh.sql(sql).plan.view is not None
    assert wh.sql(sql, executor="local").arrow().equals(wh.sql(sql, executor="local", off=["views"]).arrow())


def test_a_name_with_two_meanings_in_having_is_left_to_the_table(filled: tuple[Warehouse, list[str]]) -> None:
    wh, _ = filled
    for sql in (
        "SELECT c, count(*) AS g FROM t GROUP BY c HAVING g > 2",
        "SELECT c, count(*) AS g FROM t GROUP BY c ORDER BY sum(g)",
    ):
        told = [d.why for d in wh.sql(sql).plan.decisions if d.rule == "views"]
        assert told == ["the name g is both a column and an alias"]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT g, stddev(v) AS s FROM t GROUP BY g", "cannot be made"),
        ("SELECT c, try_sum(g) AS s FROM t GROUP BY c", "not known to be a function|does not keep"),
        ("SELECT g, stddev(v) FROM t GROUP BY g", "cannot be made"),
        ("SELECT g, count(*) FROM t GROUP BY ROLLUP (g)", "ROLLUP"),
        ("SELECT DISTINCT g FROM t ORDER BY g", "orders DISTINCT"),
        ("SELECT k, v FROM t", "returns rows"),
        ("SELECT g, sum(v) OVER () FROM t", "window"),
    ],
)
def test_what_no_view_answers_has_its_reason(filled: tuple[Warehouse, list[str]], sql: str, why: str) -> None:
    wh, _ = filled
    plan = wh.sql(sql).plan
    assert plan.view is None
    told = [d.why for d in plan.decisions if d.rule == "views"]
    assert told
    assert any(re.search(why, t) for t in told), told
