"""Queries with joins answered from views: of the same join, or joined with dimensions when the query runs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

import parquetry
from parquetry.query.compile.plain_select import LocalPlan
from parquetry.warehouse import Warehouse
from tests.views import joined_views as joined
from tests.views import without_spark
from tests.views.random_views import rows

QUERIES = 500
HOWS = {"by_shop": "merge", "by_month": "retract", "by_city": "merge", "by_country": "replace"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Warehouse, dict[str, pa.Table]]]:
    rng = random.Random(21)
    data = {t: joined.rows_of(rng, t) for t in ("shops", "cities")}
    parts = [rows(rng, 1_200), rows(rng, 300)]
    data["sales"] = pa.concat_tables(parts)
    with parquetry.connect(tmp_path_factory.mktemp("joins") / "wh") as wh:
        for table in joined.DDLS:
            model = "append" if table == "sales" else "upsert"
            wh.create_table(table, joined.DDLS[table], key=joined.KEYS[table], model=model)
        for table in ("shops", "cities"):
            without_spark.ingest(wh, table, data[table], "all")
        old = data["shops"].slice(3, 4)
        without_spark.ingest(wh, "shops", old, "again")  # two deltas: a dimension merges by key
        for number, part in enumerate(parts):
            without_spark.ingest(wh, "sales", part, f"batch {number}")
        without_spark.publish(wh)
        for name, sql in joined.VIEWS.items():
            joined.create_view(wh, name, sql, HOWS[name])
            joined.fill(wh, name, data, ["true"] if HOWS[name] == "replace" else ["k < 9", "k >= 9"])
        yield wh, data


def canonical(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(r)) for r in zip(*(c.to_pylist() for c in table.columns), strict=True))


def same(wh: Warehouse, data: dict[str, pa.Table], sql: str) -> str | None:
    """Asserts that a view, if there is one, gives what plain tables give; the view."""
    result = wh.sql(sql)
    told = [d for d in result.plan.decisions if d.rule == "views"]
    assert told
    assert all(d.why for d in told), "every choice and refusal has its reason"
    if result.plan.view is None:
        return None
    assert isinstance(result.plan.bound.local, LocalPlan), f"{sql}: {result.plan.bound.local}"
    assert result.plan.executor == "local"
    got = result.arrow()
    wanted = joined.over_arrow(sql, data).rename_columns(got.column_names).cast(got.schema)
    assert canonical(got) == canonical(wanted), f"{sql} by {result.plan.view}: {result.plan.bound.sql}"
    if "ORDER BY" in sql:
        assert got.equals(wanted), sql
    return result.plan.view


def test_random_joins_answer_the_same_from_views_as_from_tables(
    filled: tuple[Warehouse, dict[str, pa.Table]],
) -> None:
    wh, data = filled
    rng = random.Random(22)
    answered: dict[str, int] = {}
    for _ in range(QUERIES):
        sql = joined.random_join(rng)
        by = same(wh, data, sql)
        if by:
            answered[by] = answered.get(by, 0) + 1
    assert sum(answered.values()) > QUERIES / 4, answered
    assert set(answered) == set(joined.VIEWS), answered


@pytest.mark.parametrize(
    ("sql", "view", "tables"),
    [
        ("SELECT s.city, sum(x.v) FROM sales x JOIN shops s ON x.k = s.shop GROUP BY s.city", "by_city", 1),
        ("SELECT size, sum(d) FROM shops, sales WHERE shop = k AND c = 'a' GROUP BY size", "by_shop", 2),
        (
            "SELECT country, count(*) FROM sales JOIN shops ON k = shop JOIN cities t ON t.city = shops.city "
            "GROUP BY country",
            "by_city",
            2,
        ),
        (
            "SELECT t.country, sum(d) AS d FROM sales JOIN shops s ON k = shop JOIN cities t ON t.city = s.city "
            "WHERE v > 0 GROUP BY t.country",
            "by_country",
            1,
        ),
    ],
)
def test_the_view_that_covers_most_of_the_join_answers(
    filled: tuple[Warehouse, dict[str, pa.Table]], sql: str, view: str, tables: int
) -> None:
    wh, data = filled
    plan = wh.sql(sql).plan
    assert plan.view == view, [d for d in plan.decisions if d.rule == "views"]
    assert len(plan.tables) == tables
    assert plan.executor == "local"
    assert same(wh, data, sql) == view


@pytest.mark.parametrize(
    ("sql", "view", "why"),
    [
        ("SELECT size, sum(size) AS s FROM sales JOIN shops ON k = shop GROUP BY size", "by_shop", "joined table"),
        ("SELECT size, sum(w) AS s FROM sales JOIN shops ON k = shop GROUP BY size", "by_shop", "keeps no sum(w)"),
        ("SELECT c, sum(v) AS s FROM sales GROUP BY c", "by_city", "a table that the query does not read"),
        ("SELECT city, sum(v) AS s FROM sales JOIN shops ON v = shop GROUP BY city", "by_city", "rows with k = shop"),
        ("SELECT city, sum(v) AS s FROM sales JOIN shops ON v = shop GROUP BY city", "by_shop", "does not keep v"),
        ("SELECT size, sum(v) AS s FROM sales JOIN shops ON k = shop AND g = size GROUP BY size", "by_shop", "keep g"),
    ],
)
def test_what_a_view_cannot_join_has_its_reason(
    filled: tuple[Warehouse, dict[str, pa.Table]], sql: str, view: str, why: str
) -> None:
    told = {d.decided: d.why for d in filled[0].sql(sql).plan.decisions if d.rule == "views"}
    assert why in told[f"not matched: {view}"], told


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT city, count(*) FROM sales LEFT JOIN shops ON k = shop GROUP BY city", "LEFT join"),
        ("SELECT size, count(*) FROM shops JOIN cities USING (city) JOIN sales ON k = shop GROUP BY size", "USING"),
        ("SELECT a.c, count(*) FROM sales a JOIN sales b ON a.k = b.k GROUP BY a.c", "with itself"),
        ("SELECT c, city FROM sales JOIN shops ON k = shop", "returns rows"),
    ],
)
def test_joins_that_no_view_answers_have_their_reason(
    filled: tuple[Warehouse, dict[str, pa.Table]], sql: str, why: str
) -> None:
    told = [d for d in filled[0].sql(sql).plan.decisions if d.rule == "views"]
    assert [why in d.why for d in told] == [True], told


def test_a_column_that_a_table_gets_later_does_not_make_a_view_ambiguous(
    filled: tuple[Warehouse, dict[str, pa.Table]],
) -> None:
    spec = filled[0].catalog.state().table("by_country").view
    assert spec is not None
    assert {c.argument for c in spec.spec.groups} == {"`cities`.`country`", "`shops`.`size`"}
    assert [s.on for s in spec.spec.sources[1:]] == ["sales.k = shops.shop", "shops.city = cities.city"]
