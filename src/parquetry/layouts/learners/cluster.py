"""Bottom-up clustering of feature vectors (WP-09…WP-11): the pair whose union costs least is merged, again and again.

The cost of a cluster is the tuples that queries can no longer skip: its size times the weights of the features in its
union (WP-10, 3.4-1). With ``s`` the weight of a union and ``x`` that of the features two unions share, merging ``a``
and ``b`` costs ``|a| (s_b - x) + |b| (s_a - x)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parquetry.layouts.coding.codec import Numbers

MOST_VECTORS = 5_000
"""Distinct vectors that are clustered; rarer ones join the vector next to them first, which bounds the time."""
_BLOCK = 256  # rows of the penalty matrix that are in memory at once


@dataclass(frozen=True, eq=False)
class Clustering:
    """``label`` is the cluster of each vector. ``folded`` vectors were beyond the bound."""

    label: Numbers
    count: int
    folded: int = 0


def cluster(bits: Numbers, counts: Numbers, weights: Numbers, min_size: float, most: int = MOST_VECTORS) -> Clustering:
    """Clusters of at least ``min_size`` rows, unless there are fewer in all; one that has reached it grows no more.

    ``bits`` has a row of bools per distinct vector, ``counts`` how many rows have it. Ties go to the smaller pair, then
    to the earlier one (3.4-14).
    """
    if len(counts) > most:
        return _fold(bits, counts, weights, min_size, most)
    merging = _Merging(bits, counts, weights, min_size)
    merging.run()
    _, label = np.unique(merging.owner(), return_inverse=True)
    return Clustering(label.ravel(), int(label.max()) + 1 if len(label) else 0)


def _fold(bits: Numbers, counts: Numbers, weights: Numbers, min_size: float, most: int) -> Clustering:
    order = np.argsort(-counts, kind="stable")
    kept, rare = np.sort(order[:most]), order[most:]
    merging = _Merging(bits[kept], counts[kept], weights, min_size)
    home = np.empty(len(counts), np.int64)
    home[kept] = np.arange(len(kept))
    for start in range(0, len(rare), _BLOCK):
        some = rare[start : start + _BLOCK]
        costs = merging.costs_of(bits[some].astype(np.float64), counts[some].astype(np.float64))
        home[some] = costs.argmin(axis=1)
    unions = bits[kept].copy()
    np.logical_or.at(unions, home[rare], bits[rare])
    found = cluster(unions, np.bincount(home, counts, len(kept)), weights, min_size, most)
    return Clustering(found.label[home], found.count, len(rare))


class _Merging:
    """The unions while they merge. ``near[i]`` is the cheapest partner of cluster i and ``cost[i]`` what it costs; for
    a stale i the cost is only a lower bound, and is computed when it comes first."""

    def __init__(self, bits: Numbers, counts: Numbers, weights: Numbers, min_size: float) -> None:
        self.union = bits.astype(np.float64)
        self.size = counts.astype(np.float64)
        self.weights = weights.astype(np.float64)
        self.min_size = min_size
        self.heavy = self.union @ self.weights
        self.open = self.size < min_size
        self.into = np.arange(len(counts))
        self.near = np.zeros(len(counts), np.int64)
        self.cost = np.full(len(counts), np.inf)
        self.stale = np.zeros(len(counts), bool)

    def run(self) -> None:
        waiting = np.flatnonzero(self.open)
        for start in range(0, len(waiting), _BLOCK):
            self._look_around(waiting[start : start + _BLOCK])
        left = len(waiting)
        while left > 1:
            a = self._cheapest()
            if self.stale[a]:
                self._look_around(np.array([a]))
                continue
            b = int(self.near[a])
            left -= 1
            self._merge(min(a, b), max(a, b))
            left -= not self.open[min(a, b)]
        self._place_last()

    def owner(self) -> Numbers:
        """The cluster that each vector ended in."""
        found = self.into
        while True:
            onward = found[found]
            if (onward == found).all():
                return found
            found = onward

    def costs_of(self, union: Numbers, size: Numbers) -> Numbers:
        """What merging each of some unions with each cluster costs."""
        shared = (union * self.weights) @ self.union.T
        heavy = (union @ self.weights)[:, None]
        costs = size[:, None] * (self.heavy[None, :] - shared) + self.size[None, :] * (heavy - shared)
        return np.asarray(np.maximum(costs, 0.0))

    def _look_around(self, rows: Numbers) -> None:
        costs = self.costs_of(self.union[rows], self.size[rows])
        costs[:, ~self.open] = np.inf
        costs[np.arange(len(rows)), rows] = np.inf
        least = costs.min(axis=1)
        size = np.where(costs == least[:, None], self.size[None, :], np.inf)
        self.near[rows], self.cost[rows], self.stale[rows] = size.argmin(axis=1), least, False

    def _cheapest(self) -> int:
        cost = np.where(self.open, self.cost, np.inf)
        tied = np.flatnonzero(cost == cost.min())
        if len(tied) > 1:
            stale = tied[self.stale[tied]]
            if len(stale):
                return int(stale[0])  # its real cost may be higher
            tied = tied[np.lexsort((tied, self.size[tied] + self.size[self.near[tied]]))]
        return int(tied[0])

    def _merge(self, a: int, b: int) -> None:
        self.union[a] = np.maximum(self.union[a], self.union[b])
        self.size[a] += self.size[b]
        self.heavy[a] = self.union[a] @ self.weights
        self.into[b] = a
        self.open[b] = False
        self.open[a] = self.size[a] < self.min_size
        # Who had one of them as partner may find another now, and none that is cheaper than before.
        self.stale |= self.open & ((self.near == a) | (self.near == b))
        if not self.open[a]:
            return
        costs = self.costs_of(self.union[[a]], self.size[[a]])[0]
        costs[~self.open] = np.inf
        costs[a] = np.inf
        closer = (costs < self.cost) | ((costs == self.cost) & (self.stale | (self.size[a] < self.size[self.near])))
        closer[a] = False
        self.near[closer], self.cost[closer], self.stale[closer] = a, costs[closer], False
        least = costs.min()
        tied = np.flatnonzero(costs == least)
        self.near[a], self.cost[a], self.stale[a] = tied[self.size[tied].argmin()], least, False

    def _place_last(self) -> None:
        """A cluster that stayed too small goes into the finished one where it costs least (3.4-6)."""
        for i in np.flatnonzero(self.open).tolist():
            done = np.flatnonzero((self.into == np.arange(len(self.into))) & ~self.open)
            if len(done):
                costs = self.costs_of(self.union[[i]], self.size[[i]])[0][done]
                self.into[i] = done[np.lexsort((done, self.size[done], costs))[0]]
