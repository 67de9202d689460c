"""What holds for every learner: rows are kept once, blocks are large enough, odd input gives sensible layouts."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from parquetry.errors import ParquetryError, SchemaError, UnknownColumn
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.registry import LEARNERS, learn
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import layout_from_json
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Range
from parquetry.workload.boxes import to_boxes
from tests.layouts.random_layouts import POOLS, random_predicate, random_table, satisfies

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in LEARNERS),
    ("kdtree", {"variant": "stop"}),
    ("qdtree", {"variant": "extended", "delta": 0.02}),
    ("paw", {"refine": False, "delta": 0.05}),
    ("paw", {"delta": 0.0}),
    ("paw", {"delta": 0.01, "variant": "paper"}),
    ("paw", {"delta_estimate": "matching"}),
    ("warp", {"variant": "paper", "features": 4}),
    ("two_phase", {"join_levels": 1, "seed": 3}),
]


@pytest.mark.parametrize(("name", "how"), VARIANTS, ids=lambda v: str(v))
@pytest.mark.parametrize("seed", range(6))
def test_learned_layouts_keep_every_row_and_prune_none_that_matches(name: str, how: dict[str, Any], seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(list(POOLS), rng.randint(1, 4))
    table = random_table(rng, 300, names)
    workload = [LoggedQuery(random_predicate(rng, names)) for _ in range(12)]
    spec = learn(name, table, workload, LearnOptions(block_rows=20, **how))
    assert layout_from_json(json.loads(json.dumps(spec.to_json()))).to_json() == spec.to_json()
    blocks = route_numpy(spec, table)
    sizes = np.bincount(blocks, minlength=spec.blocks)
    assert len(sizes) == spec.blocks
    if name == "warp" and spec.blocks > 1:
        sizes = sizes[:-1]  # the last one takes rows unlike any seen
    if name not in ("zorder", "hilbert"):  # these cut equal stretches, which ties make uneven
        assert sizes.min() >= 20
    known = RegionTable(regions(spec))
    for row, block in zip(table.to_pylist(), blocks.tolist(), strict=True):
        assert regions(spec)[block].contains(row)
    for _ in range(8):
        predicate = random_predicate(rng, names)
        might = known.might_match(to_boxes(predicate).boxes)
        rows = zip(table.to_pylist(), blocks.tolist(), strict=True)
        assert all(might[b] for row, b in rows if satisfies(predicate, row))


def numbers(rows: int = 1000) -> pa.Table:
    return pa.table({"a": np.arange(rows), "one": np.full(rows, 7), "none": pa.nulls(rows, pa.int32())})


SOME = [LoggedQuery(Range("a", n, n + 30)) for n in range(0, 900, 100)]
CUTTING = [name for name in LEARNERS if name != "key"]


@pytest.mark.parametrize("name", [name for name in CUTTING if LEARNERS[name].needs_queries])
def test_an_empty_workload_needs_columns(name: str) -> None:
    with pytest.raises(ParquetryError, match="needs a workload"):
        learn(name, numbers(), [], LearnOptions(block_rows=100))
    assert learn(name, numbers(), [], LearnOptions(block_rows=100, columns=("a",))).blocks >= 1


@pytest.mark.parametrize("name", CUTTING)
def test_blocks_larger_than_the_table_give_one_block(name: str) -> None:
    assert learn(name, numbers(), SOME, LearnOptions(block_rows=5000)).blocks == 1


@pytest.mark.parametrize("name", CUTTING)
def test_columns_with_one_value_or_none_are_passed_over(name: str) -> None:
    spec = learn(name, numbers(), SOME, LearnOptions(block_rows=100, columns=("one", "none")))
    assert spec.blocks == 1
    mixed = [LoggedQuery(And((Range("one", 1, 9), Range("none", 1, 9), Range("a", 5, 400))))]
    assert learn(name, numbers(), mixed, LearnOptions(block_rows=100)).columns == ("a",)


def test_unknown_and_nested_columns_are_refused_by_name() -> None:
    with pytest.raises(UnknownColumn, match="nope"):
        learn("paw", numbers(), SOME, LearnOptions(block_rows=100, columns=("nope",)))
    nested = pa.table({"n": pa.array([[1], [2]])})
    with pytest.raises(SchemaError, match="no order"):
        learn("kdtree", nested, [], LearnOptions(block_rows=1, columns=("n",)))
    with pytest.raises(SchemaError, match="layouts: key"):
        learn("magic", numbers(), SOME, LearnOptions(block_rows=100))


def test_block_sizes_scale_with_the_sample() -> None:
    sample = numbers(1000)  # of a table of 10,000
    spec = learn("kdtree", sample, SOME, LearnOptions(block_rows=1000, sample_rate=0.1, columns=("a",)))
    assert np.bincount(route_numpy(spec, sample)).min() >= 100
    assert spec.blocks == 8
