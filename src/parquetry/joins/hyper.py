"""Hyper join: the blocks of one side in groups, each with the blocks of the others that it can meet (RB-16…RB-21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from parquetry.joins.grouping import Groups, Sizes, contiguous, group_blocks
from parquetry.joins.overlap import Ints, Ranges, Vectors, overlap_vectors
from parquetry.model.order_codes import bounds_of

Ends = tuple[pa.Array, pa.Array]
"""The smallest and largest value of each block; null where unknown."""
_MOST_IMPROVED = 1 << 18  # cells of the overlap vectors; above, improving groups would take longer than it saves
_MOST_COMPARED = 1 << 26


@dataclass(frozen=True, eq=False)
class HyperGroup:
    """Blocks of the build side, and those of each probe side that they can meet."""

    build: Ints
    probes: tuple[Ints, ...]


def common_ranges(sides: Sequence[Ends]) -> list[Ranges]:
    """The ranges of all sides as codes of one order. A side whose values are unknown spans everything."""
    kind = sides[0][0].type
    mins, maxs = (pa.concat_arrays([side[i].cast(kind) for side in sides]) for i in (0, 1))
    bounds = bounds_of(mins, maxs)
    stops = np.cumsum([len(side[0]) for side in sides])[:-1]
    return [Ranges(lo, hi) for lo, hi in zip(np.split(bounds.lows, stops), np.split(bounds.highs, stops), strict=True)]


def hyper_groups(
    build: Ranges, sizes: Sizes, probes: Sequence[Ranges], most: int, least_groups: int, *, whole_values: bool
) -> list[HyperGroup] | None:
    """Groups of at most ``most`` bytes of build blocks, at least ``least_groups`` where there are as many (RB-25).

    ``whole_values``: blocks that may hold the same value stay together. None: too many blocks to compare.
    """
    if len(build) * sum(map(len, probes)) > _MOST_COMPARED:
        return None
    together = _connected(build) if whole_values else [[int(i)] for i in build.order]
    vectors = np.concatenate(
        [np.zeros((len(build), 0), bool), *(overlap_vectors(build, probe) for probe in probes)], axis=1
    )
    units = np.array([vectors[u].any(axis=0) for u in together], bool).reshape(len(together), vectors.shape[1])
    unit_sizes = np.array([int(sizes[u].sum()) for u in together], np.int64)
    stops = np.cumsum([len(p) for p in probes])[:-1]
    found = []
    for group in _grouped(units, unit_sizes, most, least_groups):
        met = units[group].any(axis=0)
        parts = np.split(met, stops) if probes else []
        blocks = np.sort(np.concatenate([together[u] for u in group]).astype(np.int64))
        found.append(HyperGroup(blocks, tuple(np.flatnonzero(p) for p in parts)))
    return found


def _grouped(units: Vectors, sizes: Sizes, most: int, least_groups: int) -> Groups:
    """The units come in the order of the join attribute."""
    order = np.arange(len(units))
    if units.size <= _MOST_IMPROVED:
        return group_blocks(units, order, sizes, most, least_groups)
    bound = max(1, min(most, -(-int(sizes.sum()) // max(1, least_groups))))
    return contiguous(units, order, sizes, bound)


def _connected(ranges: Ranges) -> list[list[int]]:
    """Blocks whose ranges overlap, directly or by way of others, in the order of the attribute."""
    found: list[list[int]] = []
    reach = 0
    for i in ranges.order.tolist():
        if found and int(ranges.lo[i]) <= reach:
            found[-1].append(i)
            reach = max(reach, int(ranges.hi[i]))
        else:
            found.append([i])
            reach = int(ranges.hi[i])
    return found
