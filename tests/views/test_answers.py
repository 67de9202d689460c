"""With views or without, a query gives the same rows, names and types; every refusal has its reason (NA-46)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import parquetry
from parquetry.query.compile.plain_select import LocalPlan
from parquetry.warehouse import Warehouse
from tests.views.random_views import DDL, random_query, random_view, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = 250
ON_SPARK = 12
_TABLES = {"appended": "append", "upserted": "upsert"}


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Warehouse, dict[str, Any]]]:
    """Two tables of three batches, the last one hidden from the first half of the views' life, and ten views."""
    rng = random.Random(6)
    views: dict[str, list[str]] = {t: [] for t in _TABLES}
    with parquetry.connect(tmp_path_factory.mktemp("answers") / "wh", spark=spark) as wh:
        for table, model in _TABLES.items():
            wh.create_table(table, DDL, key=["k", "day"], model=model)
        for number in range(2):
            for table in _TABLES:
                wh.ingest(table, rows(rng, 1500), f"batch {number}")
        for table in _TABLES:
            for n in range(5):
                views[table].append(random_view(rng, table, exact=n % 2 == 0, sketches=True))
                wh.create_view(f"{table}_{n}", views[table][-1])
        wh.maintain()
        for table in _TABLES:
            wh.ingest(table, rows(rng, 300), "late")
        wh.maintain()
        yield wh, views


def canonical(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(r)) for r in zip(*(c.to_pylist() for c in table.columns), strict=True))


def same(wh: Warehouse, sql: str, executor: str) -> str | None:
    """Asserts that the answer is the same with views off; the view that gave it."""
    with_views, without = wh.sql(sql, executor=executor), wh.sql(sql, executor=executor, off=["views"])
    got, wanted = with_views.arrow(), without.arrow()
    assert got.schema.names == wanted.schema.names, sql
    assert got.schema.types == wanted.schema.types, sql
    assert canonical(got) == canonical(wanted), f"{sql} by {with_views.stats['view']}"
    if "ORDER BY" in sql:
        assert got.equals(wanted), sql
    assert without.stats["view"] is None
    for d in with_views.plan.decisions:
        if d.rule == "views":
            assert d.why, f"{d.decided} without a reason"
    return with_views.stats["view"]


@pytest.mark.slow
def test_random_queries_give_the_same_answer_with_and_without_views(
    filled: tuple[Warehouse, dict[str, list[str]]],
) -> None:
    wh, views = filled
    rng = random.Random(7)
    answered: dict[str, int] = {}
    locally = on_spark = 0
    for _ in range(QUERIES):
        table = rng.choice(list(_TABLES))
        sql = random_query(rng, table, views[table])
        plan = wh.sql(sql).plan
        local = isinstance(plan.bound.local, LocalPlan) and isinstance(
            wh.sql(sql, off=["views"]).plan.bound.local, LocalPlan
        )
        if local:
            locally += 1
            by = same(wh, sql, "local")
            if by:
                answered[by] = answered.get(by, 0) + 1
        if (not local or rng.random() < 0.05) and on_spark < ON_SPARK:
            on_spark += 1
            same(wh, sql, "spark")
    assert locally > QUERIES * 0.6
    assert sum(answered.values()) > QUERIES * 0.25, f"too few were answered by a view: {answered}"
    assert len(answered) >= 6


def test_a_view_says_why_it_was_chosen_or_not(filled: tuple[Warehouse, dict[str, list[str]]]) -> None:
    wh, _ = filled
    wh.create_view("plain", "SELECT c, g, sum(v) AS s, count(*) AS n FROM appended GROUP BY c, g")
    wh.create_view("coarse", "SELECT c, sum(v) AS s, count(*) AS n FROM appended GROUP BY c")
    wh.maintain()
    told = wh.explain("SELECT c, sum(v) FROM appended GROUP BY c").decisions
    found = {d.decided: d.why for d in told if d.rule == "views"}
    assert "rows to read instead of" in found["chosen: coarse"]
    assert "coarse has" in found["matched, not chosen: plain"]
    missing = wh.explain("SELECT c, sum(w) FROM appended GROUP BY c").decisions
    assert {d.decided: d.why for d in missing}["not matched: coarse"] == "the view keeps no sum(w)"
    finer = {d.decided: d.why for d in wh.explain("SELECT k, sum(v) FROM appended GROUP BY k").decisions}
    assert finer["not matched: coarse"] == "the view does not keep k"
    rows_asked = {d.decided: d.why for d in wh.explain("SELECT k FROM appended").decisions}
    assert rows_asked["the table itself"] == "it returns rows; a view holds groups"
    assert wh.sql("SELECT g, avg(v) FROM appended GROUP BY g").stats["view"] is None, "avg needs count(v)"


def test_what_is_still_being_filled_answers_nothing(filled: tuple[Warehouse, dict[str, list[str]]]) -> None:
    wh, _ = filled
    wh.create_view("young", "SELECT k, max(w) AS mw FROM appended GROUP BY k")
    decided = {d.decided: d.why for d in wh.explain("SELECT k, max(w) FROM appended GROUP BY k").decisions}
    assert decided["not matched: young"] == "it is still being filled"
    with pytest.raises(parquetry.ParquetryError, match="still being filled"):
        wh.sql("SELECT * FROM young")
    wh.maintain()
    assert wh.sql("SELECT k, max(w) FROM appended GROUP BY k").stats["view"] == "young"
    wh.drop_view("young")


def test_the_log_keeps_the_question_and_names_the_view(filled: tuple[Warehouse, dict[str, list[str]]]) -> None:
    wh, _ = filled
    sql = "SELECT c, g, count(*) AS how_many FROM appended GROUP BY c, g"
    wh.sql(sql).arrow()
    logged = wh.queries(1)[0]
    assert logged["sql"] == sql
    assert set(logged["tables"]) >= {"appended", logged["stats"]["view"]}


def test_statements_make_and_drop_views(spark: SparkSession, tmp_path: Path) -> None:
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", DDL, key=["k"])
        wh.sql("CREATE MATERIALIZED VIEW v ORDER BY (g, c) AS SELECT c, g, count(*) AS n FROM t GROUP BY c, g")
        assert wh.views()[0]["key"] == ["g", "c"]
        with pytest.raises(parquetry.ParquetryError, match="view 'v' reads 't'"):
            wh.drop_table("t")
        with pytest.raises(parquetry.ParquetryError, match="is a view"):
            wh.ingest("v", rows(random.Random(1), 3))
        with pytest.raises(parquetry.ParquetryError, match="is a view"):
            wh.add_column("v", "x", "int")
        assert wh.sql("SELECT * FROM v").arrow().num_rows == 0
        assert wh.sql("DROP MATERIALIZED VIEW v").rows() == [{"result": "dropped the view 'v'"}]
        wh.drop_table("t")
