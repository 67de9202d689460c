"""Cuts several tables that lie in the order of one attribute at the same values: every block is in one part only.

Progressive partitioning over all their indexes at once: parts are even by the bytes of all tables together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from parquetry.splits.cut import Precision, Split, cut_into_splits, without_empty
from parquetry.splits.entries import Entries, Floats, Ints, SplitIndex, concat
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish
from parquetry.splits.shorten_key import between_values


@dataclass(frozen=True, eq=False)
class SideBySide:
    """The indexes of several tables as one; ``weights`` make their sizes comparable."""

    indexes: Sequence[SplitIndex]
    weights: Sequence[float]

    def roots(self) -> Entries:
        return concat([self._placed(index.roots(), i) for i, index in enumerate(self.indexes)])

    def children(self, parents: Entries, grain: Floats) -> tuple[Entries, Ints]:
        parts, owners = [], []
        n = len(self.indexes)
        for i, index in enumerate(self.indexes):
            own = np.flatnonzero(parents.delta % n == i)
            if len(own):
                some = parents.take(own)
                weight = self.weights[i]
                there = replace(some, delta=some.delta // n, sizes=some.sizes / weight)
                found, owner = index.children(there, grain[own] / weight)
                parts.append(self._placed(found, i))
                owners.append(own[owner])
        return concat(parts), np.concatenate(owners)

    def _placed(self, e: Entries, i: int) -> Entries:
        return replace(e, delta=e.delta * len(self.indexes) + i, sizes=e.sizes * self.weights[i])


def cut_together(
    indexes: Sequence[SplitIndex], weights: Sequence[float], kind: pa.DataType, wish: Wish, precision: Precision
) -> list[Split]:
    """Parts that cover all keys once, with borders between values of the leading key column, which is of ``kind``.

    All rows with one value are in one part, however many there are.
    """
    cut = cut_into_splits(
        SideBySide(indexes, weights),
        KeyRanges.everything(),
        wish,
        precision,
        between_values([kind]),
    )
    return without_empty(cut.splits) or [Split(None, None, 0.0, 0.0, 0.0)]
