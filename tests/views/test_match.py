"""Rewriting to views, checked in this process alone: the same rows, names and types with views and without."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

import parquetry
from parquetry.query.compile.plain_select import LocalPlan
from parquetry.warehouse import Warehouse
from tests.views import without_spark
from tests.views.random_views import DDL, FEATURES, random_query, random_view, rows

QUERIES = 500
SETS = 4
VIEWS = 6
TABLES = ["t", *(f"t{n}" for n in range(1, SETS))]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Warehouse, list[list[str]]]]:
    """The same rows in a few tables, with other random views over each; and one that some tests count on."""
    rng = random.Random(11)
    batches = [rows(rng, 1_000), rows(rng, 1_000)]
    with parquetry.connect(tmp_path_factory.mktemp("match") / "wh") as wh:
        for table in TABLES:
            wh.create_table(table, DDL, key=["k", "day"])
            for n, batch in enumerate(batches):
                without_spark.ingest(wh, table, batch, f"batch {n}")
        without_spark.publish(wh)
        views = []
        for table in TABLES:
            hows = [("merge", "retract", "replace")[n % 3] for n in range(VIEWS)]
            views.append([random_view(rng, table, exact=how == "retract") for how in hows])
            for n, (sql, how) in enumerate(zip(views[-1], hows, strict=True)):
                without_spark.create_view(wh, f"{table}_{n}", sql, how)
        without_spark.create_view(wh, "plain", "SELECT c, g, count(*) AS n FROM t GROUP BY c, g")
        without_spark.publish(wh)
        assert len(wh.deltas("plain")) == 2
        yield wh, views


def canonical(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(r)) for r in zip(*(c.to_pylist() for c in table.columns), strict=True))


def test_a_view_read_by_its_name_is_its_definition(filled: tuple[Warehouse, list[list[str]]]) -> None:
    wh, views = filled
    for table, sqls in zip(TABLES, views, strict=True):
        for n, sql in enumerate(sqls):
            got = wh.sql(f"SELECT * FROM {table}_{n}", executor="local").arrow()
            wanted = wh.sql(sql, executor="local", off=["views"]).arrow()
            assert got.schema.equals(wanted.schema)
            assert canonical(got) == canonical(wanted)


def test_random_queries_answer_the_same_with_and_without_views(
    filled: tuple[Warehouse, list[list[str]]],
) -> None:
    wh, views = filled
    rng = random.Random(12)
    answered: Counter[str] = Counter()
    features: Counter[str] = Counter()
    refused = asked = 0
    while asked < QUERIES:
        number = asked % SETS
        sql = random_query(rng, TABLES[number], views[number])
        plain = wh.sql(sql, off=["views"])
        if not isinstance(plain.plan.bound.local, LocalPlan):
            continue
        asked += 1
        result = wh.sql(sql, executor="local")
        assert isinstance(result.plan.bound.local, LocalPlan), f"{sql}: {result.plan.bound.local}"
        told = [d for d in result.plan.decisions if d.rule == "views"]
        assert told
        assert all(d.why for d in told), "every choice and refusal has its reason"
        view = result.plan.view
        if view is None:
            refused += 1
            continue  # the same plan
        got, wanted = result.arrow(), wh.sql(sql, executor="local", off=["views"]).arrow()
        assert got.schema.equals(wanted.schema), sql
        assert canonical(got) == canonical(wanted), f"{sql} by {view}: {result.plan.bound.sql}"
        if "ORDER BY" in sql:
            assert got.equals(wanted), sql
        answered[view] += 1
        assert result.stats["view"] == view
        features.update(name for name, pattern in FEATURES.items() if re.search(pattern, sql))
    print(f"{asked} asked, {asked - refused} answered by {len(answered)} views: {dict(features)}")  # with pytest -s
    assert refused < QUERIES / 2, answered
    assert len(answered) >= SETS * VIEWS // 2
    assert all(features[name] >= 5 for name in FEATURES), features


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT c, count(*) AS g FROM t GROUP BY c ORDER BY g DESC, c",
        "SELECT c, count(*) AS g FROM t GROUP BY c ORDER BY 0 - g, t.c LIMIT 2",
        "SELECT g, c AS c, count(*) AS n FROM t GROUP BY g, c ORDER BY c DESC, g",
    ],
)
def test_order_by_looks_among_outputs_first(filled: tuple[Warehouse, list[list[str]]], sql: str) -> None:
    wh, _ = filled
    assert wh.sql(sql).plan.view is not None
    assert wh.sql(sql, executor="local").arrow().equals(wh.sql(sql, executor="local", off=["views"]).arrow())


def test_a_name_with_two_meanings_in_having_is_left_to_the_table(filled: tuple[Warehouse, list[list[str]]]) -> None:
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
def test_what_no_view_answers_has_its_reason(filled: tuple[Warehouse, list[list[str]]], sql: str, why: str) -> None:
    wh, _ = filled
    plan = wh.sql(sql).plan
    assert plan.view is None
    told = [d.why for d in plan.decisions if d.rule == "views"]
    assert told
    assert any(re.search(why, t) for t in told), told
