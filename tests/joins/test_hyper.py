"""Groups of a hyper join hold every build block once, with all that it meets, and read little more than they must."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers._optimal_groups import optimal
from parquetry.joins.grouping import bottom_up, cost_of, group_blocks
from parquetry.joins.hyper import common_ranges, hyper_groups
from parquetry.joins.overlap import Ranges, overlap_vectors

blocks = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=24)


def ranges(found: list[tuple[int, int]]) -> Ranges:
    lo = np.array([a for a, _ in found], np.int64)
    return Ranges(lo, lo + np.array([n for _, n in found], np.int64))


@given(build=blocks, probe=blocks, most=st.integers(1, 200), groups=st.integers(1, 6), whole=st.booleans())
def test_every_build_block_is_in_one_group_with_all_that_it_meets(
    build: list[tuple[int, int]], probe: list[tuple[int, int]], most: int, groups: int, whole: bool
) -> None:
    b, p = ranges(build), ranges(probe)
    sizes = np.full(len(b), 10, np.int64)
    found = hyper_groups(b, sizes, [p], most, groups, whole_values=whole)
    assert found is not None
    assert sorted(int(i) for g in found for i in g.build) == list(range(len(b)))
    met = overlap_vectors(b, p)
    for g in found:
        assert set(np.flatnonzero(met[g.build].any(axis=0)).tolist()) == set(g.probes[0].tolist())
        assert len(g.build) == 1 or whole or sizes[g.build].sum() <= max(most, 10)
    if whole:
        of = {int(i): n for n, g in enumerate(found) for i in g.build}
        together = overlap_vectors(b, b)
        assert all(of[i] == of[j] for i, j in np.argwhere(together).tolist())


def test_ranges_of_several_tables_have_one_order_and_nulls_span_everything() -> None:
    left = pa.array(["b", "x", None]), pa.array(["c", "z", None])
    right = pa.array(["a", "cc"]), pa.array(["aa", "y"])
    a, b = common_ranges([left, right])
    assert overlap_vectors(a, b).tolist() == [[False, False], [False, True], [True, True]]


@pytest.mark.parametrize("seed", range(4))
def test_groups_are_near_the_optimum_and_no_worse_than_the_papers_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.integers(0, 1000, 14))
    b = ranges([(int(s), int(w)) for s, w in zip(starts, rng.integers(20, 150, 14), strict=True)])
    p = ranges([(int(s), 80) for s in range(0, 1000, 80)])
    met, sizes = overlap_vectors(b, p), np.ones(len(b), np.int64)
    best = optimal(met, 4, seconds=30)
    assert best is not None
    found = cost_of(group_blocks(met, b.order, sizes, 4), met)
    assert found <= 1.1 * cost_of(best, met)
    assert found <= cost_of(bottom_up(met, b.order, sizes, 4), met)


def test_too_many_blocks_are_not_compared() -> None:
    many = ranges([(i, 0) for i in range(20_000)])
    assert hyper_groups(many, np.ones(20_000, np.int64), [many], 10, 1, whole_values=False) is None
