"""An index without data: B-trees over given keys and sizes in memory, for simulations and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parquetry.splits.entries import Entries, Floats, Ints, Keys, concat, heads_of, keys_of, make_entries, ranges


@dataclass(frozen=True, eq=False)
class SizedTree:
    """One delta: ``levels[k]`` are the entries of level ``k`` in key order; ``fan_out[k]`` of them are a node."""

    levels: tuple[tuple[Keys, Keys, Floats], ...]
    fan_out: tuple[int, ...]

    @property
    def height(self) -> int:
        return len(self.levels)


def grow(
    starts: Sequence[bytes] | Keys,
    ends: Sequence[bytes] | Keys,
    sizes: Sequence[float] | Floats,
    leaf: int = 10,
    inner: int = 1000,
) -> SizedTree:
    """A tree over level-0 entries in key order, with nodes of ``leaf`` entries there and ``inner`` above (PP-10)."""
    level = (_keys(starts), _keys(ends), np.asarray(sizes, np.float64))
    levels, fan_out = [level], [leaf]
    while len(level[0]) > fan_out[-1]:
        at = np.arange(0, len(level[0]), fan_out[-1])
        last = np.append(at[1:], len(level[0])) - 1
        level = (level[0][at], level[1][last], np.add.reduceat(level[2], at))
        levels.append(level)
        fan_out.append(max(2, inner))
    return SizedTree(tuple(levels), tuple(fan_out))


def _keys(keys: Sequence[bytes] | Keys) -> Keys:
    return keys if isinstance(keys, np.ndarray) else keys_of(keys)


@dataclass(eq=False)
class SizedTrees:
    """The trees of several deltas as a SplitIndex; ``reads`` counts rounds of batches and nodes."""

    trees: Sequence[SizedTree]
    reads: list[int] = field(default_factory=list)

    def roots(self) -> Entries:
        return concat(
            [
                make_entries(d, t.height, 0, [t.levels[-1][2].sum()], t.levels[-1][0][:1], t.levels[-1][1][-1:])
                for d, t in enumerate(self.trees)
            ]
        )

    def children(self, parents: Entries, grain: Floats) -> tuple[Entries, Ints]:
        self.reads.append(int(parents.count.sum()))
        parts, owners = [], []
        for delta, level in np.unique(np.stack((parents.delta, parents.level - 1), 1), axis=0).tolist():
            own = np.flatnonzero((parents.delta == delta) & (parents.level == level + 1))
            own = own[np.argsort(parents.first[own])]
            fan_out = self.trees[delta].fan_out[level]
            starts, ends, sizes = self.trees[delta].levels[level]
            first = parents.first[own] * fan_out
            stop = np.minimum(first + parents.count[own] * fan_out, len(sizes))
            at = ranges(first, stop)
            owner = np.repeat(own, stop - first)
            follows = np.diff(at, prepend=-9) == 1
            heads = heads_of(sizes[at], grain[owner], follows)
            count = np.diff(np.append(heads, len(at)))
            size = np.add.reduceat(sizes[at], heads)
            found = make_entries(delta, level, at[heads], size, starts[at[heads]], ends[at[heads + count - 1]])
            parts.append(replace(found, count=count))
            owners.append(owner[heads])
        return concat(parts), np.concatenate(owners)
