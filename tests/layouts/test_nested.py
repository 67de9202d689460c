"""Nested layouts: ranges of a column, each with any layout inside."""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.errors import SchemaError
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.nested import Within, asked_of, boundaries_of, extend_nested, learn_nested
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.registry import LEARNERS
from parquetry.layouts.routing.route import route_numpy, route_spark
from parquetry.model.box import Box, Interval
from parquetry.model.layout import (
    CurveLayout,
    FeatureLayout,
    Leaf,
    NestedLayout,
    TreeLayout,
    block_rows,
    layout_from_json,
    learned_blocks,
)
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Range
from parquetry.model.values import order_key
from parquetry.workload.boxes import to_boxes
from tests.layouts.random_layouts import POOLS, random_predicate, random_table, random_tree, satisfies, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = TreeLayout("key", (), (Leaf(0),))
CURVE = CurveLayout("hilbert", ("i", "s"), "hilbert", 2, {"i": (0, 2, 7), "s": ("a", "z")}, (3, 9))


def random_nested(rng: random.Random, names: list[str]) -> NestedLayout:
    column = rng.choice(names)
    values = {order_key(v): v for v in POOLS[column][1]}
    boundaries = tuple(values[k] for k in sorted(rng.sample(list(values), rng.randint(0, len(values)))))
    parts = tuple(rng.choice([ONE, random_tree(rng, names, depth=3)]) for _ in range(len(boundaries) + 1))
    return NestedLayout("test", column, boundaries, parts)


def block_of(spec: NestedLayout, row: dict[str, Any]) -> int:
    """The block of one row, by the words of the spec alone."""
    value = row[spec.column]
    i = 0 if value is None else sum(order_key(b) <= order_key(value) for b in spec.boundaries)
    part = spec.parts[i]
    assert isinstance(part, TreeLayout)
    return sum(p.blocks for p in spec.parts[:i]) + walk(part, row)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_every_row_has_one_block_inside_its_range_and_pruning_loses_none(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(list(POOLS), rng.randint(1, 4))
    spec = random_nested(rng, names)
    assert layout_from_json(json.loads(json.dumps(spec.to_json()))).to_json() == spec.to_json()
    table = random_table(rng, 80, names)
    blocks = route_numpy(spec, table).tolist()
    rows = table.to_pylist()
    assert blocks == [block_of(spec, row) for row in rows]
    found = regions(spec)
    assert len(found) == spec.blocks
    assert all(found[b].contains(row) for row, b in zip(rows, blocks, strict=True))
    known = RegionTable(found)
    for _ in range(6):
        predicate = random_predicate(rng, names)
        might = known.might_match(to_boxes(predicate).boxes)
        assert all(might[b] for row, b in zip(rows, blocks, strict=True) if satisfies(predicate, row))


def test_numpy_and_spark_route_every_row_to_the_same_block(spark: SparkSession) -> None:
    rng = random.Random(3)
    table = random_table(rng, 300)
    specs = [random_nested(rng, rng.sample(list(POOLS), 4)) for _ in range(8)]
    specs.append(NestedLayout("mixed", "d", (POOLS["d"][1][1],), (CURVE, random_tree(rng, ["f", "s"]))))
    frame = spark.createDataFrame(table)
    routed = frame.select(*[route_spark(s).alias(f"b{n}") for n, s in enumerate(specs)]).toArrow()
    for n, spec in enumerate(specs):
        assert routed[f"b{n}"].to_pylist() == route_numpy(spec, table).tolist()


def test_a_nested_layout_may_lie_in_a_nested_layout() -> None:
    inner = NestedLayout("key", "b", (10,), (ONE, ONE))
    spec = NestedLayout("key", "a", (5,), (inner, inner))
    assert spec.first_blocks == (0, 2)
    table = pa.table({"a": [1, 1, 9, 9, None], "b": [1, 10, 9, 99, None]})
    assert route_numpy(spec, table).tolist() == [0, 1, 2, 3, 0]


def test_a_spec_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(SchemaError, match="one part more"):
        NestedLayout("key", "a", (5,), (ONE,))
    with pytest.raises(SchemaError, match="ascending"):
        NestedLayout("key", "a", (5, 5), (ONE, ONE, ONE))
    copied = TreeLayout("key", ("a",), (Leaf(0),), extra=(Box({"a": Interval(1, 2)}),))
    with pytest.raises(SchemaError, match="as a whole"):
        NestedLayout("key", "a", (), (copied,))


@pytest.mark.parametrize(
    ("values", "within", "expected"),
    [
        ([date(2024, 11, 30), date(2025, 2, 1)], "d:month", [date(2024, 12, 1), date(2025, 1, 1), date(2025, 2, 1)]),
        ([date(2024, 11, 30), date(2025, 2, 1)], "d:year", [date(2025, 1, 1)]),
        ([date(2024, 2, 28), date(2024, 3, 1)], "d:day", [date(2024, 2, 29), date(2024, 3, 1)]),
        ([date(9999, 11, 5), date(9999, 12, 31)], "d:month", [date(9999, 12, 1)]),
        ([datetime(2024, 1, 31, 23), None, datetime(2024, 2, 1)], "d:month", [datetime(2024, 2, 1)]),
        (
            [datetime(2024, 1, 31, 23, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC)],
            "d:month",
            [datetime(2024, 2, 1, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC)],
        ),
        ([None, None], "d:4", []),
        ([1, 2, 3, 4, 5, 6, 7, 8], "d:4", [3, 5, 7]),
        ([1, 1, 1, 1, 1, 1, 2], "d:3", []),
        ([None, None, 1, 2], "d:2", [1]),
        (["a", "b", "c", "d"], "d:2", ["c"]),
        ([0.5, float("nan"), -1.0, 2.0], "d:2", [2.0]),
    ],
)
def test_ranges_follow_the_calendar_or_the_rows(values: list[Any], within: str, expected: list[Any]) -> None:
    column = pa.chunked_array([pa.array(values, pa.int64() if set(values) == {None} else None)])
    assert list(boundaries_of(column, Within.parse(within))) == expected


def test_words_for_ranges() -> None:
    assert Within.parse("day", pa.date32()) == Within("day", "month")
    assert Within.parse("n:7", pa.int64()) == Within("n", 7)
    for text, kind in (("n", pa.int64()), ("n:month", pa.int64()), ("d:week", pa.date32()), ("n:0", pa.int64())):
        with pytest.raises(SchemaError, match="names no ranges"):
            Within.parse(text, kind)
    with pytest.raises(SchemaError, match="longer unit"):
        boundaries_of(pa.chunked_array([[date(1900, 1, 1), date(2000, 1, 1)]]), Within("d", "day"))


def test_each_range_learns_from_the_queries_that_reach_it() -> None:
    early, late = LoggedQuery(Range("t", 0, 9)), LoggedQuery(And((Range("t", 20, 29), Range("a", 1, 2))))
    anywhere = LoggedQuery(Range("a", 1, 2))
    workload = [early, late, anywhere]
    assert asked_of(workload, "t", Interval(0, 10, hi_open=True)) == [early, anywhere]
    assert asked_of(workload[:2], "t", Interval(40, None)) == workload[:2]


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_works_inside_ranges(name: str) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"t": np.arange(2000), "a": rng.integers(0, 500, 2000), "x": rng.normal(size=2000)})
    workload = [LoggedQuery(And((Range("t", n, n + 200), Range("a", n // 4, n // 4 + 40)))) for n in range(0, 1900, 90)]
    options = LearnOptions(block_rows=50, columns=("a", "x"), delta=0.01)
    spec = learn_nested(name, table, workload, options, Within("t", 4), cells=2)
    assert spec.boundaries == (500, 1000, 1500)
    blocks = route_numpy(spec, table)
    for i, first in enumerate(spec.first_blocks):
        own = blocks[i * 500 : (i + 1) * 500]
        assert own.min() >= first
        assert own.max() < first + spec.parts[i].blocks
    if name != "key":
        assert spec.blocks > 4
    later = pa.table({"t": [10**6, -5, None], "a": [1, 1, None], "x": [0.0, 0.0, None]}, schema=table.schema)
    assert [b >= spec.first_blocks[-1] for b in route_numpy(spec, later).tolist()] == [True, False, False]


def test_an_empty_sample_gives_one_block() -> None:
    table = pa.table({"t": pa.array([], pa.date32()), "a": pa.array([], pa.int64())})
    spec = learn_nested("kdtree", table, [], LearnOptions(block_rows=5, columns=("a",)), Within("t", "month"))
    assert spec.blocks == 1


def dated(days: list[date], seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"t": pa.array(days, pa.date32()), "a": rng.permutation(len(days))})


def test_new_months_get_parts_of_their_own_and_old_blocks_keep_their_numbers() -> None:
    known = dated([date(2024, 1, 1 + i % 28) for i in range(400)])
    options = LearnOptions(block_rows=50, columns=("a",), seed=3)
    spec = learn_nested("robust", known, [], options, Within("t", "month"), cells=1)
    assert spec.boundaries == ()
    assert spec.until == date(2024, 2, 1)
    # A full February, nothing in March, a full April, and two rows of the year 9000.
    late = dated([date(2024, 2 + 2 * (i % 2), 1 + i % 28) for i in range(300)] + [date(9000, 1, 1)] * 2)
    longer = extend_nested(spec, late, 1.0, [])
    assert longer is not None
    assert longer.boundaries == (date(2024, 2, 1), date(2024, 3, 1), date(2024, 4, 1))
    assert [part.blocks for part in longer.parts] == [8, 2, 1, 2]
    assert longer.parts[:1] == spec.parts
    assert route_numpy(longer, known).tolist() == route_numpy(spec, known).tolist()
    assert route_numpy(longer, late).min() == 8
    assert longer.until == date(2024, 5, 1)
    assert layout_from_json(json.loads(json.dumps(longer.to_json()))) == longer
    assert extend_nested(longer, late.slice(300), 1.0, []) is None
    assert extend_nested(longer, late.slice(0, 0), 1.0, []) is None


def test_times_extend_by_their_calendar_too_and_numbers_never() -> None:
    stamps = [datetime(2024, 1, 31, 12, tzinfo=UTC)] * 40 + [datetime(2024, 2, 1, tzinfo=UTC)] * 40
    table = pa.table({"t": pa.array(stamps, pa.timestamp("us", "UTC")), "a": range(80)})
    options = LearnOptions(block_rows=10, columns=("a",))
    spec = learn_nested("kdtree", table.slice(0, 40), [], options, Within("t", "month"))
    longer = extend_nested(spec, table.slice(40), 1.0, [])
    assert longer is not None
    assert longer.boundaries == (datetime(2024, 2, 1, tzinfo=UTC),)
    counted = learn_nested("kdtree", table, [], options, Within("a", 2))
    assert counted.until is None
    assert extend_nested(counted, table, 1.0, []) is None


OPTIONS: dict[str, list[Any]] = {
    "block_rows": [40],
    "columns": [("a",), ("b", "a"), None],
    "delta": [0, 0.0, 0.25, None, {"a": 3, "b": 0.5}, {"t": timedelta(days=2), "a": Decimal("1.5")}],
    "delta_estimate": ["matching"],
    "delta_quantile": [0.5],
    "alpha": [2.0],
    "refine": [False],
    "variant": ["paper", "skip"],
    "weights": [{}, {"a": 0.0, "b": 3.0}],
    "join": ["b"],
    "join_levels": [0, 2],
    "features": [3],
    "seed": [7],
}


def test_every_option_of_learners_is_tried_inside_ranges() -> None:
    assert set(OPTIONS) | {"sample_rate", "count_vectors"} == {f.name for f in fields(LearnOptions)}


@pytest.mark.parametrize("cells", [1, 8])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_new_range_is_learned_as_the_others_were(
    name: str, option: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, LearnOptions, int]] = []

    def learned(name: str, rows: pa.Table, workload: Any, options: LearnOptions, cells: int) -> TreeLayout:
        asked.append((name, options, cells))
        return ONE

    monkeypatch.setattr("parquetry.layouts.nested.learn_part", learned)
    known, late = dated([date(2024, 1, 5)] * 60), dated([date(2024, 2, 5)] * 60)
    for value in OPTIONS[option]:
        options = replace(LearnOptions(block_rows=50, sample_rate=0.5, columns=("a",)), **{option: value})
        spec = learn_nested(name, known, [], options, Within("t", "month"), cells)
        kept = layout_from_json(json.loads(json.dumps(spec.to_json())))
        assert kept == spec
        assert isinstance(kept, NestedLayout)
        extend_nested(kept, late, 0.25, [])
        assert asked == [(name, options, cells), (name, replace(options, sample_rate=0.25), cells)]
        asked.clear()


def test_a_layout_of_an_older_release_still_grows() -> None:
    """It kept some options, and only where they were not zero or empty."""
    known, late = dated([date(2024, 1, 5)] * 60), dated([date(2024, 2, 5)] * 60)
    spec = learn_nested("robust", known, [], LearnOptions(block_rows=50, columns=("a",), seed=3), Within("t", "month"))
    options = {"block_rows": 50, "within": "t:month", "until": spec.to_json()["options"]["until"]}

    def stored(**more: Any) -> NestedLayout:
        inside = {"columns": ["a"], "cells": 1, **more}
        found = layout_from_json(json.loads(json.dumps({**spec.to_json(), "options": {**options, "inside": inside}})))
        assert isinstance(found, NestedLayout)
        return found

    older = stored(seed=3)
    assert (block_rows(older), older.within, older.until, older.inside["seed"]) == (50, "t:month", date(2024, 2, 1), 3)
    assert learned_blocks(older) == older.blocks, "they were not cut into cells yet"
    assert extend_nested(older, late, 1.0, []) is not None
    with pytest.raises(SchemaError, match="unknown option 'colour'"):
        extend_nested(stored(colour=3), late, 1.0, [])


def test_warp_in_new_ranges_has_the_features_that_were_asked_for() -> None:
    """The same through the learner itself: what was said once holds for every month to come."""
    days = [date(2024, 1, 1 + i % 28) for i in range(600)]
    workload = [LoggedQuery(Range("a", n, n + 60)) for n in range(0, 540, 30)] * 3
    options = LearnOptions(block_rows=20, columns=("a",), features=3)
    spec = learn_nested("warp", dated(days), workload, options, Within("t", "month"))
    longer = extend_nested(spec, dated([d.replace(month=2) for d in days]), 1.0, workload)
    assert longer is not None
    assert [len(part.features) for part in longer.parts if isinstance(part, FeatureLayout)] == [3, 3]
