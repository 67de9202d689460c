"""Which of many candidates to keep when only so many may be: greedy, then swapped while that helps (NA-38)."""

from __future__ import annotations

import numpy as np

_WORTH = 0.8  # a view is left out if what its queries read does not fall below this share
_MOST_SWAPS = 50
_MOST_REFILLS = 5  # what was chosen first is often made needless by the others, and leaves room


def choose(reads: np.ndarray, weights: np.ndarray, without: np.ndarray, upkeep: np.ndarray, most: int) -> list[int]:
    """At most ``most`` candidates, those that save most first.

    ``reads[c, q]`` are the rows that query ``q`` reads with candidate ``c``, infinitely many where that is no answer;
    ``weights`` how often queries were asked, ``without`` what they read with none of them, and ``upkeep`` what it costs
    to keep a candidate.
    """
    chosen: list[int] = []
    for _ in range(_MOST_REFILLS):
        best = np.minimum(reads[chosen].min(axis=0, initial=np.inf), without)
        while len(chosen) < most and (c := _next(reads, weights, best, upkeep)) is not None:
            chosen.append(c)
            best = np.minimum(best, reads[c])
        chosen = _swapped(chosen, reads, weights, without, upkeep)
        gone = needless(reads[chosen], without, len(chosen))
        chosen = [c for i, c in enumerate(chosen) if i not in gone]
        if not gone:
            break
    return _in_order(chosen, reads, weights, without, upkeep)


def _next(reads: np.ndarray, weights: np.ndarray, best: np.ndarray, upkeep: np.ndarray) -> int | None:
    """The candidate that saves most beyond what is chosen already; None when none is worth its keep."""
    saved = (np.maximum(best - reads, 0.0) * weights).sum(axis=1) - upkeep
    for c in np.argsort(-saved, kind="stable").tolist():
        if saved[c] <= 0:
            return None
        mine = reads[c] < best
        if (reads[c][mine] * weights[mine]).sum() <= _WORTH * (best[mine] * weights[mine]).sum():
            return int(c)
    return None


def _swapped(
    chosen: list[int], reads: np.ndarray, weights: np.ndarray, without: np.ndarray, upkeep: np.ndarray
) -> list[int]:
    """The choice after exchanging one for another as long as all queries together read less.

    What looked best alone is often wide; with others beside it a narrower one does.
    """
    cost = _cost(chosen, reads, weights, without, upkeep)
    for _ in range(_MOST_SWAPS):
        found: tuple[float, int, int] | None = None
        for i in range(len(chosen)):
            rest = chosen[:i] + chosen[i + 1 :]
            best = np.minimum(reads[rest].min(axis=0), without) if rest else without
            costs = (np.minimum(reads, best) * weights).sum(axis=1) + upkeep + upkeep[rest].sum()
            costs[chosen] = np.inf
            c = int(costs.argmin())
            if costs[c] < cost * (1 - 1e-9) and (found is None or costs[c] < found[0]):
                found = float(costs[c]), i, c
        if found is None:
            return chosen
        cost, i, c = found
        chosen = [*chosen[:i], c, *chosen[i + 1 :]]
    return chosen


def _cost(chosen: list[int], reads: np.ndarray, weights: np.ndarray, without: np.ndarray, upkeep: np.ndarray) -> float:
    best = np.minimum(reads[chosen].min(axis=0), without) if chosen else without
    return float((best * weights).sum() + upkeep[chosen].sum())


def _in_order(
    chosen: list[int], reads: np.ndarray, weights: np.ndarray, without: np.ndarray, upkeep: np.ndarray
) -> list[int]:
    ordered: list[int] = []
    best = without
    while left := [c for c in chosen if c not in ordered]:
        saved = (np.maximum(best - reads[left], 0.0) * weights).sum(axis=1) - upkeep[left]
        c = left[int(saved.argmax())]
        if saved.max() <= 0:
            break
        ordered.append(c)
        best = np.minimum(best, reads[c])
    return ordered


def needless(reads: np.ndarray, without: np.ndarray, there: int) -> list[int]:
    """Which of the first ``there`` of some views no query needs: others give each of theirs as few rows or fewer.

    Of two that are alike one goes, the first.
    """
    gone: list[int] = []
    for view in range(there):
        others = [v for v in range(len(reads)) if v != view and v not in gone]
        if (np.minimum(reads[others].min(axis=0, initial=np.inf), without) <= reads[view]).all():
            gone.append(view)
    return gone
