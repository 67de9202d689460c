"""From the query log to views and back: what is made, what is not made twice, and what is dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

import parquetry
from parquetry.cli import main
from parquetry.views import shapes
from parquetry.workload.lexemes import Lexeme
from parquetry.workload.sql_text import parse_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from parquetry.warehouse import Warehouse

ROWS = 40_000
BY_DAY = "SELECT day, sum(v) AS s FROM t GROUP BY day"
BY_SHOP = "SELECT shop, max(v) AS m FROM t WHERE shop = 3 GROUP BY shop"


@pytest.fixture
def wh(tmp_path: Path, spark: SparkSession) -> Iterator[Warehouse]:
    rng = np.random.default_rng(0)
    with parquetry.connect(tmp_path / "warehouse", spark=spark) as opened:
        opened.create_table("t", "id int, day int, shop int, v bigint", key=["id"])
        columns = {"id": np.arange(ROWS), "day": rng.integers(0, 30, ROWS), "shop": rng.integers(0, 10, ROWS)}
        rows = {n: pa.array(values.astype(np.int32)) for n, values in columns.items()}
        opened.ingest("t", pa.table({**rows, "v": pa.array(rng.integers(0, 99, ROWS))}))
        opened.maintain()
        yield opened


def ask(wh: Warehouse, *queries: str, times: int = 5) -> None:
    for sql in queries * times:
        wh.sql(sql).arrow()


def test_suggestions_answer_the_log_and_are_not_made_twice(wh: Warehouse) -> None:
    plain = sorted(wh.sql(BY_DAY).arrow().to_pylist(), key=str)
    ask(wh, BY_DAY, BY_SHOP)
    found = wh.suggest_views()
    assert found.views
    assert found.drop == ()
    for s in found.views:
        assert s.rows_after < s.rows_before
        wh.create_view(s.name, s.sql)
    unfilled = wh.suggest_views()
    assert (unfilled.views, unfilled.drop) == ((), ()), "they are there, though not filled yet"
    wh.maintain()
    answer = wh.sql(BY_DAY, executor="local")
    assert answer.stats["view"] in {s.name for s in found.views}
    assert sorted(answer.arrow().to_pylist(), key=str) == plain
    again = wh.suggest_views()
    assert (again.views, again.drop) == ((), ())


def test_a_view_that_another_makes_needless_goes_unless_it_is_asked_for_by_name(wh: Warehouse) -> None:
    wh.create_view("wide", "SELECT day, shop, sum(v) AS s FROM t GROUP BY day, shop")
    wh.maintain()
    ask(wh, BY_DAY, times=30)
    found = wh.suggest_views()
    assert wh.sql(BY_DAY, executor="local").stats["view"] == "wide"
    assert len(found.views) == 1
    assert found.drop == ("wide",)
    ask(wh, "SELECT shop, s FROM wide WHERE day = 1", times=1)
    assert wh.suggest_views().drop == ()


def test_a_view_that_is_not_filled_yet_counts_for_nothing(wh: Warehouse) -> None:
    wh.create_view("by_day", BY_DAY)
    wh.maintain()
    ask(wh, BY_DAY)
    wh.create_view("unfilled", "SELECT day, shop, sum(v) AS s, max(v) AS m FROM t GROUP BY day, shop")
    ask(wh, BY_DAY)
    found = wh.suggest_views()
    assert found.drop == ()
    assert not [v for v in found.views if v.name == "by_day" or "shop" in v.sql], "what there is is not suggested"


def test_a_profile_limits_all_views_together(wh: Warehouse) -> None:
    wh.set_profile("cost")  # one view
    ask(wh, BY_DAY, BY_SHOP)
    (first,) = wh.suggest_views().views
    wh.create_view(first.name, first.sql)
    wh.maintain()
    ask(wh, BY_DAY, BY_SHOP, "SELECT id % 7 AS r, count(*) AS n FROM t GROUP BY id % 7")
    assert wh.suggest_views().views == ()
    assert len(wh.suggest_views(most=3).views) >= 1


def test_apply_makes_what_is_suggested_and_drops_what_is_needless(
    wh: Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wh.create_view("idle", "SELECT shop, min(v) AS m FROM t GROUP BY shop")
    wh.maintain()
    ask(wh, BY_DAY)
    assert wh.queries(limit=1), "the log is written"
    capsys.readouterr()
    assert main(["-w", str(tmp_path / "warehouse"), "suggest-views", "--apply", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["drop"] == ["idle"]
    assert {v["view"] for v in wh.views()} == {v["view"] for v in told["views"]} != set()


def test_why_no_view_is_made_for_a_query_is_said_as_explain_says_it(
    wh: Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wh.create_view("by_day", BY_DAY)
    wh.maintain()
    rows = "SELECT id, v FROM t WHERE day = 3"
    ask(wh, rows, times=3)
    ask(wh, BY_DAY, times=2)
    (why,) = (d.why for d in wh.explain(rows).decisions if d.rule == "views")
    assert wh.suggest_views("t").refused == {why: 3}
    capsys.readouterr()
    assert main(["-w", str(tmp_path / "warehouse"), "suggest-views", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["refused"] == {why: 3}
    assert main(["-w", str(tmp_path / "warehouse"), "suggest-views"]) == 0
    assert f"no view for 3 of 5 queries: {why}" in capsys.readouterr().out


def test_a_text_is_parsed_once_however_often_and_for_however_many_tables_it_was_logged(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh.create_table("u", "id int, w bigint", key=["id"])
    joined = "SELECT day, sum(w) AS s FROM t JOIN u ON t.id = u.id GROUP BY day"
    ask(wh, joined, times=3)
    parsed: list[str] = []

    def counted(sql: str, words: Sequence[Lexeme]) -> exp.Query:
        parsed.append(sql)
        return parse_query(sql, words)

    monkeypatch.setattr(shapes, "parse_query", counted)
    assert wh.suggest_views().refused == {"it joins tables; views are suggested over one table": 3}
    assert parsed == [joined]
