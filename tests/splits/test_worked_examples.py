"""The worked examples of the paper: Figures 3 to 6 and the targets of section 5.4 (A-1 … A-4)."""

from __future__ import annotations

import numpy as np

from benchmarks.papers._sized_tree import SizedTrees, grow
from parquetry.model.key_ranges import key_ranges
from parquetry.model.predicate import And, OneOf, Range
from parquetry.model.schema import Column, TableSchema
from parquetry.splits.candidates import accumulate, cut_pairs
from parquetry.splits.cut import Precision, cut_into_splits
from parquetry.splits.entries import Entries, concat, keys_of, make_entries
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish, choose_points, judge, targets


def of_delta(delta: int, *entries: tuple[str, str, float]) -> Entries:
    starts, ends = keys_of([s.encode() for s, _, _ in entries]), keys_of([e.encode() for _, e, _ in entries])
    return make_entries(delta, 1, 0, [size for _, _, size in entries], starts, ends)


FIGURE_5 = concat([of_delta(0, ("K1", "K3", 15), ("K4", "K8", 20)), of_delta(1, ("K2", "K5", 20), ("K6", "K7", 15))])
FIGURE_6 = concat(
    [
        of_delta(0, ("K2", "K5", 1)),
        of_delta(1, ("K2", "K4", 1), ("K5", "K7", 1)),
        of_delta(2, ("K1", "K3", 1), ("K3", "K6", 1)),
        of_delta(3, ("K4", "K8", 1)),
    ]
)


def test_figure_5_sizes_margin_and_choice() -> None:
    c = accumulate(FIGURE_5)
    assert [k.decode() for k in c.keys] == [f"K{i}" for i in range(1, 9)]
    assert c.total == 70
    (point,) = choose_points(c, targets(c.total, 2), narrow_ties=False)
    assert (c.keys[point], c.keys[point + 1]) == (b"K4", b"K5")
    assert (c.low[point], c.high[point]) == (15, 55)
    judged = judge(c, np.array([point]), theta=1.0)
    assert judged.sizes.tolist() == [35, 35]
    assert judged.margins.tolist() == [40]
    assert judged.unqualified.all()  # 40 / 35 > 1
    assert not judge(c, np.array([point]), theta=1.2).unqualified.any()


def test_figure_5_drills_the_two_entries_that_are_cut() -> None:
    c = accumulate(FIGURE_5)
    _, cut = cut_pairs(c, np.array([3]))
    assert {(FIGURE_5.starts[i], FIGURE_5.ends[i]) for i in cut} == {(b"K4", b"K8"), (b"K2", b"K5")}


def test_of_equally_near_points_the_default_takes_one_with_a_smaller_margin() -> None:
    c = accumulate(FIGURE_5)
    (point,) = choose_points(c, targets(c.total, 2), narrow_ties=True)
    distance = max(abs(35 - c.low[point]), abs(35 - c.high[point]))
    assert (distance, c.high[point] - c.low[point]) == (20, 20)


def test_figure_6_cut_and_mapping() -> None:
    c = accumulate(FIGURE_6)
    point, entry = cut_pairs(c, np.array([3, 4]))
    at_k4 = {(int(FIGURE_6.delta[e]), int(FIGURE_6.first[e])) for p, e in zip(point, entry, strict=True) if p == 3}
    at_k5 = {(int(FIGURE_6.delta[e]), int(FIGURE_6.first[e])) for p, e in zip(point, entry, strict=True) if p == 4}
    assert at_k4 == {(0, 0), (2, 1), (3, 0)}
    assert at_k5 == {(1, 1), (2, 1), (3, 0)}
    second = FIGURE_6.delta == 1
    mapping = np.stack((c.start_at[second], c.end_at[second]), 1).ravel() + 1
    assert mapping.tolist() == [2, 4, 5, 7]


def test_figure_4_drills_down_only_where_the_split_is() -> None:
    """Two deltas, P = 2, one of them deep: the wave goes down around the split, not everywhere."""
    keys = [f"{i:04}".encode() for i in range(4001)]
    deep = grow(keys[:4000], keys[1:], np.ones(4000), leaf=10, inner=20)
    flat = grow(keys[:4000:500], keys[500::500], np.full(8, 10.0), leaf=10, inner=20)
    for mode in ("literal", "default"):
        index = SizedTrees([deep, flat])
        found = cut_into_splits(index, KeyRanges.everything(), Wish(2), Precision(0.01, mode))
        assert len(found) == 2
        assert found.nodes < 20 < 400  # of 400 leaves
        assert abs(found.splits[0].size - found.splits[1].size) <= 0.01 * found.total


def test_targets_of_section_5_4() -> None:
    assert targets(1000, 10).tolist() == [100, 200, 300, 400, 500, 600, 700, 800, 900]


def test_three_customers_and_a_range_of_dates_are_three_ranges() -> None:
    schema = TableSchema((Column("customer", "int"), Column("day", "int")), ("customer", "day"))
    ranges = key_ranges(And((OneOf("customer", frozenset({1, 2, 3})), Range("day", 10, 20))), schema)
    assert ranges is not None
    assert len(ranges) == 3
