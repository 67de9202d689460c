"""Groups of build blocks that share a hash table, so that few probe blocks are read more than once (RB-18, RB-20).

A group costs the probe blocks that any of its blocks overlaps: each is read once for it. Finding the cheapest groups
under a memory bound is NP-hard. Two ways, of which the better is taken: the paper's bottom-up rule, and cuts of the
blocks in the order of the join attribute; both with local improvement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parquetry.joins.overlap import Ints, Vectors

Groups = list[list[int]]
Sizes = npt.NDArray[np.int64]

_MOST_ROUNDS = 20  # of local improvement
_NEAR = 3  # neighbouring groups that a block may move to


def cost_of(groups: Groups, vectors: Vectors) -> int:
    """The probe blocks read for all groups together.

    >>> v = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], bool)
    >>> cost_of([[0, 1], [2, 3]], v), cost_of([[0, 2], [1, 3]], v)
    (5, 7)
    """
    return sum(int(np.count_nonzero(vectors[g].any(axis=0))) for g in groups)


def group_blocks(vectors: Vectors, order: Ints, sizes: Sizes, most: int, least_groups: int = 1) -> Groups:
    """Groups of at most ``most`` size, at least ``least_groups`` of them where there are as many blocks (RB-25).

    ``order`` are the blocks in the order of the join attribute. A block that is larger than ``most`` is alone.
    """
    if len(vectors) == 0:
        return []
    bound = _bound(sizes, most, least_groups)
    found = [
        improved(contiguous(vectors, order, sizes, bound), vectors, sizes, bound),
        improved(bottom_up(vectors, order, sizes, bound), vectors, sizes, bound),
    ]
    return min(found, key=lambda groups: cost_of(groups, vectors))


def _bound(sizes: Sizes, most: int, least_groups: int) -> int:
    even = math.ceil(int(sizes.sum()) / max(1, least_groups))
    return max(1, min(most, even))


def bottom_up(vectors: Vectors, order: Ints, sizes: Sizes, most: int) -> Groups:
    """The paper's rule (Fig. 4, 3.3-23): a group takes the block that adds the fewest probe blocks until it is full;
    ties by the lower join bound."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    left = np.ones(len(vectors), bool)
    groups: Groups = []
    union, size = np.zeros(vectors.shape[1], bool), 0
    group: list[int] = []
    while left.any():
        fits = np.flatnonzero(left & (size + sizes <= most)) if group else np.flatnonzero(left)
        if len(fits) == 0:
            groups.append(group)
            group, size = [], 0
            union = np.zeros(vectors.shape[1], bool)
            continue
        added = (vectors[fits] | union).sum(axis=1)
        chosen = int(fits[np.lexsort((place[fits], added))[0]])
        group.append(chosen)
        left[chosen] = False
        union = union | vectors[chosen]
        size += int(sizes[chosen])
    return [*groups, group]


def contiguous(vectors: Vectors, order: Ints, sizes: Sizes, most: int) -> Groups:
    """The cheapest cuts of the blocks in the order of the join attribute, by dynamic programming."""
    n = len(order)
    best = np.full(n + 1, np.iinfo(np.int64).max, np.int64)
    best[0] = 0
    start = np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        union, size = np.zeros(vectors.shape[1], bool), 0
        for first in range(end - 1, -1, -1):
            block = order[first]
            size += int(sizes[block])
            if size > most and first < end - 1:
                break
            union |= vectors[block]
            total = best[first] + int(np.count_nonzero(union))
            if total <= best[end]:  # of equally cheap ones the longest: fewer groups
                best[end], start[end] = total, first
    groups: Groups = []
    end = n
    while end:
        groups.append([int(b) for b in order[start[end] : end]])
        end = int(start[end])
    return groups[::-1]


def improved(groups: Groups, vectors: Vectors, sizes: Sizes, most: int) -> Groups:
    """Moves and swaps single blocks between near groups as long as fewer probe blocks are read."""
    groups = [list(g) for g in groups]
    counts = [vectors[g].sum(axis=0) for g in groups]
    total = [int(sizes[g].sum()) for g in groups]
    for _ in range(_MOST_ROUNDS):
        better = False
        for a in range(len(groups)):
            for b in range(max(0, a - _NEAR), min(len(groups), a + _NEAR + 1)):
                if a != b and groups[a]:
                    better = _exchange(groups, counts, total, a, b, vectors, sizes, most) or better
        if not better:
            break
    return [g for g in groups if g]


def _exchange(
    groups: Groups, counts: list[Ints], total: list[int], a: int, b: int, vectors: Vectors, sizes: Sizes, most: int
) -> bool:
    """Makes the first move of a block from group ``a`` to ``b``, or swap with one there, that gains; tells if it did"""
    now = int(np.count_nonzero(counts[a]) + np.count_nonzero(counts[b]))
    for x in groups[a]:
        without = counts[a] - vectors[x]
        gained = counts[b] + vectors[x]
        fits = total[b] + int(sizes[x]) <= most
        if fits and np.count_nonzero(without) + np.count_nonzero(gained) < now:
            _apply(groups, counts, total, a, b, [x], [], vectors, sizes)
            return True
        if np.count_nonzero(without) == np.count_nonzero(counts[a]):
            continue  # the group needs all its probe blocks without it, too
        for y in groups[b]:
            change = int(sizes[x]) - int(sizes[y])
            if total[b] + change > most or total[a] - change > most:
                continue
            if np.count_nonzero(without + vectors[y]) + np.count_nonzero(gained - vectors[y]) < now:
                _apply(groups, counts, total, a, b, [x], [y], vectors, sizes)
                return True
    return False


def _apply(
    groups: Groups,
    counts: list[Ints],
    total: list[int],
    a: int,
    b: int,
    there: Sequence[int],
    back: Sequence[int],
    vectors: Vectors,
    sizes: Sizes,
) -> None:
    for source, target, blocks in ((a, b, there), (b, a, back)):
        for block in blocks:
            groups[source].remove(block)
            groups[target].append(block)
            counts[source] = counts[source] - vectors[block]
            counts[target] = counts[target] + vectors[block]
            total[source] -= int(sizes[block])
            total[target] += int(sizes[block])
