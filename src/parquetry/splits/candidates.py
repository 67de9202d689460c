"""Split point candidates: the keys of all matching entries with bounds on the size before each (PP-26…PP-28)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parquetry.splits.entries import Entries, Floats, Ints, Keys


@dataclass(frozen=True, eq=False)
class Candidates:
    """K, C and M of the paper. Candidate ``i`` cuts somewhere in ``(keys[i], keys[i + 1]]``.

    Of the matching data at least ``low[i]`` and at most ``high[i]`` lies before such a cut. Entry ``e`` goes from key
    ``start_at[e]`` to key ``end_at[e]``: two integers each, so that finding what a point cuts compares no keys (PP-38).
    """

    keys: Keys
    low: Floats
    high: Floats
    start_at: Ints
    end_at: Ints

    @property
    def total(self) -> float:
        return float(self.high[-1]) if len(self.high) else 0.0

    @property
    def count(self) -> int:
        """How many candidates there are: one fewer than keys."""
        return max(0, len(self.keys) - 1)


def accumulate(entries: Entries) -> Candidates:
    """Sorts the distinct start and end keys, and adds sizes up along them (3.1-2)."""
    n = len(entries)
    # Where an entry ends at the start of the next one, that key is sorted only once.
    own = np.ones(n, bool)
    own[:-1] = (entries.ends[:-1] != entries.starts[1:]).astype(bool)
    every = np.concatenate((entries.starts, entries.ends[own]))
    order = np.argsort(every, kind="stable")  # entries come in sorted runs, which this sort merges
    ordered = every[order]
    distinct = np.ones(len(every), bool)
    distinct[1:] = (ordered[1:] != ordered[:-1]).astype(bool)
    at = np.empty(len(every), np.int64)
    at[order] = np.cumsum(distinct) - 1
    start_at, end_at = at[:n], np.empty(n, np.int64)
    end_at[own] = at[n:]
    end_at[~own] = start_at[1:][~own[:-1]]
    keys = ordered[distinct]
    low, high = running_sizes(start_at, end_at, entries.sizes, len(keys))
    return Candidates(keys, low, high, start_at, end_at)


def running_sizes(start_at: Ints, end_at: Ints, sizes: Floats, keys: int) -> tuple[Floats, Floats]:
    """Along the keys: the sizes of entries that have ended, and of those that have started."""
    low, high = (np.cumsum(np.bincount(at, sizes, keys), dtype=np.float64) for at in (end_at, start_at))
    return low, high


def cut_pairs(candidates: Candidates, points: Ints) -> tuple[Ints, Ints]:
    """All pairs (point, entry) where the point cuts the entry (PP-34). ``points`` are sorted and distinct.

    An entry is cut by a run of neighbouring points, found by two binary searches among integers.
    """
    first = np.searchsorted(points, candidates.start_at, "left")
    count = np.searchsorted(points, candidates.end_at, "left") - first
    count[count < 0] = 0
    entry = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return points[np.arange(len(entry)) - before[entry] + first[entry]], entry
