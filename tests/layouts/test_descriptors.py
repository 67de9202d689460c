from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.papers._measure import pick_extra_block
from parquetry.layouts.learners.extra import choose_extra_blocks
from parquetry.layouts.learners.kdtree import learn_kdtree
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.pruning.descriptors import BoxTable, describe
from parquetry.layouts.routing.extra_blocks import rows_of
from parquetry.model.box import Box, Interval
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Range
from parquetry.workload.boxes import to_boxes
from tests.layouts.random_layouts import POOLS, random_predicate, random_table, satisfies


@pytest.mark.parametrize("method", ["gaps", "str"])
@pytest.mark.parametrize("seed", range(20))
def test_precise_boxes_hold_every_row_and_prune_none_that_matches(method: str, seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(list(POOLS), rng.randint(1, 3))
    blocks = [random_table(rng, rng.randint(0, 40), names) for _ in range(5)]
    boxes = [describe(b, names, 3, method) for b in blocks]
    for block, some in zip(blocks, boxes, strict=True):
        assert len(some) <= 3
        assert all(any(box.contains(row) for box in some) for row in block.to_pylist())
    table = BoxTable([*boxes, None])
    for _ in range(10):
        predicate = random_predicate(rng, names)
        query = to_boxes(predicate).boxes
        might = table.might_match(query)
        assert all(might[i] for i, b in enumerate(blocks) if any(satisfies(predicate, r) for r in b.to_pylist()))
        assert might[-1]


def test_two_clusters_get_a_box_each_so_the_space_between_is_skipped() -> None:
    """Figure 11: the query meets the block's bounding box and none of its precise ones."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 10, 100), rng.uniform(90, 100, 100)])
    block = pa.table({"x": x, "y": x})
    between = [Box({"x": Interval(40, 60)})]
    assert BoxTable([describe(block, ["x", "y"], 1)]).might_match(between).tolist() == [True]
    assert BoxTable([describe(block, ["x", "y"], 2)]).might_match(between).tolist() == [False]


def test_extra_blocks_stay_within_the_budget_and_are_used_only_where_they_help() -> None:
    rng = np.random.default_rng(1)
    table = pa.table({"x": rng.uniform(0, 100, 20_000), "y": rng.uniform(0, 100, 20_000)})
    logged = [LoggedQuery(And((Range("x", v, v + 12), Range("y", v, v + 12)))) for v in (5.0, 30.0, 44.0, 70.0)]
    options = LearnOptions(200, delta=0.01)
    spec = learn_kdtree(table, logged, LearnOptions(1000))
    chosen = choose_extra_blocks(spec, table, logged, options, budget_rows=1000)
    assert chosen
    assert sum(e.rows for e in chosen) <= 1000
    for e in chosen:
        assert len(rows_of(table, [e.box])[0]) <= e.rows
    inner = [Box({"x": Interval(*_shrunk(chosen[0].box, "x")), "y": Interval(*_shrunk(chosen[0].box, "y"))})]
    assert pick_extra_block(chosen, inner, normal_rows=5000) == 0
    assert pick_extra_block(chosen, inner, normal_rows=chosen[0].rows) is None
    assert pick_extra_block(chosen, [Box()], normal_rows=5000) is None
    assert choose_extra_blocks(spec, table, logged, options, budget_rows=10) == ()


def _shrunk(box: Box, column: str) -> tuple[float, float]:
    return box.intervals[column].lo + 0.1, box.intervals[column].hi - 0.1
