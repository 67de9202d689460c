"""Filters on one side of a join skip row groups of the other, and never change an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry.query.rules import RULE_NAMES
from parquetry.query.rules.prune_join import PRUNE_JOIN
from parquetry.warehouse import Warehouse
from tests.views.without_spark import ingest, publish

DAYS, PER_DAY = 400, 50
_SMALL_GROUPS = {"row_group_rows": 100}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Facts in the order of their days; days have months and stores regions; ``latest`` is an upsert table."""
    rng = np.random.default_rng(0)
    folder: Path = tmp_path_factory.mktemp("star") / "wh"
    with parquetry.connect(folder) as wh:
        wh.create_table("facts", "day int, n int, store int, v bigint", key=["day", "n"], settings=_SMALL_GROUPS)
        wh.create_table("latest", "day int, n int, v bigint", key=["day", "n"], model="upsert", settings=_SMALL_GROUPS)
        wh.create_table("days", "day int, month int, name string", key=["day"])
        wh.create_table("stores", "store int, region int", key=["store"])
        wh.create_table("regions", "region int, called string", key=["region"])
        for half in range(2):
            days = np.repeat(np.arange(half * DAYS // 2, (half + 1) * DAYS // 2), PER_DAY)
            n = np.tile(np.arange(PER_DAY), DAYS // 2)
            missing = rng.random(len(days)) < 0.05
            store = (days // 40 * 2 + rng.integers(0, 2, len(days))).astype(np.int32)
            rows = {
                "day": days,
                "n": n,
                "store": pa.array(store, mask=missing),
                "v": rng.integers(0, 99, len(days)),
            }
            ingest(wh, "facts", pa.table(rows), f"f{half}")
            ingest(wh, "latest", pa.table({k: rows[k] for k in ("day", "n", "v")}), f"l{half}")
        again = pa.table({"day": [7, 399], "n": [1, 1], "v": [1000, 2000]})
        ingest(wh, "latest", again, "again")
        day = np.arange(-5, DAYS)
        names = pa.array([None if d % 7 == 0 else f"day {d}" for d in day.tolist()])
        ingest(wh, "days", pa.table({"day": day, "month": day // 30, "name": names}), "d")
        ingest(wh, "stores", pa.table({"store": range(25), "region": [s // 4 for s in range(25)]}), "s")
        ingest(wh, "regions", pa.table({"region": range(6), "called": list("abcdef")}), "r")
        publish(wh)
        yield wh


SKIPPING = [
    "SELECT count(*) AS n, sum(v) AS v FROM facts JOIN days ON facts.day = days.day WHERE month = 3",
    "SELECT count(*) AS n, sum(v) AS v FROM facts, days "
    "WHERE facts.day = days.day AND month IN (1, 11) AND name <> 'day 40'",
    "SELECT count(*) AS n, sum(v) AS v FROM days LEFT JOIN facts ON facts.day = days.day WHERE month = 3",
    "SELECT count(*) AS n, sum(v) AS v FROM facts RIGHT JOIN days ON facts.day = days.day WHERE month = 3",
    "SELECT count(*) AS n, sum(v) AS v FROM facts LEFT SEMI JOIN days ON facts.day = days.day AND month = 3",
    "SELECT count(*) AS n FROM days LEFT ANTI JOIN facts ON facts.day = days.day AND v > 90 WHERE month = 3",
    "SELECT count(*) AS n, sum(v) AS v FROM latest JOIN days ON latest.day = days.day WHERE month = 13",
    "SELECT called, count(*) AS n FROM facts JOIN stores ON facts.store = stores.store "
    "JOIN regions ON stores.region = regions.region WHERE called = 'b' GROUP BY called",
    "WITH march AS (SELECT day FROM days WHERE month = 3) "
    "SELECT sum(v) AS v FROM facts JOIN march ON facts.day = march.day",
    "SELECT sum(v) AS v FROM facts JOIN days ON facts.day = days.day WHERE month = 99",
]
NOT_SKIPPING = [
    "SELECT count(*) AS n, sum(v) AS v FROM facts LEFT JOIN days ON facts.day = days.day AND month = 3",
    "SELECT count(*) AS n, count(month) AS m FROM facts FULL JOIN days ON facts.day = days.day AND month = 3",
    "SELECT count(*) AS n FROM facts LEFT ANTI JOIN days ON facts.day = days.day AND month = 3",
    "SELECT count(*) AS n FROM facts JOIN days ON facts.day = days.day OR month = 3 WHERE month = 3",
    "SELECT count(*) AS n FROM facts JOIN days ON facts.day <=> days.day WHERE month IS NULL OR month = 3",
    "SELECT sum(rn) AS n FROM (SELECT day, row_number() OVER (ORDER BY day, n) AS rn FROM facts) f "
    "JOIN days ON f.day = days.day WHERE month = 3",
    "SELECT sum(v) AS v FROM (SELECT day, v FROM facts ORDER BY day, n LIMIT 100) f "
    "JOIN days ON f.day = days.day WHERE month = 3",
]


@pytest.mark.parametrize("sql", SKIPPING)
def test_what_filters_leave_of_one_side_skips_row_groups_of_the_other(sql: str, wh: Warehouse) -> None:
    with_it, without = wh.sql(sql, executor="local"), wh.sql(sql, executor="local", off=[PRUNE_JOIN.name])
    assert with_it.rows() == without.rows() == wh.sql(sql, executor="local", off=RULE_NAMES).rows()
    assert with_it.stats["rows_scanned"] < without.stats["rows_scanned"] / 2
    (told, *_) = [d for d in with_it.plan.decisions if d.rule == PRUNE_JOIN.name]
    assert told.figures["skipped"] > 0


@pytest.mark.parametrize("sql", NOT_SKIPPING)
def test_where_rows_without_a_partner_count_nothing_is_skipped(sql: str, wh: Warehouse) -> None:
    result = wh.sql(sql, executor="local")
    assert result.rows() == wh.sql(sql, executor="local", off=RULE_NAMES).rows()
    assert "prune_join" not in result.stats["skipped_by"]


def test_values_that_a_newer_delta_replaced_are_not_taken_for_the_row(wh: Warehouse) -> None:
    sql = "SELECT count(*) AS n FROM facts JOIN latest ON facts.v = latest.v WHERE latest.day = 7 AND latest.n = 1"
    assert wh.sql(sql, executor="local").rows() == [{"n": 0}]


def test_the_explanation_shows_what_the_other_side_left(wh: Warehouse) -> None:
    steps = wh.explain(SKIPPING[0]).to_json()["steps"]
    (step,) = [s for s in steps if s["rule"] == "prune_join"]
    assert step["about"] == "facts"
    assert step["decided"].endswith("row groups skipped, 1,500 of 20,000 rows kept")
    assert step["why"] == "day equals days.day, of which 30 values are left, in 30 of 405 rows"


BY_BOUNDS = [
    "SELECT count(*) AS n, sum(latest.v) AS v FROM latest JOIN facts ON latest.day = facts.day WHERE store = 3",
    "SELECT count(*) AS n FROM facts LEFT JOIN latest ON latest.day = facts.day WHERE facts.store = 3",
    "SELECT count(*) AS n FROM latest LEFT SEMI JOIN facts ON latest.day = facts.day AND store IN (3, 17)",
    "SELECT count(*) AS n FROM latest JOIN facts ON latest.day = facts.day JOIN days ON days.day = latest.day "
    "WHERE store = 3 AND month < 100",
]


@pytest.fixture
def nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parquetry.query.rules.prune_join._MOST_ROWS", 0)


@pytest.mark.usefixtures("nothing_is_evaluated")
@pytest.mark.parametrize("sql", BY_BOUNDS)
def test_bounds_of_the_kept_row_groups_alone_skip_row_groups_of_the_other_side(sql: str, wh: Warehouse) -> None:
    with_it, without = wh.sql(sql, executor="local"), wh.sql(sql, executor="local", off=[PRUNE_JOIN.name])
    assert with_it.rows() == without.rows()
    assert with_it.stats["rows_scanned"] < without.stats["rows_scanned"] * 0.7
    told = [d for d in with_it.plan.decisions if d.rule == PRUNE_JOIN.name]
    assert told
    assert all("lies within the bounds of" in d.why and d.figures["values"] == 0 for d in told)


@pytest.mark.usefixtures("nothing_is_evaluated")
@pytest.mark.parametrize("sql", [*SKIPPING, *NOT_SKIPPING])
def test_bounds_never_change_an_answer(sql: str, wh: Warehouse) -> None:
    assert wh.sql(sql, executor="local").rows() == wh.sql(sql, executor="local", off=RULE_NAMES).rows()


JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "CROSS JOIN"]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("join", JOINS)
def test_every_kind_of_join_answers_as_without_skipping(
    join: str, exact: bool, wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exact:
        monkeypatch.setattr("parquetry.query.rules.prune_join._MOST_ROWS", 0)
    counted = "count(*) AS n, count(a.store) AS s, sum(a.n) AS t"
    for left, right in (("facts", "stores"), ("stores", "facts"), ("facts", "facts")):
        values = "a.store, a.n" if left == "facts" else "a.store, a.region AS n"
        for on_only in (True, False):
            condition, where = "b.store IN (3, 4)", "WHERE a.store > 2"
            if join == "CROSS JOIN":
                text = f"b WHERE a.store = b.store AND a.store > 2 AND {condition} AND b.store = 3"
            else:
                on = f"a.store = b.store AND {condition}" if on_only else "a.store = b.store"
                text = f"b ON {on} {where}"
            sql = f"SELECT {counted} FROM (SELECT {values} FROM {left} a WHERE a.store < 9) a {join} {right} {text}"
            found = wh.sql(sql, executor="local")
            assert found.rows() == wh.sql(sql, executor="local", off=RULE_NAMES).rows(), sql


def test_a_side_that_cannot_be_read_is_left_to_who_answers(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "SELECT sum(v) AS v FROM facts JOIN days ON facts.day = days.day WHERE month = 5"

    def broken(*_: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr("parquetry.joins.reach.stored_rows", broken)
    plan = wh.explain(sql).plan
    (told,) = [d for d in plan.decisions if d.rule == PRUNE_JOIN.name]
    assert (told.outcome, told.why) == ("refused", "days cannot be read: gone")
    assert "prune_join" not in plan.tables["facts"].skipped_by


def test_a_join_of_many_tables_is_planned_in_a_moment(wh: Warehouse) -> None:
    joins = " ".join(f"JOIN days d{i} ON d{i}.day = facts.day AND d{i}.month = {i % 3}" for i in range(20))
    sql = f"SELECT count(*) AS n FROM facts {joins}"
    wh.explain(sql)
    assert wh.explain(sql).plan.tables["facts"].rows == 0
    plan = wh.explain(sql.replace("month = 1", "month = 0").replace("month = 2", "month = 0")).plan
    assert 0 < plan.tables["facts"].rows <= 1600


@pytest.mark.spark
def test_spark_reads_as_little(wh: Warehouse) -> None:
    for sql in (SKIPPING[0], SKIPPING[5], BY_BOUNDS[2]):
        result = wh.sql(sql, executor="spark")
        assert result.plan.executor == "spark"
        assert result.rows() == wh.sql(sql, executor="spark", off=RULE_NAMES).rows()
        assert result.stats["skipped_by"]["prune_join"] > 0
