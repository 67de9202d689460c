"""Extra blocks answer the queries that lie inside them, and change nothing else: no row is lost or doubled."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.errors import SchemaError
from parquetry.layouts.learners.extra import choose_extra_blocks
from parquetry.layouts.learners.kdtree import learn_kdtree
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.routing.extra_blocks import extra_blocks_of, rows_of
from parquetry.model.box import Box, Interval
from parquetry.model.layout import EXTRA_BASE, layout_from_json
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Range
from parquetry.query.rules import RULE_NAMES as RULES
from parquetry.query.rules.extra_blocks import NAME
from tests.layouts.random_layouts import POOLS, random_interval, random_table, random_tree
from tests.relayout.test_relayout import batch
from tests.templates import Templates

ROWS = 4000
SMALL = {"block_group_rows": 50, "row_group_rows": 1000, "compaction_width": 50}
ASKED = [(a, b) for a in (100, 400, 700) for b in (30, 200)]  # what the log is about, again and again
SELECT = "SELECT count(*) AS n, sum(v) AS v, min(b) AS b, max(s) AS s FROM t WHERE "


def asked(seed: int, count: int, inside: int = 0) -> list[str]:
    """Queries at the usual places; ``inside`` makes them narrower."""
    rnd = random.Random(seed)
    found = []
    for _ in range(count):
        (a, b), cut = rnd.choice(ASKED), rnd.randrange(inside + 1)
        found.append(f"{SELECT}a BETWEEN {a + cut} AND {a + 60} AND b >= {b} AND b < {b + 30 - cut}")
    return found


def anything(seed: int, count: int) -> list[str]:
    """Inside, across and outside of the usual places, and filters that a box cannot say."""
    rnd = random.Random(seed)
    found = asked(seed, count, inside=20)
    for _ in range(count):
        (a, b), by = rnd.choice(ASKED), rnd.randrange(-80, 80)
        where = rnd.choice(
            [
                f"a BETWEEN {a + by} AND {a + by + 60} AND b BETWEEN {b} AND {b + 29}",
                f"a = {a + abs(by) % 60} AND b IN ({b}, {b + 3}, {b + 29})",
                f"a > {a} AND a < {a + 60} AND b = {b + 5} AND s LIKE 's1%'",
                f"a BETWEEN {a} AND {a + 9} AND b BETWEEN {b} AND {b + 9} AND v <> 3 AND price IS NOT NULL",
                f"(a = {a} OR a = {a + 1}) AND b = {b + 1} OR s = 's007'",
                f"a < {a} AND x > 0",
            ]
        )
        found.append(SELECT + where)
    return found


@pytest.fixture(params=["append", "aggregate"])
def wh(request: pytest.FixtureRequest, tmp_path: Path, templates: Templates) -> Iterator[parquetry.Warehouse]:
    """Two deltas in the layout of the key, and a log that asks for the same few places."""
    values = dict.fromkeys(("d", "price", "x"), "max") | {"v": "sum"} if request.param == "aggregate" else None

    def fill(wh: parquetry.Warehouse) -> None:
        wh.create_table("t", batch(0).schema, key=["a", "b", "s"], model=request.param, values=values, settings=SMALL)
        for seed in (1, 2):
            wh.ingest("t", batch(seed), tasks=1)
        wh.maintain()
        for q in asked(3, 30):
            wh.sql(q, executor="local").arrow()

    with templates.copied(f"extra_blocks-{request.param}", tmp_path / "wh", fill) as wh:
        yield wh


OPTIONS = RelayoutOptions(block_rows=800, delta=0.01, cells=2, extra_space=0.2)


def all_rows(wh: parquetry.Warehouse, **how: Any) -> str:
    return str(wh.sql("SELECT a, b, s, d, price, v FROM t ORDER BY 1, 2, 3, 4, 5, 6", executor="local", **how).rows())


def check(wh: parquetry.Warehouse, seed: int) -> int:
    """Every answer is the same with the rule, without it and without any; how many queries used it."""
    used = 0
    for q in anything(seed, 8):
        routed, plain = wh.sql(q, executor="local"), wh.sql(q, executor="local", off=[NAME])
        assert routed.rows() == plain.rows() == wh.sql(q, executor="local", off=RULES).rows(), q
        told = wh.explain(q).decisions
        used += any(d.rule == NAME for d in told)
        stats = routed.stats
        assert stats["rows_scanned"] <= plain.stats["rows_scanned"]
        kept = sum(t["blocks_read"] for t in wh.explain(q, executor="local").to_json()["tables"].values())
        assert stats["blocks_total"] - sum(stats["skipped_by"].values()) == kept
        assert stats["blocks_total"] == plain.stats["blocks_total"]
    assert wh.verify() == []
    return used


def test_answers_never_change_through_the_life_of_a_table(wh: parquetry.Warehouse) -> None:
    before = all_rows(wh)
    rows = sum(d.rows for d in wh.catalog.state().table("t").deltas)
    done = wh.relayout("t", "kdtree", options=OPTIONS)
    told = wh.layout("t")
    assert told["extra_blocks"] >= 2
    assert 0 < done.extra_rows == told["extra_rows"] <= 0.25 * rows
    assert all_rows(wh) == all_rows(wh, off=RULES) == before
    assert check(wh, 1) >= 4

    for seed, size, tasks in ((5, ROWS, 2), (6, 300, 1), (7, 3000, 1)):  # 300 are too few for extra blocks
        wh.ingest("t", batch(seed, size), tasks=tasks)
    wh.maintain()
    deltas = wh.catalog.state().table("t").deltas
    assert [d.extra_rows > 0 for d in deltas] == [True, True, False, True]
    assert sum(b["rows"] for b in wh.blocks("t")) == sum(d.rows for d in deltas)
    assert check(wh, 2) >= 4
    assert all_rows(wh) == all_rows(wh, off=RULES)

    after = all_rows(wh)
    wh.change_settings("t", compaction_width=2)
    wh.maintain()
    (delta,) = wh.catalog.state().table("t").deltas
    assert delta.extra_rows > 0
    assert all_rows(wh) == all_rows(wh, off=RULES) == after
    assert check(wh, 3) >= 4

    wh.relayout("t", "zorder", options=replace(OPTIONS, columns=["a", "b"]))
    assert all_rows(wh) == after
    assert check(wh, 4) >= 4
    wh.relayout("t", "zorder", options=replace(OPTIONS, columns=["a", "b"], extra_space=0.0))
    assert all_rows(wh) == after
    assert check(wh, 5) == 0
    assert not any(f.extra for d in wh.catalog.state().table("t").deltas for f in d.files)


def test_a_query_inside_reads_fewer_rows_and_says_so_on_both_executors(wh: parquetry.Warehouse) -> None:
    wh.relayout("t", "kdtree", options=replace(OPTIONS, extra_space=0.4))  # room for all of ASKED
    wh.ingest("t", batch(5), tasks=2)
    wh.maintain()
    for q in asked(9, 2, inside=10):
        routed, plain = wh.sql(q, executor="local"), wh.sql(q, executor="local", off=[NAME])
        assert routed.rows() == plain.rows()
        assert routed.stats["rows_scanned"] < plain.stats["rows_scanned"]
        assert "answers it alone in 2 of 2 deltas" in str(wh.explain(q))
        for off in ((), (NAME,)):
            on_spark = wh.sql(q, executor="spark", off=off)
            assert on_spark.rows() == plain.rows()
        counted = wh.sql(q, executor="spark")
        counted.arrow()
        assert counted.stats["rows_scanned"] <= plain.stats["rows_scanned"]
    both = "SELECT count(*) AS n FROM t x JOIN t y ON x.s = y.s WHERE x.a BETWEEN 105 AND 150 AND x.b = 35 AND y.b = 40"
    assert wh.sql(both, executor="spark").rows() == wh.sql(both, executor="spark", off=RULES).rows()
    assert wh.table("t").count() == wh.sql("SELECT count(*) AS n FROM t", executor="local").rows()[0]["n"]


def test_deltas_of_an_older_layout_are_read_by_the_normal_route(
    wh: parquetry.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh.relayout("t", "kdtree", options=OPTIONS)
    module = importlib.import_module("parquetry.ingest.ingest")
    conform = module.conform

    def relaid_meanwhile(*args: Any) -> Any:
        monkeypatch.undo()
        wh.relayout("t", "kdtree", options=replace(OPTIONS, delta=0.02))
        return conform(*args)

    monkeypatch.setattr(module, "conform", relaid_meanwhile)
    wh.ingest("t", batch(5), tasks=2)
    wh.maintain()
    table = wh.catalog.state().table("t")
    assert [d.layout_id == table.layout_id for d in table.deltas] == [True, False]
    assert all(d.extra_rows for d in table.deltas)
    assert check(wh, 6) >= 4
    assert any("in 1 of 2 deltas" in str(wh.explain(q)) for q in asked(9, 4, inside=10))
    assert all_rows(wh) == all_rows(wh, off=RULES)


def test_a_label_means_the_same_batch_with_and_without_extra_blocks(wh: parquetry.Warehouse) -> None:
    first = wh.ingest("t", batch(5), label="once", tasks=1)
    wh.relayout("t", "kdtree", options=OPTIONS)
    again = wh.ingest("t", batch(5), label="once", tasks=2)
    assert again.repeated
    assert (first.rows, again.rows) == (ROWS, ROWS)
    assert wh.ingest("t", batch(6), label="with", tasks=2).rows == ROWS
    assert wh.ingest("t", batch(6), label="with", tasks=1).repeated


def test_bad_requests_are_refused(wh: parquetry.Warehouse) -> None:
    version = wh.catalog.version()
    with pytest.raises(SchemaError, match="extra_space is a share"):
        RelayoutOptions(extra_space=-0.1)
    with pytest.raises(SchemaError, match="plain key order has no extra blocks"):
        wh.relayout("t", "key", options=RelayoutOptions(extra_space=0.1))
    assert wh.catalog.version() == version


@pytest.mark.parametrize("seed", range(40))
def test_every_row_has_a_copy_in_each_region_that_holds_it(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(list(POOLS), 3)
    shapes = [rng.sample(names, rng.randint(1, 3)) for _ in range(rng.randint(1, 5))]
    extra = tuple(Box({c: random_interval(rng, c) for c in shape}) for shape in shapes)
    spec = replace(random_tree(rng, names), columns=tuple(names), extra=extra)
    again = layout_from_json(json.loads(json.dumps(spec.to_json())))
    assert again.to_json() == spec.to_json()
    table = random_table(rng, 60, names)
    for row, found in zip(table.to_pylist(), extra_blocks_of(extra, table).to_pylist(), strict=True):
        assert found == [EXTRA_BASE + j for j, box in enumerate(extra) if box.contains(row)]


@pytest.mark.parametrize("seed", range(40))
def test_a_box_covers_another_only_if_it_holds_every_point_of_it(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(list(POOLS), 2)
    rows = random_table(rng, 200, names).to_pylist()
    for _ in range(40):
        big, small = (Box({c: random_interval(rng, c) for c in names[: rng.randint(1, 2)]}) for _ in range(2))
        both = small.intersect(big)
        assert big.covers(both) or both.empty
        if big.covers(small):
            assert all(big.contains(r) for r in rows if small.contains(r))
    assert Box({"a": Interval(1, 5)}).covers(Box({"a": Interval(1, 5, True, True), "b": Interval(1, 1)}))
    assert not Box({"a": Interval(1, 5, hi_open=True)}).covers(Box({"a": Interval(1, 5)}))
    assert not Box({"a": Interval(1, 5)}).covers(Box())
    assert not Box({"a": Interval(hi=5)}).covers(Box({"a": Interval(hi=5, nulls=True)}))
    assert not Box({"a": Interval("x", "z")}).covers(Box({"a": Interval(1, 5)}))


def test_regions_are_chosen_within_the_budget_and_the_number() -> None:
    rng = np.random.default_rng(1)
    table = pa.table({"a": rng.integers(0, 1000, 20_000), "b": rng.integers(0, 1000, 20_000)})
    logged = [LoggedQuery(And((Range("a", lo=i, hi=i + 40), Range("b", lo=i, hi=i + 40)))) for i in range(0, 900, 30)]
    options = LearnOptions(block_rows=100, columns=("a", "b"), delta=0.01)
    spec = learn_kdtree(table, logged, options)
    chosen = choose_extra_blocks(spec, table, logged, options, budget_rows=1500)
    assert sum(e.rows for e in chosen) <= 1500
    assert all(e.rows == max(100, len(rows_of(table, [e.box])[0])) for e in chosen)
    assert len(chosen) > 3
    assert choose_extra_blocks(spec, table, logged, options, budget_rows=1500, most=3) == chosen[:3]
    assert choose_extra_blocks(spec, table, [], options, budget_rows=1500) == ()
