"""What holds of every set of splits, in both modes and for the baselines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers._sized_tree import SizedTree, SizedTrees, grow
from benchmarks.papers._splits_baselines import fixed_boundaries, fixed_level, fixed_size, read_to_level, sequential
from parquetry.errors import QueryError
from parquetry.splits.candidates import accumulate
from parquetry.splits.cut import Precision, Splits, cut_into_splits
from parquetry.splits.entries import Entries
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish, choose_points, targets
from parquetry.splits.shorten_key import shorten_bytes

keys = st.binary(min_size=1, max_size=3)
deltas = st.lists(st.lists(keys, min_size=1, max_size=60), min_size=1, max_size=5)
key_ranges = st.lists(st.tuples(keys, keys), max_size=4)


def tree(rows: list[bytes], block: int = 3) -> SizedTree:
    """Rows of one delta, in data blocks of three, leaves of two blocks, nodes of three entries."""
    rows = sorted(rows)
    starts = rows[::block]
    last = [rows[min(i + block, len(rows)) - 1] for i in range(0, len(rows), block)]
    sizes = [min(block, len(rows) - i) for i in range(0, len(rows), block)]
    return grow(starts, [k + b"\0" for k in last], sizes, leaf=2, inner=3)


def query_of(pairs: list[tuple[bytes, bytes]]) -> KeyRanges:
    if not pairs:
        return KeyRanges.everything()
    merged: list[tuple[bytes, bytes | None]] = []
    for lo, hi in sorted((min(p), max(p)) for p in pairs if p[0] != p[1]):
        if merged and lo <= (merged[-1][1] or b""):
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1] or b""))
        else:
            merged.append((lo, hi))
    return KeyRanges(merged)


def matching(rows: list[list[bytes]], query: KeyRanges) -> list[bytes]:
    return [k for d in rows for k in d if any(lo <= k and (hi is None or k < hi) for lo, hi in query.ranges)]


def check(found: Splits, rows: list[list[bytes]], query: KeyRanges) -> None:
    wanted = matching(rows, query)
    if not found.splits:
        assert not wanted
        return
    assert found.splits[0].lo is None
    assert found.splits[-1].hi is None
    borders = [s.hi for s in found.splits[:-1]]
    assert borders == [s.lo for s in found.splits[1:]]  # every key in exactly one split, and in order
    assert all(a < b for a, b in zip(borders, borders[1:], strict=False))  # type: ignore[operator]
    for s in found.splits:
        held = sum((s.lo is None or s.lo <= k) and (s.hi is None or k < s.hi) for k in wanted)
        assert s.least <= held <= s.most + 1e-9


@settings(max_examples=300, deadline=None)
@given(
    deltas,
    key_ranges,
    st.integers(1, 12),
    st.sampled_from(["literal", "default"]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_splits_cover_the_query_once_in_order_within_true_bounds(
    rows: list[list[bytes]], pairs: list[tuple[bytes, bytes]], splits: int, mode: str, theta: float
) -> None:
    index, query = SizedTrees([tree(d) for d in rows]), query_of(pairs)
    found = cut_into_splits(index, query, Wish(splits), Precision(theta, mode))
    assert len(found) <= splits
    check(found, rows, query)
    assert found.nodes == sum(index.reads)
    assert found.rounds == len(index.reads)


@settings(max_examples=100, deadline=None)
@given(deltas, key_ranges, st.integers(1, 12), st.sampled_from([0, 1, 2]))
def test_fixed_levels_cover_the_query(
    rows: list[list[bytes]], pairs: list[tuple[bytes, bytes]], splits: int, level: int
) -> None:
    query = query_of(pairs)
    check(fixed_level(SizedTrees([tree(d) for d in rows]), query, Wish(splits), level), rows, query)


@settings(max_examples=100, deadline=None)
@given(deltas, key_ranges, st.integers(1, 12), st.floats(1, 50))
def test_fixed_sizes_and_one_worker_cover_the_query(
    rows: list[list[bytes]], pairs: list[tuple[bytes, bytes]], splits: int, size: float
) -> None:
    query, index = query_of(pairs), SizedTrees([tree(d) for d in rows])
    wanted = matching(rows, query)
    for found in (fixed_size(fixed_boundaries(index, size), size, query, splits), sequential(index, query)):
        held = sum((s.lo is None or s.lo <= k) and (s.hi is None or k < s.hi) for s in found.splits for k in wanted)
        assert held == len(wanted)


@settings(max_examples=200, deadline=None)
@given(deltas, st.integers(2, 9), st.booleans())
def test_chosen_points_are_the_nearest_of_all(rows: list[list[bytes]], splits: int, narrow: bool) -> None:
    c = accumulate(KeyRanges.everything().match(_all_leaves(rows)))
    wanted = targets(c.total, splits)
    points = choose_points(c, wanted, narrow_ties=narrow)
    for t, p in zip(wanted, points, strict=True):
        distance = [max(abs(t - c.low[i]), abs(t - c.high[i])) for i in range(c.count)]
        assert distance[p] == pytest.approx(min(distance))
        if narrow:
            near = [i for i in range(c.count) if distance[i] == distance[p]]
            assert c.high[p] - c.low[p] <= min(c.high[i] - c.low[i] for i in near) + 1e-9


def _all_leaves(rows: list[list[bytes]]) -> Entries:
    return read_to_level(SizedTrees([tree(d) for d in rows]), KeyRanges.everything(), 0)[0]


@given(keys, keys)
def test_a_shortened_key_tells_its_sides_apart(a: bytes, b: bytes) -> None:
    if a != b:
        low, high = sorted((a, b))
        short = shorten_bytes(low, high)
        assert low < short <= high
        assert high.startswith(short)
        assert not low < short[:-1]  # one byte less would not do


def test_theta_zero_is_as_even_as_reading_every_leaf() -> None:
    rng = np.random.default_rng(0)
    rows = [[int(x).to_bytes(3, "big") for x in rng.integers(0, 1 << 20, n)] for n in (3000, 500, 60)]
    index = SizedTrees([tree(d) for d in rows])
    # The literal algorithm stops early here: between entries that do not touch, a point cuts nothing it could read.
    found = cut_into_splits(index, KeyRanges.everything(), Wish(20), Precision(0.0))
    level_0 = fixed_level(index, KeyRanges.everything(), Wish(20), 0)
    assert max(s.size for s in found.splits) <= 1.02 * max(s.size for s in level_0.splits)


def test_a_large_entry_beside_a_small_query_does_not_distort_it() -> None:
    """The phantom mass (3.1-10): the literal algorithm keeps the full size of entries that only touch the query."""
    rows = [[i.to_bytes(4, "big") for i in range(200_000)]]
    starts, size = rows[0][::100], np.full(2000, 100.0)
    index = SizedTrees([grow(starts, [*starts[1:], rows[0][-1] + b"\0"], size, leaf=10, inner=100)])
    query = KeyRanges([((9_950).to_bytes(4, "big"), (20_050).to_bytes(4, "big"))])
    found = cut_into_splits(index, query, Wish(10))
    held = np.diff([9_950, *(int.from_bytes(s.hi.ljust(4, b"\0"), "big") for s in found.splits[:-1] if s.hi), 20_050])
    assert len(found) == 10
    assert held.max() <= 1.35 * held.mean()


@pytest.mark.parametrize(("total", "expected"), [(1000, 10), (95, 9), (9, 1), (0, 1)])
def test_a_least_size_lowers_the_number_of_splits(total: float, expected: int) -> None:
    assert Wish(10, min_size=10).derive(total) == expected


@pytest.mark.parametrize(("total", "expected"), [(1000, 10), (95, 2), (50, 1), (0, 1)])
def test_a_largest_size_sets_the_number_of_splits(total: float, expected: int) -> None:
    assert Wish(10, max_size=50).derive(total) == expected


def test_the_number_of_splits_follows_the_last_estimate() -> None:
    rng = np.random.default_rng(1)
    rows = sorted(int(x).to_bytes(3, "big") for x in rng.integers(0, 1 << 20, 9000))
    query = KeyRanges([((1000).to_bytes(3, "big"), (200_000).to_bytes(3, "big"))])
    found = cut_into_splits(SizedTrees([tree(rows)]), query, Wish(50, min_size=40))
    assert found.wanted == max(1, min(50, int(found.total // 40)))
    assert found.total < 9000


@pytest.mark.parametrize("wish", [{"splits": 0}, {"splits": 4, "min_size": -1}, {"splits": 4, "max_size": 0}])
def test_senseless_wishes_are_refused(wish: dict[str, float]) -> None:
    with pytest.raises(QueryError):
        Wish(**wish)  # type: ignore[arg-type]


def test_one_key_with_nearly_all_rows_ends_quickly() -> None:
    rows = [b"m"] * 9900 + [bytes([i]) for i in range(100)]
    for mode in ("literal", "default"):
        found = cut_into_splits(SizedTrees([tree(rows)]), KeyRanges.everything(), Wish(8), Precision(mode=mode))
        check(found, [rows], KeyRanges.everything())


def test_ten_thousand_ranges_and_more_splits_than_rows() -> None:
    rows = [[i.to_bytes(3, "big") for i in range(0, 60_000, 3)], [i.to_bytes(3, "big") for i in range(0, 60_000, 1000)]]
    query = KeyRanges([(i.to_bytes(3, "big"), (i + 1).to_bytes(3, "big")) for i in range(0, 60_000, 6)])
    found = cut_into_splits(SizedTrees([tree(d) for d in rows]), query, Wish(50_000))
    assert 5000 < len(found) <= 10_060
    check(found, [d[:300] for d in rows][:0], query)


def test_an_empty_query_has_no_splits() -> None:
    index = SizedTrees([tree([b"a", b"b"])])
    assert not cut_into_splits(index, KeyRanges([]), Wish(4)).splits
    assert not cut_into_splits(index, KeyRanges([(b"x", b"y")]), Wish(4)).splits


@settings(max_examples=200, deadline=None)
@given(deltas, key_ranges)
def test_matching_node_by_node_is_the_same(rows: list[list[bytes]], pairs: list[tuple[bytes, bytes]]) -> None:
    query, every = query_of(pairs), _all_leaves(rows)
    for node in (every.delta, every.delta * 1000 + every.first // 2):
        one, other = query.match(every), query.match_nodes(every, node)
        assert one.starts.tolist() == other.starts.tolist()
        assert one.partial.tolist() == other.partial.tolist()
