"""How a finished tree is shared out among its columns: what the allocation of the robust learner is judged by."""

from __future__ import annotations

from collections.abc import Callable

from parquetry.layouts.learners.allocation import FANOUT
from parquetry.model.layout import Cut, Leaf, TreeLayout, children


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
