"""Index entries as columns, and what progressive partitioning asks of an index (PP-08, PP-09, PP-22)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Keys = np.ndarray[Any, np.dtype[np.object_]]  # of bytes


@dataclass(frozen=True, eq=False)
class Entries:
    """Entry ``i``: the keys ``[starts[i], ends[i])`` of a delta have ``sizes[i]`` rows or bytes.

    It stands in a node of level ``level`` and, above level 0, points to the nodes ``first … first + count - 1`` of the
    level below; ``count`` is more than one where neighbours were taken together. ``partial`` entries hold keys outside
    the query as well (PP-23).
    """

    delta: Ints
    level: Ints
    first: Ints
    count: Ints
    sizes: Floats
    starts: Keys
    ends: Keys
    partial: Mask

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, which: Mask | Ints) -> Entries:
        """Some of the entries, by mask or positions."""
        return _columnwise(lambda column: column(self)[which])


def concat(parts: Sequence[Entries]) -> Entries:
    if not parts:
        return make_entries(0, 0, 0, np.zeros(0), keys_of(()), keys_of(()))
    return _columnwise(lambda column: np.concatenate([column(p) for p in parts]))


def _columnwise(make: Callable[[Callable[[Entries], Any]], Any]) -> Entries:
    return Entries(*(make(attrgetter(f.name)) for f in fields(Entries)))


def make_entries(
    delta: int | Ints, level: int | Ints, first: int | Ints, sizes: Any, starts: Keys, ends: Keys
) -> Entries:
    """Entries as an index gives them: each with one node below, numbered on from ``first`` unless that is an array."""
    n = len(starts)
    numbered = first if isinstance(first, np.ndarray) else np.arange(first, first + n)
    whole = [v if isinstance(v, np.ndarray) else np.full(n, v) for v in (delta, level)]
    size = np.asarray(sizes, np.float64)
    return Entries(whole[0], whole[1], numbered, np.ones(n, np.int64), size, starts, ends, np.zeros(n, bool))


def keys_of(keys: Sequence[bytes]) -> Keys:
    """The keys as an array; numpy's own byte strings would drop zeros at their end."""
    found = np.empty(len(keys), object)
    found[:] = keys
    return found


def heads_of(sizes: Floats, grain: Floats, follows: Mask) -> Ints:
    """Where stretches begin in which neighbours that are each below ``grain`` add up to less than twice of it.

    ``follows`` tells which entries may be put to the one before them.
    """
    small = sizes <= grain
    if not small.any():
        return np.arange(len(sizes))
    bucket = np.floor(np.cumsum(sizes) / np.where(grain > 0, grain, np.inf))
    joined = follows & small
    joined[1:] &= small[:-1] & (bucket[1:] == bucket[:-1])
    return np.flatnonzero(~joined)


def ranges(first: Ints, stop: Ints) -> Ints:
    """``first[0] … stop[0] - 1, first[1] … stop[1] - 1, …``"""
    counts = stop - first
    offset = np.repeat(first - (np.cumsum(counts) - counts), counts)
    found: Ints = offset + np.arange(int(counts.sum()))
    return found


class SplitIndex(Protocol):
    """The size-enhanced B-trees of the deltas of one snapshot."""

    def roots(self) -> Entries:
        """One virtual root entry per delta, its level one above the root node's (PP-12); reads nothing."""

    def children(self, parents: Entries, grain: Floats) -> tuple[Entries, Ints]:
        """The entries of all nodes that ``parents`` point to, in one batch of reads (PP-25); and of each its parent.

        Neighbours smaller than ``grain``, which is given per parent, may come taken together.
        """
