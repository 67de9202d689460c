"""Joins in workers answer as Spark's own join does: every way, model, layout and number of parts; else they say why."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.query.planning.plan import Plan
from parquetry.query.rules import RULE_NAMES, join_workers
from parquetry.query.rules.choose_executor import SPARK_BYTES_PER_CORE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = ("co_range_join", "hyper_join", "broadcast_join", "one_worker")
SMALL = {"row_group_rows": 100, "max_query_deltas": 16, "compaction_width": 16, "block_group_rows": 50}
MODELS = ("append", "upsert", "aggregate", "laid")
LEFT = "k int not null, line int not null, other bigint, amount decimal(12,2), f double, s string"
RIGHT = "k int not null, day date, g string, wide bigint"
MERGES = {"other": "max", "amount": "sum", "f": "max", "s": "replace"}
JOINED = [
    "SELECT r.g, count(*) AS n, sum(l.amount) AS a, min(l.s) AS s, max(r.wide) AS w FROM {l} l JOIN {r} r ON l.k = r.k "
    "WHERE l.other > 3 GROUP BY r.g ORDER BY r.g",
    "SELECT count(*) AS n, sum(l.other) AS o, avg(l.other) AS a, count(r.g) AS g FROM {l} l LEFT JOIN {r} r "
    "ON l.k = r.k AND r.wide > 20",
    "SELECT l.k, count(*) AS n FROM {l} l LEFT SEMI JOIN {r} r ON r.k = l.k WHERE l.f IS NOT NULL GROUP BY l.k "
    "HAVING count(*) > 1 ORDER BY n DESC, l.k LIMIT 9",
    "SELECT l.k, l.line, l.amount FROM {l} l LEFT ANTI JOIN {r} r ON l.k = r.k ORDER BY 1, 2, 3",
    "SELECT DISTINCT r.g, l.line % 3 AS m FROM {l} l JOIN {r} r USING (k) WHERE r.wide < 900 ORDER BY 1, 2",
    "SELECT r.k, r.g, (SELECT max(z.day) FROM {r} z) AS latest FROM {r} r WHERE NOT EXISTS "
    "(SELECT 1 FROM {l} l WHERE l.k = r.k AND l.other > 5) ORDER BY r.k, r.g",
    "SELECT count(*) AS n, max(r.day) AS d FROM {r} r WHERE r.k IN (SELECT l.k FROM {l} l GROUP BY l.k "
    "HAVING sum(l.amount) > 20)",
    "SELECT a.g, count(*) AS n FROM {r} a JOIN {r} b ON a.k = b.k AND a.wide <= b.wide JOIN {l} l ON l.k = b.k "
    "GROUP BY a.g ORDER BY a.g",
    "SELECT t.g, sum(t.amount) AS a FROM (SELECT r.g, l.amount FROM {l} l, {r} r WHERE l.k = r.k) AS t "
    "GROUP BY t.g ORDER BY t.g",
    "SELECT l.k, l.s, r.g FROM {l} l JOIN {r} r ON l.other = r.wide AND l.k = 4 ORDER BY l.k, l.s, r.g",
    "SELECT sum(l.other) AS s FROM {l} l JOIN {r} r ON l.k = r.k WHERE l.k = 4 AND r.k = 5",
]


def lines(rng: np.random.Generator, rows: int, keys: int = 120) -> pa.Table:
    k = np.where(rng.random(rows) < 0.3, 4, rng.integers(0, keys, rows)).astype(np.int32)  # one key has many rows
    null = rng.random(rows) < 0.15
    return pa.table(
        {
            "k": pa.array(k),
            "line": pa.array(rng.integers(0, 9, rows), pa.int32()),
            "other": pa.array(rng.integers(0, 60, rows), mask=null),
            "amount": pa.array(
                [Decimal(int(c)).scaleb(-2) for c in rng.integers(-999, 9999, rows)], pa.decimal128(12, 2)
            ),
            "f": pa.array(np.where(rng.random(rows) < 0.1, np.nan, rng.integers(0, 8, rows) / 4), mask=null[::-1]),
            "s": pa.array([None if i == 3 else f"s{i}" for i in rng.integers(0, 30, rows)]),
        }
    )


def heads(rng: np.random.Generator, rows: int, keys: int = 150) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(rng.permutation(keys)[:rows].astype(np.int32)),
            "day": pa.array(rng.integers(0, 400, rows).astype(np.int32), pa.date32()),
            "g": pa.array([None if i == 0 else f"g{i}" for i in rng.integers(0, 5, rows)]),
            "wide": pa.array(rng.integers(0, 1000, rows), mask=rng.random(rows) < 0.2),
        }
    )


@pytest.fixture(scope="module")
def wh(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[parquetry.Warehouse]:
    rng = np.random.default_rng(0)
    with parquetry.connect(tmp_path_factory.mktemp("joins") / "w", spark=spark) as wh:
        for model in MODELS:
            kind = "append" if model == "laid" else model
            merges = MERGES if model == "aggregate" else None
            wh.create_table(f"l_{model}", LEFT, ["k", "line"], kind, merges, settings=SMALL)
            right = {"day": "max", "g": "replace", "wide": "sum"} if model == "aggregate" else None
            wh.create_table(f"r_{model}", RIGHT, ["k"], kind, right, settings=SMALL)
            for a, b in ((700, 80), (250, 30), (1, 1)):
                wh.ingest(f"l_{model}", lines(rng, a))
                wh.ingest(f"r_{model}", heads(rng, b))
        wh.create_table("none", RIGHT, ["k"], settings=SMALL)
        wh.create_table("numbers", "k bigint not null, x double", ["k"], settings=SMALL)
        wh.ingest(
            "numbers", pa.table({"k": np.arange(90), "x": np.where(np.arange(90) % 9, np.arange(90) / 4, np.nan)})
        )
        wh.create_table("floats", "x double not null, n int", ["x"], settings=SMALL)
        wh.ingest("floats", pa.table({"x": [0.0, 1.25, float("nan"), 5.0], "n": pa.array([1, 2, 3, 4], pa.int32())}))
        wh.maintain()
        for table in ("l_laid", "r_laid"):
            wh.relayout(
                table, "two_phase", options=RelayoutOptions(block_rows=60, join="k", join_levels=2), workload=None
            )
        wh.create_view("by_k", "SELECT k, count(*) AS n, avg(other) AS o, sum(amount) AS a FROM l_upsert GROUP BY k")
        wh.maintain()
        yield wh


def check(wh: parquetry.Warehouse, sql: str, splits: int) -> set[str]:
    """Compares every way that is possible with Spark's own join without any rule; gives those ways."""
    expected = wh.sql(sql, executor="spark", off=RULE_NAMES).arrow()
    taken = set()
    for way in WAYS:
        result = wh.sql(sql, splits=splits, off=[w for w in WAYS if w != way])
        if result.plan.join is None:
            assert any(d.rule == way and d.why for d in result.plan.decisions)
            continue
        taken.add(way)
        found = result.arrow()
        assert found.to_pydict() == expected.to_pydict() or repr(found.to_pydict()) == repr(expected.to_pydict()), way
        assert found.schema.types == expected.schema.types
        assert result.stats["splits"] == len(result.plan.join.tasks)
    return taken


@pytest.mark.parametrize("model", MODELS)
def test_every_way_answers_as_sparks_own_join(wh: parquetry.Warehouse, model: str) -> None:
    some = JOINED if model == "append" else JOINED[:: 3 if model == "upsert" else 4]
    taken = [check(wh, sql.format(l=f"l_{model}", r=f"r_{model}"), 4) for sql in some]
    expected = {"hyper_join", "one_worker"} if model == "laid" else set(WAYS)
    assert expected <= taken[0]
    assert ("co_range_join" in taken[0]) == (model != "laid")
    assert sum("hyper_join" in t for t in taken) >= 0.7 * len(some)


@pytest.mark.parametrize(
    ("left", "right"), [("l_append", "r_laid"), ("l_laid", "r_upsert"), ("l_aggregate", "r_append")]
)
def test_sides_of_different_models_and_layouts(wh: parquetry.Warehouse, left: str, right: str) -> None:
    for sql in (JOINED[0], JOINED[3]):
        assert "hyper_join" in check(wh, sql.format(l=left, r=right), 3)


def test_views_on_either_side(wh: parquetry.Warehouse) -> None:
    sql = (
        "SELECT r.g, sum(v.n) AS n, sum(v.a) AS a, max(v.o) AS o FROM by_k v JOIN r_upsert r ON v.k = r.k GROUP BY r.g"
    )
    assert "co_range_join" in check(wh, f"{sql} ORDER BY r.g", 3)
    assert "co_range_join" in check(
        wh, "SELECT l.k, v.n FROM l_append l LEFT JOIN by_k v ON l.k = v.k ORDER BY 1, 2", 3
    )


def test_an_empty_side(wh: parquetry.Warehouse) -> None:
    count = "SELECT count(*) AS n, sum(l.other) AS o, max(r.g) AS g FROM l_append l {} JOIN none r ON l.k = r.k"
    for kind in ("", "LEFT", "LEFT SEMI", "LEFT ANTI"):
        sql = count.format(kind)
        check(wh, sql.replace(", max(r.g) AS g", "") if "I" in kind else sql, 3)
    check(wh, "SELECT r.k, l.s FROM none r LEFT JOIN l_append l ON l.k = r.k ORDER BY 1, 2", 3)


def test_keys_of_different_types_and_floats_are_not_dealt_out_by_value(wh: parquetry.Warehouse) -> None:
    sql = "SELECT count(*) AS n, sum(l.other) AS o FROM l_append l JOIN numbers m ON l.k = m.k"
    assert not {"co_range_join", "hyper_join"} & check(wh, sql, 3)
    sql = "SELECT count(*) AS n, sum(a.n) AS s FROM floats a JOIN numbers b ON a.x = b.x"
    assert not {"co_range_join", "hyper_join"} & check(wh, sql, 3)
    assert "another type" in str(
        wh.explain("SELECT 1 AS one, l.s FROM l_append l JOIN numbers m ON l.k = m.k", splits=3)
    )


def test_a_key_with_many_rows_stays_in_one_part(wh: parquetry.Warehouse) -> None:
    plan = wh.sql(
        JOINED[0].format(l="l_append", r="r_append"), splits=40, off=["hyper_join", "broadcast_join", "one_worker"]
    ).plan
    assert plan.join is not None
    assert plan.join.skew > 1
    ends = [(t[0].lo, t[0].hi) for t in plan.join.tasks]
    assert all(a != b for a, b in ends)
    assert all((left.lo, left.hi) == (right.lo, right.hi) for left, right in plan.join.tasks)


def test_nothing_is_shuffled_but_what_the_workers_give(wh: parquetry.Warehouse) -> None:
    frame = wh.sql(JOINED[0].format(l="l_append", r="r_append"), splits=3, off=["one_worker"]).spark()
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Join" not in plan
    assert "parquet" not in plan.lower()
    assert "MapInArrow" in plan
    rows = wh.sql("SELECT l.k, r.g FROM l_append l JOIN r_append r ON l.k = r.k", splits=3, off=["one_worker"]).spark()
    assert "Exchange" not in rows._jdf.queryExecution().executedPlan().toString()


def test_every_way_is_priced_and_sparks_own_join_is_taken_where_it_is_cheaper(wh: parquetry.Warehouse) -> None:
    told = wh.explain(JOINED[0].format(l="l_append", r="r_append"), executor="spark")
    steps = {d.rule: d for d in told.decisions}
    assert all(steps[w].outcome == "considered" and steps[w].figures["bytes"] > 0 for w in WAYS)
    assert steps["join_workers"].decided == "Spark's own join"  # so few rows do not pay for Python workers
    off = wh.sql(JOINED[0].format(l="l_append", r="r_append"), splits=3, off=["join_workers"]).plan
    assert off.join is None


def test_a_shuffle_is_taken_where_a_hyper_join_would_read_more(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RB-E5: in bytes alone, a shuffle reads each three times, a hyper join those of one side once for each group."""
    for name, value in {"_LEAST_BYTES": 0, "WORKER_FLOOR_S": 0.0, "_STAGE_S": 0.0, "_BROADCAST_BYTES": 0}.items():
        monkeypatch.setattr(join_workers, name, value)
    monkeypatch.setattr(join_workers, "LOCAL_BYTES_PER_CORE_S", SPARK_BYTES_PER_CORE_S)
    rng = np.random.default_rng(1)
    with parquetry.connect(tmp_path / "w", spark=spark) as wh:
        for name in ("a", "b", "a_laid", "b_laid"):
            wh.create_table(name, "id int not null, k int, v bigint", ["id"], settings=SMALL)
            ids, keys = np.arange(2000, dtype=np.int32), rng.permutation(2000).astype(np.int32)
            wh.ingest(name, pa.table({"id": ids, "k": keys, "v": rng.integers(0, 9, 2000)}))
        wh.maintain()
        how = RelayoutOptions(block_rows=100, join="k", join_levels=4)
        for name in ("a_laid", "b_laid"):
            wh.relayout(name, "two_phase", options=how, workload=None)
        size = max(t["bytes"] for t in wh.tables())
        monkeypatch.setattr(join_workers, "worker_memory", lambda: size // 3)  # so that there are many groups

        def chosen(a: str, b: str) -> tuple[str, float]:
            sql = f"SELECT count(*) AS n, sum(x.v) AS v FROM {a} x JOIN {b} y ON x.k = y.k"
            others = [w for w in WAYS if w != "hyper_join"]
            steps = {d.rule: d for d in wh.explain(sql, executor="spark", off=others).decisions}
            told = steps["join_workers"]
            return told.decided, told.figures["ms"] / told.figures["own_ms"]

        decided, ratio = chosen("a", "b")
        assert (decided, ratio > 1) == ("Spark's own join", True)
        decided, ratio = chosen("a_laid", "b_laid")
        assert decided.startswith("hyper_join")
        assert ratio <= 0.5


def test_where_duckdb_stops_spark_answers(wh: parquetry.Warehouse) -> None:
    wh.create_table("words", "k int not null, s string", ["k"], settings=SMALL)
    wh.ingest(
        "words", pa.table({"k": pa.array(range(40), pa.int32()), "s": ["ß" if k == 7 else "b" for k in range(40)]})
    )
    wh.maintain()
    sql = (
        "SELECT upper(w.s) AS u, count(*) AS n FROM words w JOIN numbers m ON w.k = m.k GROUP BY upper(w.s) ORDER BY u"
    )
    result = wh.sql(sql, splits=3)
    assert result.plan.join is not None
    assert result.rows() == [{"u": "B", "n": 39}, {"u": "SS", "n": 1}]
    assert [tuple(r) for r in wh.sql(sql, splits=3).spark().collect()] == [("B", 39), ("SS", 1)]


def test_a_proof_for_few_rows_is_not_kept_for_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an average may be made of depends on how many rows there can be."""
    asked: list[int] = []
    real = join_workers._parts

    def counted(plan: Plan, rows: int) -> Any:
        asked.append(rows)
        return real(plan, rows)

    monkeypatch.setattr(join_workers, "_parts", counted)
    query = "SELECT avg(a.x) AS x FROM a JOIN b ON a.k = b.k"
    with parquetry.connect(tmp_path / "w", spark=spark) as wh:
        for name in "ab":
            wh.create_table(name, "k int not null, x bigint", ["k"])
        for rows in (9, 5_000):
            for name in "ab":
                wh.ingest(name, pa.table({"k": pa.array(range(rows), pa.int32()), "x": range(rows)}))
            wh.maintain()
            wh.explain(query, executor="spark")
            seen = len(asked)
            wh.explain(query, executor="spark")
            assert len(asked) == seen, "as long as there are about as many rows it is"
    assert asked == [10**2, 10**8]
