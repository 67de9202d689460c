from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from parquetry.errors import SchemaError
from parquetry.layouts.pruning.regions import Region, RegionTable, regions
from parquetry.layouts.routing.route import route_numpy, route_spark, route_sql
from parquetry.model.box import Box, Interval
from parquetry.model.layout import (
    Cluster,
    CurveLayout,
    Cut,
    Feature,
    FeatureLayout,
    Groups,
    LayoutSpec,
    Leaf,
    NestedLayout,
    TreeLayout,
    layout_from_json,
)
from parquetry.model.predicate import IsNull, OneOf, Or, Range
from parquetry.workload.boxes import to_boxes
from tests.layouts.random_layouts import POOLS, random_predicate, random_table, random_tree, satisfies, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def chain(length: int) -> TreeLayout:
    """A tree as deep as it has blocks, as greedy learners may make."""
    nodes: list[Cut | Leaf] = []
    for i in range(length):
        nodes += [Cut("i", "<", i, 2 * i + 1, 2 * i + 2), Leaf(i)]
    return TreeLayout("test", ("i",), (*nodes, Leaf(length)))


@pytest.mark.parametrize("seed", range(60))
def test_routing_follows_the_tree_and_every_region_holds_its_rows(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(list(POOLS), rng.randint(1, 4))
    spec = random_tree(rng, names)
    assert layout_from_json(json.loads(json.dumps(spec.to_json()))).to_json() == spec.to_json()
    table = random_table(rng, 80, names)
    blocks = route_numpy(spec, table)
    found = regions(spec)
    assert len(found) == spec.blocks
    for row, block in zip(table.to_pylist(), blocks.tolist(), strict=True):
        assert block == walk(spec, row)
        assert found[block].contains(row)


@pytest.mark.parametrize("seed", range(60))
def test_pruning_by_region_never_loses_a_row(seed: int) -> None:
    rng = random.Random(1000 + seed)
    names = rng.sample(list(POOLS), rng.randint(1, 3))
    spec = random_tree(rng, names, depth=5)
    table = random_table(rng, 80, names)
    blocks = route_numpy(spec, table)
    known = RegionTable(regions(spec))
    for _ in range(10):
        predicate = random_predicate(rng, names)
        might = known.might_match(to_boxes(predicate).boxes)
        needed = {b for row, b in zip(table.to_pylist(), blocks.tolist(), strict=True) if satisfies(predicate, row)}
        assert all(might[b] for b in needed)
        assert all(might[b] == region.might_match(predicate) for b, region in enumerate(regions(spec)))


def test_holes_agree_with_a_brute_force_check_on_a_grid() -> None:
    """On small integer-like grids a block is kept exactly when some half step of the query lies in its region."""
    grid = [x / 2 for x in range(-1, 14)]
    for seed in range(200):
        rng = random.Random(seed)

        def box(rng: random.Random = rng) -> Box:
            sides = {}
            for c in ("x", "y"):
                lo, hi = sorted((rng.randint(0, 6), rng.randint(0, 6)))
                sides[c] = Interval(lo, hi, rng.random() < 0.2 and lo < hi, rng.random() < 0.2 and lo < hi)
            return Box(sides)

        region = Region(box(), tuple(box() for _ in range(rng.randint(0, 4))))
        query = box()
        points = [{"x": x, "y": y} for x in grid for y in grid]
        truth = any(region.contains(p) and query.contains(p) for p in points)
        assert bool(RegionTable([region]).might_match([query])[0]) == truth


def test_a_query_inside_the_union_of_holes_skips_the_irregular_block() -> None:
    holes = (Box({"x": Interval(0, 5)}), Box({"x": Interval(5, 9, lo_open=True)}))
    region = Region(Box({"x": Interval(0, 20)}), holes)
    assert not region.might_match(Range("x", 3, 7))
    assert region.might_match(Range("x", 3, 9.5))


def test_a_very_deep_tree_keeps_a_flat_expression() -> None:
    spec = chain(2000)
    depth = level = 0
    for word in route_sql(spec).split():
        level += (word == "CASE") - (word == "END")
        depth = max(depth, level)
    assert depth <= 2
    assert route_numpy(spec, pa.table({"i": [None, -1, 0, 1999, 5000]})).tolist() == [0, 0, 1, 2000, 2000]
    assert layout_from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_spec_that_is_no_tree_or_of_another_format_is_refused() -> None:
    with pytest.raises(SchemaError, match="in the order of its leaves"):
        TreeLayout("x", (), (Leaf(1),))
    with pytest.raises(SchemaError, match="after its parent"):
        TreeLayout("x", ("a",), (Cut("a", "<", 1, 1, 1), Leaf(0)))
    with pytest.raises(SchemaError, match="upgrade"):
        layout_from_json({"format": 99})


def test_numpy_and_spark_route_every_row_to_the_same_block(spark: SparkSession) -> None:
    rng = random.Random(7)
    table = random_table(rng, 400)
    frame = spark.createDataFrame(table)
    specs: list[LayoutSpec] = [random_tree(rng, rng.sample(list(POOLS), 4), depth=5) for _ in range(12)]
    boundaries = {"i": (0, 2, 7), "s": ("a", "z")}
    curve = CurveLayout("hilbert", ("i", "s"), "hilbert", 2, boundaries, (3, 9))
    specs += [chain(300), curve]
    named = {f"b{n}": s for n, s in enumerate(specs)}
    routed = frame.select(*[route_spark(s).alias(n) for n, s in named.items()]).toArrow()
    for name, spec in named.items():
        assert routed[name].to_pylist() == route_numpy(spec, table).tolist(), name


# -- damaged specs -----------------------------------------------------------------------------------


def feature_layout() -> FeatureLayout:
    cells = (Cut("a", "<", 5, 1, 2), Leaf(0), Leaf(1))
    feature = Feature(Or((Range("a", 1, 3), IsNull("b"), OneOf("b", frozenset({"x"})))))
    return FeatureLayout("warp", ("a", "b"), (feature,), (Cluster(0, cells), Cluster(1)), {0: 0, 1: 1})


def grouped_tree() -> TreeLayout:
    box = Box({"a": Interval(1, 2.5), "d": Interval(date(2020, 1, 1), None)})
    nodes = (Groups((box,), (1,), 4), Cut("a", "<=", Decimal("1.5"), 2, 3), Leaf(0), Leaf(1), Leaf(2))
    return TreeLayout("paw", ("a", "d"), nodes, {"block_rows": 10}, extra=(box,))


def specs() -> list[LayoutSpec]:
    curve = CurveLayout("zorder", ("a", "b"), "zorder", 2, {"a": (1, 2, 3), "b": ("x",)}, (2, 5))
    parts = (replace(grouped_tree(), extra=()), feature_layout())
    return [feature_layout(), curve, grouped_tree(), NestedLayout("nested", "d", (date(2020, 1, 1),), parts)]


def places(document: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything inside a JSON document."""
    inside = document.items() if isinstance(document, dict) else enumerate(document)
    for name, value in inside:
        yield (*here, name)
        if isinstance(value, dict | list):
            yield from places(value, (*here, name))


def damaged(document: Any, path: tuple[Any, ...], put: Any) -> Any:
    """The document with something else, or with nothing, at the path."""
    changed = copy.deepcopy(document)
    *above, last = path
    at = changed
    for step in above:
        at = at[step]
    if put is MISSING:
        del at[last]
    else:
        at[last] = put
    return changed


MISSING = object()


@pytest.mark.parametrize("spec", specs(), ids=lambda s: s.learner)
@pytest.mark.parametrize(
    "put", [MISSING, None, "?", -1, 1e400, [], {}, [[]], {"decimal": "?"}, {"date": "2020-99-99"}], ids=repr
)
def test_a_damaged_spec_is_read_or_refused_with_one_error(spec: LayoutSpec, put: Any) -> None:
    document = json.loads(json.dumps(spec.to_json()))
    refused = 0
    for path in places(document):
        try:
            layout_from_json(damaged(document, path, put))
        except SchemaError:
            refused += 1
    assert refused >= 10


@pytest.mark.parametrize("document", [None, [], 7, "x", {}, {"format": 1}, {"format": float("inf")}])
def test_what_is_no_spec_at_all_is_refused(document: Any) -> None:
    with pytest.raises(SchemaError):
        layout_from_json(document)
