"""Choosing split points among candidates, and judging them (PP-19…PP-21, PP-30…PP-33)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from parquetry.errors import QueryError
from parquetry.splits.candidates import Candidates
from parquetry.splits.entries import Floats, Ints, Mask


@dataclass(frozen=True)
class Wish:
    """How many splits: at most ``splits``, none below ``min_size`` on average, or as few as ``max_size`` allows.

    ``min_size`` keeps small queries from being cut too fine (PP-19); with ``max_size`` the number follows from the
    size of the query, up to ``splits`` (PP-20).
    """

    splits: int
    min_size: float = 0.0
    max_size: float | None = None

    def __post_init__(self) -> None:
        if self.splits < 1:
            raise QueryError(f"the number of splits must be at least 1, not {self.splits}")
        if self.min_size < 0 or (self.max_size is not None and self.max_size <= 0):
            raise QueryError("sizes of splits must be positive")

    def derive(self, total: float) -> int:
        """P for a query that is now estimated at ``total`` (3.1-21). Asked again in every round (PP-21)."""
        wanted = self.splits
        if self.max_size is not None:
            wanted = min(wanted, math.ceil(total / self.max_size))
        if self.min_size:
            wanted = min(wanted, int(total // self.min_size))
        return max(1, wanted)


def targets(total: float, splits: int) -> Floats:
    """The sizes before the ideal split points.

    >>> targets(1000, 10).tolist()
    [100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0]
    """
    return total * np.arange(1, splits) / splits


def choose_points(c: Candidates, wanted: Floats, *, narrow_ties: bool) -> Ints:
    """For each target the candidate whose bounds are nearest to it, by binary search (PP-32, 3.1-5).

    The distance ``max(|t - low|, |t - high|)`` falls and then rises along the candidates. ``narrow_ties`` takes, of
    equally near candidates, one with the smallest margin.
    """
    last = c.count - 1
    low, high = c.low[: last + 1], c.high[: last + 1]
    after = np.clip(np.searchsorted(low + high, 2 * wanted, "left"), 0, last)
    before = np.maximum(after - 1, 0)
    if narrow_ties:
        # Where one bound stays the same, the distance does too and the margin changes.
        before = np.searchsorted(low, low[before], "left")
        after = np.searchsorted(high, high[after], "right") - 1

    def distance(i: Ints) -> Floats:
        found: Floats = np.maximum(np.abs(wanted - low[i]), np.abs(wanted - high[i]))
        return found

    d_before, d_after = distance(before), distance(after)
    better = d_before < d_after
    if narrow_ties:
        better |= (d_before == d_after) & (high[before] - low[before] <= high[after] - low[after])
    return np.where(better, before, after)


@dataclass(frozen=True, eq=False)
class Judged:
    """Chosen points with the estimated size of every split between them and each point's margin (PP-30)."""

    points: Ints
    sizes: Floats  # one more than points
    margins: Floats
    unqualified: Mask


def judge(c: Candidates, points: Ints, theta: float, wanted: Floats | None = None) -> Judged:
    """Which points do not qualify: two targets hit the same one, or its margin is too large for a neighbour (PP-33).

    With targets given, missing them counts too. Between entries that do not touch a point has no margin, so it would
    qualify however uneven the splits are.
    """
    low = np.concatenate(([0.0], c.low[points], [c.total]))
    high = np.concatenate(([0.0], c.high[points], [c.total]))
    sizes = (np.abs(low[1:] - high[:-1]) + np.abs(high[1:] - low[:-1])) / 2
    margins = c.high[points] - c.low[points]
    # Multiplied out, so that an empty split is no division by zero (3.1-1).
    error = margins
    if wanted is not None:
        error = margins + 2 * np.maximum(0.0, np.maximum(c.low[points] - wanted, wanted - c.high[points]))
    wide = (error > theta * sizes[:-1]) | (error > theta * sizes[1:])
    same = np.zeros(len(points), bool)
    same[:-1] = points[1:] == points[:-1]
    return Judged(points, sizes, margins, wide | same)
