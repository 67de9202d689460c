"""Trees for several copies of a table (RB-06)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.papers._allocations import allocations
from benchmarks.papers._replicas import learn_replicas
from parquetry.errors import SchemaError
from parquetry.layouts.learners.options import LearnOptions
from tests.layouts.test_robust import columns

OPTIONS = LearnOptions(block_rows=16)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_every_column_is_cut_in_exactly_one_copy(copies: int) -> None:
    trees = learn_replicas(columns(9), OPTIONS, copies)
    assert len(trees) == copies
    assert sorted(c for tree in trees for c in tree.columns) == columns(9).column_names
    for tree in trees:
        got = allocations(tree)
        assert min(got.values()) >= 0.8 * 2 * 6 * copies / 9  # six levels shared by fewer columns


def test_columns_with_few_values_are_dealt_out_evenly() -> None:
    rng = np.random.default_rng(0)
    flags = {f"flag{i}": rng.integers(0, 2, 1024) for i in range(4)}
    table = pa.table({**flags, **{c: columns(4)[c] for c in columns(4).column_names}})
    for tree in learn_replicas(table, OPTIONS, 2):
        assert sum(c.startswith("flag") for c in tree.columns) == 2


def test_more_copies_than_columns_repeat_them() -> None:
    trees = learn_replicas(columns(1), OPTIONS, 3)
    assert [tree.columns for tree in trees] == [("c00",)] * 3


def test_weights_stay_with_their_columns() -> None:
    trees = learn_replicas(columns(4), LearnOptions(block_rows=16, weights={"c00": 3.0}), 2)
    own = next(tree for tree in trees if "c00" in tree.columns)
    got = allocations(own)
    assert got["c00"] > 2 * min(got.values())


def test_a_table_has_at_least_one_copy() -> None:
    with pytest.raises(SchemaError, match="at least one copy"):
        learn_replicas(columns(2), OPTIONS, 0)
