"""Sharing a tree out among its columns: each gets an allocation and every node goes to the one that lacks most."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from parquetry.model.layout import Cut, Leaf, TreeLayout, children

FANOUT = 2
_ALIKE = 0.05  # remains that differ by less than this share of what the node costs count as equal: sizes are uneven


class Allocation:
    """What remains to each column. A column may be taken beyond its target, when others cannot be cut.

    The targets share out ``FANOUT`` for each of the tree's ``levels`` by weight, so that they add up to what a tree
    of that depth has to give; the paper's constant does so in its example only (RB-08, RB-09, 3.3-1).
    """

    def __init__(self, columns: Sequence[str], levels: float, weights: Mapping[str, float], seed: int) -> None:
        share = [weights.get(c, 1.0) for c in columns]
        total = sum(share) or 1.0
        self.left = {c: FANOUT * levels * w / total for c, w in enumerate(share) if w > 0}
        self._random = random.Random(seed)

    def order(self, amount: float, path: Sequence[int]) -> list[int]:
        """The columns, by number, in the order in which a node that costs ``amount`` should try them.

        The most remaining first (3.3-2); among equals those least used on the ``path`` to the root, and among these
        at random (RB-11, 3.3-3).
        """
        waiting, found = dict(self.left), []
        while waiting:
            most = max(waiting.values())
            equal = [c for c, left in waiting.items() if left >= most - _ALIKE * amount]
            self._random.shuffle(equal)
            equal.sort(key=path.count)
            found += equal
            for c in equal:
                del waiting[c]
        return found

    def take(self, column: int, amount: float) -> None:
        self.left[column] -= amount


def allocations(spec: TreeLayout, share: Callable[[int], float] | None = None) -> dict[str, float]:
    """What each column of a tree of cuts got: data fraction times fanout, summed over its nodes (RB-07).

    ``share`` gives each block's share of the rows; without it every cut is taken to halve its rows.
    """
    fraction = [1.0] * len(spec.nodes)
    if share is not None:
        for i in range(len(spec.nodes) - 1, -1, -1):
            node = spec.nodes[i]
            fraction[i] = share(node.block) if isinstance(node, Leaf) else sum(fraction[c] for c in children(node))
    found = dict.fromkeys(spec.columns, 0.0)
    for i, node in enumerate(spec.nodes):
        if share is None:
            for c in children(node):
                fraction[c] = fraction[i] / FANOUT
        if isinstance(node, Cut):
            found[node.column] += FANOUT * fraction[i]
    return found
