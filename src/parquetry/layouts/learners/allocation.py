"""Sharing a tree out among its columns: each gets an allocation and every node goes to the one that lacks most."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

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
