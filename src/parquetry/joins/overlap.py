"""Which blocks of two tables can join: those whose ranges of the join attribute overlap (RB-16, RB-17)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.bool_]
"""One row per block of the one side, one column per block of the other: whether they overlap."""


@dataclass(frozen=True, eq=False)
class Ranges:
    """The smallest and largest value of the join attribute in each block, as codes that order as the values do.

    ``lo > hi`` stands for a block without a value: nulls join nothing.
    """

    lo: Ints
    hi: Ints

    def __len__(self) -> int:
        return len(self.lo)

    @property
    def order(self) -> Ints:
        """The blocks by their ranges, the lowest first."""
        return np.lexsort((np.arange(len(self)), self.hi, self.lo))


def overlap_vectors(build: Ranges, probe: Ranges) -> Vectors:
    """``[i, j]``: block i of the build side overlaps block j of the probe side."""
    met: Vectors = (build.lo[:, None] <= probe.hi[None, :]) & (probe.lo[None, :] <= build.hi[:, None])
    return met & (build.lo <= build.hi)[:, None] & (probe.lo <= probe.hi)[None, :]
