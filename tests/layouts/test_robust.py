"""Robust trees: columns share a tree by allocation, whatever the queries are."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers._allocations import allocations
from parquetry.errors import SchemaError, UnknownColumn
from parquetry.layouts.learners.allocation import FANOUT, Allocation
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.box import Box, Interval
from parquetry.model.layout import Cut, Leaf, TreeLayout, layout_from_json
from tests.layouts.random_layouts import POOLS, random_table


def columns(count: int, rows: int = 1024, seed: int = 0) -> pa.Table:
    """Independent columns without duplicates: every median halves."""
    rng = np.random.default_rng(seed)
    return pa.table({f"c{i:02}": rng.permutation(rows) for i in range(count)})


def robust(table: pa.Table, block_rows: int, **how: object) -> TreeLayout:
    spec = learn("robust", table, [], LearnOptions(block_rows=block_rows, **how))  # type: ignore[arg-type]
    assert isinstance(spec, TreeLayout)
    return spec


def test_the_allocation_of_figure_2() -> None:
    """B is cut on half of the data and on a quarter of it: 0.5 * 2 + 0.25 * 2 (A-7)."""
    nodes = (
        Cut("A", "<=", 1, 1, 6),
        Cut("B", "<=", 1, 2, 5),
        Cut("D", "<=", 1, 3, 4),
        Leaf(0),
        Leaf(1),
        Leaf(2),
        Cut("C", "<=", 1, 7, 10),
        Cut("B", "<=", 1, 8, 9),
        Leaf(3),
        Leaf(4),
        Leaf(5),
    )
    found = allocations(TreeLayout("test", ("A", "B", "C", "D"), nodes))
    assert found == {"A": 2.0, "B": 1.5, "C": 1.0, "D": 0.5}


def test_eight_blocks_and_three_columns_give_each_a_fanout_of_two() -> None:
    spec = robust(columns(3), 128)
    assert spec.blocks == 8
    assert allocations(spec) == {"c00": 2.0, "c01": 2.0, "c02": 2.0}


@pytest.mark.parametrize("variant", ["even", "paper"])
@pytest.mark.parametrize(("count", "depth"), [(1, 5), (2, 6), (3, 7), (5, 7), (7, 7)])
def test_allocations_spread_by_one_node_of_the_last_level_at_most(count: int, depth: int, variant: str) -> None:
    spec = robust(columns(count, 4096), 4096 >> depth, variant=variant, seed=count)
    assert spec.blocks == 1 << depth
    found = allocations(spec).values()
    assert sum(found) == pytest.approx(FANOUT * depth)
    assert max(found) - min(found) <= FANOUT / 2 ** (depth - 1) + 1e-9


def test_far_more_columns_than_levels_are_cut() -> None:
    """With half of the data for each, twice as many as there are levels (RB-05); a k-d tree has room for six."""
    found = allocations(robust(columns(12), 16))
    assert min(found.values()) >= FANOUT / 4
    kdtree = learn("kdtree", columns(12), [], LearnOptions(16, columns=tuple(found)))
    assert isinstance(kdtree, TreeLayout)
    assert sum(got > 0 for got in allocations(kdtree).values()) == 6


def test_weights_share_the_tree_in_proportion() -> None:
    found = allocations(robust(columns(3, 4096), 16, weights={"c00": 6.0, "c02": 0.0}))
    assert found["c02"] == 0
    assert found["c00"] / found["c01"] == pytest.approx(6, rel=0.05)


def test_a_column_that_cannot_cut_a_branch_is_passed_over_and_keeps_its_share() -> None:
    rng = np.random.default_rng(1)
    table = pa.table({"flag": rng.integers(0, 2, 1024), "n": rng.permutation(1024), "one": np.full(1024, 3)})
    spec = robust(table, 32)
    assert spec.columns == ("flag", "n")
    paths = _paths(spec)
    assert all(path.count("flag") == 1 for path in paths)  # once cut, it is the same everywhere below
    sizes = np.bincount(route_numpy(spec, table))
    assert sizes.min() >= 32
    assert sizes.max() < 2 * 64


def test_data_that_nothing_can_cut_is_one_block() -> None:
    assert robust(pa.table({"one": [7] * 100, "none": pa.nulls(100, pa.int32())}), 5).blocks == 1
    assert robust(columns(2, 100), 101).blocks == 1
    assert robust(pa.table({"a": pa.array([], pa.int64())}), 5).blocks == 1
    assert robust(columns(2), 16, weights={"c00": 0.0, "c01": 0.0}).blocks == 1


def test_the_paper_variant_cuts_below_the_median_to_the_stated_depth() -> None:
    table = pa.table({"a": [1, 2, 2, 2, 2, 2, 2, 9]})
    spec = robust(table, 3, variant="paper")  # three blocks at least, so two levels
    assert spec.nodes[0] == Cut("a", "<", 2, 1, 2)
    assert route_numpy(spec, table).tolist() == [0, 1, 1, 1, 1, 1, 1, 2]
    most = robust(pa.table({"a": [5, 5, 5, 8]}), 2, variant="paper")
    assert most.nodes[0] == Cut("a", "<=", 5, 1, 2)  # nothing lies below the median


def test_the_seed_decides_between_equal_columns() -> None:
    roots = {robust(columns(6), 16, seed=seed).nodes[0].column for seed in range(20)}  # type: ignore[union-attr]
    assert len(roots) > 2
    assert robust(columns(6), 16, seed=4) == robust(columns(6), 16, seed=4)


def test_the_most_remaining_comes_first_and_ties_go_to_the_least_used() -> None:
    shares = Allocation(["a", "b", "c"], 3, {"a": 2.0}, seed=0)
    assert shares.left == {0: 3.0, 1: 1.5, 2: 1.5}
    assert shares.order(2.0, [])[0] == 0
    shares.take(0, 1.5)
    assert shares.order(0.5, [0, 0, 1]) == [2, 1, 0]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    block_rows=st.integers(1, 60),
    paper=st.booleans(),
    learner=st.sampled_from(["robust", "two_phase"]),
)
def test_any_data_gives_a_layout_that_keeps_every_row_once_and_loses_none(
    seed: int, block_rows: int, paper: bool, learner: str
) -> None:
    rng = random.Random(seed)
    table = random_table(rng, rng.randint(0, 150), rng.sample(list(POOLS), rng.randint(1, 5)))
    options = LearnOptions(block_rows=block_rows, variant="paper" if paper else "even", seed=seed)
    spec = learn(learner, table, [], options)
    assert layout_from_json(json.loads(json.dumps(spec.to_json()))).to_json() == spec.to_json()
    blocks = route_numpy(spec, table)
    found = regions(spec)
    assert all(found[b].contains(row) for row, b in zip(table.to_pylist(), blocks.tolist(), strict=True))
    if table.num_rows and not paper:
        assert np.bincount(blocks, minlength=spec.blocks).min() >= min(block_rows, table.num_rows)


def test_every_column_skips_something() -> None:
    table = columns(8, 4096)
    spec = robust(table, 32)
    known, sizes = RegionTable(regions(spec)), np.bincount(route_numpy(spec, table))
    for c in table.column_names:
        read = [sizes[known.might_match([Box({c: Interval(lo, lo + 409)})])].sum() for lo in range(0, 3687, 300)]
        assert np.mean(read) < 0.7 * 4096


def test_wrong_words_are_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="variants even and paper"):
        robust(columns(1), 10, variant="magic")
    with pytest.raises(UnknownColumn, match="nope"):
        robust(columns(1), 10, weights={"nope": 1.0})
    with pytest.raises(SchemaError, match="weight of column 'c00'"):
        robust(columns(1), 10, weights={"c00": -1.0})


def _paths(spec: TreeLayout) -> list[list[str]]:
    """The columns cut on from the root to each block."""
    found, waiting = [], {0: list[str]()}
    for i, node in enumerate(spec.nodes):
        path = waiting.pop(i)
        if isinstance(node, Cut):
            waiting[node.left] = waiting[node.right] = [*path, node.column]
        else:
            found.append(path)
    return found
