"""The table of protocol PP-E1 as sorted keys and B-trees in memory, and the truth about any set of splits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.papers._sized_tree import SizedTree, SizedTrees, grow
from parquetry.splits.cut import Splits
from parquetry.splits.entries import Keys
from parquetry.splits.ranges import KeyRanges

SHARES = (0.70, 0.15, 0.05, 0.04, 0.02, 0.01, 0.01, 0.005, 0.005, 0.004, 0.003, 0.002, 0.001)
IDS, DAYS = 20_000, 2_000
DAY_BITS, REST_BITS = 11, 33
BLOCK_ROWS = 100
LARGE = IDS // 3  # the id with half of the rows, somewhere in the middle of the order


def as_keys(numbers: np.ndarray) -> Keys:
    """Big-endian bytes: their order is that of the numbers."""
    data = numbers.astype(">u8").tobytes()
    found = np.empty(len(numbers), object)
    found[:] = [data[i : i + 8] for i in range(0, len(data), 8)]
    return found


def number(key: bytes) -> int:
    return int.from_bytes(key.ljust(8, b"\0"), "big")


@dataclass(frozen=True, eq=False)
class SkewedTable:
    """``deltas`` hold the sorted keys (id, day, rest) packed into 64 bits."""

    deltas: list[np.ndarray]
    day_weights: np.ndarray
    id_order: np.ndarray  # ids from the most to the least frequent

    @cached_property
    def trees(self) -> list[SizedTree]:
        return [_tree(keys) for keys in self.deltas]

    def index(self) -> SizedTrees:
        return SizedTrees(self.trees)

    @property
    def rows(self) -> int:
        return sum(map(len, self.deltas))

    def median_ids(self, rng: np.random.Generator, count: int) -> np.ndarray:
        middle = len(self.id_order) // 2
        return rng.choice(self.id_order[middle - 500 : middle + 500], count, replace=False)

    def query(self, ids: np.ndarray, first_day: int, last_day: int) -> KeyRanges:
        """K1 IN ids AND K2 BETWEEN first_day AND last_day."""
        base = np.sort(ids).astype(np.uint64) << np.uint64(DAY_BITS + REST_BITS)
        los = base | np.uint64(first_day << REST_BITS)
        his = base + np.uint64((last_day + 1) << REST_BITS)
        return KeyRanges(list(zip(as_keys(los), as_keys(his), strict=True)))

    def days(self, rng: np.random.Generator, selectivity: float) -> tuple[int, int]:
        """A random range of days that holds about this share of the rows of any id."""
        if selectivity >= 1:
            return 0, DAYS - 1
        before = np.concatenate(([0.0], np.cumsum(self.day_weights)))
        while True:
            first = int(rng.integers(0, DAYS))
            last = int(np.searchsorted(before, before[first] + selectivity, "left"))
            if last <= DAYS and before[last] - before[first] <= 1.3 * selectivity + 2e-4:
                return first, max(first, last - 1)

    def rows_in(self, query: KeyRanges) -> int:
        """How many rows the query has."""
        ends = [[np.uint64(number(k or b"\xff" * 8)) for k in r] for r in query.ranges]
        return int(sum((np.diff(np.searchsorted(keys, ends), axis=1)).sum() for keys in self.deltas))

    def rows_of(self, query: KeyRanges, splits: Splits) -> np.ndarray:
        """How many rows of the query each split really holds."""
        cuts = np.array([number(s.hi) for s in splits.splits[:-1] if s.hi is not None], np.uint64)
        before = np.zeros(len(cuts) + 2)
        for lo, hi in query.ranges:
            a, b = np.uint64(number(lo)), np.uint64(number(hi or b"\xff" * 8))
            inside = np.concatenate(([a], np.clip(cuts, a, b), [b]))
            before += sum(np.searchsorted(keys, inside) for keys in self.deltas)
        return np.diff(before)


def _tree(keys: np.ndarray) -> SizedTree:
    at = np.arange(0, len(keys), BLOCK_ROWS)
    starts = as_keys(keys[at])
    ends = np.append(starts[1:], as_keys(keys[-1:] + np.uint64(1)))
    return grow(starts, ends, np.diff(np.append(at, len(keys))))


def skewed_table(rows: int = 40_000_000, seed: int = 0) -> SkewedTable:
    rng = np.random.default_rng(seed)
    weights = np.arange(1, IDS + 1) ** -1.1
    order = rng.permutation(np.setdiff1d(np.arange(IDS + 1), [LARGE]))
    cumulative = np.cumsum(weights / weights.sum())
    days = rng.lognormal(0, 1.5, DAYS)
    days /= days.sum()
    day_cumulative = np.cumsum(days)
    deltas = []
    for share in SHARES:
        n = int(rows * share)
        ids = np.full(n, LARGE, np.uint64)
        ids[: n // 2] = order[np.minimum(np.searchsorted(cumulative, rng.random(n // 2)), IDS - 1)]
        day = np.minimum(np.searchsorted(day_cumulative, rng.random(n)), DAYS - 1).astype(np.uint64)
        keys = (ids << np.uint64(DAY_BITS + REST_BITS)) | (day << np.uint64(REST_BITS))
        keys |= rng.integers(0, 1 << REST_BITS, n, np.uint64)
        keys.sort()
        deltas.append(keys)
    return SkewedTable(deltas, days, order)
