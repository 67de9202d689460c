"""Growing a tree layout: one loop for every learner, which only decides how to split a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.learners.sample import Sample
from parquetry.model.box import Box
from parquetry.model.layout import Cut, Groups, Leaf, Node, TreeLayout

FIRST_CUT = 2  # between null and the lowest value known: a comparison cannot tell null from a value yet unseen below it
_EVEN_CUTS = 3
Span = tuple[Numbers, Numbers]  # lowest and highest position per column, both included


@dataclass(frozen=True)
class Part:
    """A node while it grows: its rows' positions, its box in positions, and the query boxes that meet it."""

    places: Numbers
    lo: Numbers
    hi: Numbers
    queries: Numbers
    level: int = 0
    irregular: bool = False

    @property
    def rows(self) -> int:
        return int(self.places.shape[1])


@dataclass(frozen=True)
class CutAt:
    """Positions below ``position`` go left."""

    column: int
    position: int


@dataclass(frozen=True)
class GroupsAt:
    """Rows inside each span form a child of their own; the others stay together."""

    spans: tuple[Span, ...]


Split = CutAt | GroupsAt
Decide = Callable[[Part], Split | None]


def grow(sample: Sample, learner: str, decide: Decide, options: dict[str, Any]) -> TreeLayout:
    """Splits from the root until ``decide`` says None everywhere."""
    nodes: list[dict[str, Any]] = []
    blocks = 0
    waiting: list[tuple[Part, int, str | int]] = [(root(sample), -1, "")]
    while waiting:
        part, parent, slot = waiting.pop()
        index = len(nodes)
        if parent >= 0:
            nodes[parent][slot] = index  # type: ignore[index]
        split = decide(part) if part.rows else None
        if split is None:
            nodes.append({"block": blocks})
            blocks += 1
            continue
        nodes.append({"split": split, "part": (part.lo, part.hi)})
        parts = divide(sample, part, split)
        slots: list[str | int] = ["left", "right"] if isinstance(split, CutAt) else [*range(len(parts) - 1), "rest"]
        waiting += [(p, index, s) for p, s in zip(reversed(parts), reversed(slots), strict=True)]
    return TreeLayout(learner, sample.columns, tuple(_node(sample, n) for n in nodes), options)


def root(sample: Sample) -> Part:
    tops = np.array([line.top for line in sample.lines], np.int32)
    return Part(sample.places, np.zeros(len(tops), np.int32), tops, np.arange(sample.lo.shape[1]))


def divide(sample: Sample, part: Part, split: Split) -> list[Part]:
    """The children in order: left and right, or the groups and the rest."""
    if isinstance(split, CutAt):
        left_hi, right_lo = part.hi.copy(), part.lo.copy()
        left_hi[split.column], right_lo[split.column] = split.position - 1, split.position
        below = part.places[split.column] < split.position
        return [
            _child(sample, part, part.lo, left_hi, below, part.irregular),
            _child(sample, part, right_lo, part.hi, ~below, part.irregular),
        ]
    free = np.ones(part.rows, bool)
    parts = []
    for lo, hi in split.spans:
        inside = within(part.places, lo, hi, part.lo, part.hi) & free
        free &= ~inside
        parts.append(_child(sample, part, lo, hi, inside, False))
    rest = Part(part.places[:, free], part.lo, part.hi, np.empty(0, np.int64), part.level + 1, True)
    return [*parts, rest]


def _child(sample: Sample, part: Part, lo: Numbers, hi: Numbers, rows: Numbers, irregular: bool) -> Part:
    queries = part.queries[meets(sample.lo[:, part.queries], sample.hi[:, part.queries], lo, hi)]
    return Part(part.places[:, rows], lo, hi, queries, part.level + 1, irregular)


def meets(box_lo: Numbers, box_hi: Numbers, lo: Numbers, hi: Numbers) -> Numbers:
    """Which of many boxes (columns by boxes) share a position with one."""
    return np.asarray(((box_lo <= hi[:, None]) & (box_hi >= lo[:, None])).all(axis=0))


def within(places: Numbers, lo: Numbers, hi: Numbers, around_lo: Numbers, around_hi: Numbers) -> Numbers:
    """Which rows lie in the box, given that all lie in the one around it."""
    inside = np.ones(places.shape[1], bool)
    for d in range(len(lo)):
        if lo[d] > around_lo[d]:
            inside &= places[d] >= lo[d]
        if hi[d] < around_hi[d]:
            inside &= places[d] <= hi[d]
    return inside


def _node(sample: Sample, found: dict[Any, Any]) -> Node:
    if "block" in found:
        return Leaf(found["block"])
    split: Split = found["split"]
    if isinstance(split, CutAt):
        op, value = sample.lines[split.column].cut(split.position)
        return Cut(sample.columns[split.column], op, value, found["left"], found["right"])
    around_lo, around_hi = found["part"]
    boxes = tuple(_box(sample, lo, hi, around_lo, around_hi) for lo, hi in split.spans)
    return Groups(boxes, tuple(found[i] for i in range(len(boxes))), found["rest"])


def _box(sample: Sample, lo: Numbers, hi: Numbers, around_lo: Numbers, around_hi: Numbers) -> Box:
    """The span as a box that names only the columns where it is narrower than the node."""
    narrow = [d for d in range(len(lo)) if lo[d] > around_lo[d] or hi[d] < around_hi[d]]
    return Box({sample.columns[d]: sample.lines[d].interval(int(lo[d]), int(hi[d])) for d in narrow})


def rows_below(places: Numbers, lo: int, hi: int, positions: Numbers) -> Numbers:
    """How many rows lie below each of the given positions; all lie in [lo, hi]."""
    if hi - lo < 4 * len(places):
        counts = np.cumsum(np.bincount(places - np.int32(lo), minlength=hi - lo + 1))
        return np.take(np.concatenate([[0], counts]), positions - lo)
    return np.searchsorted(np.sort(places), positions, "left")


def median_cut(places: Numbers, block_rows: int, literal: bool = False) -> int | None:
    """The cut next to the median that halves the rows better, or None when a side would be too small for a block.

    ``literal``: only the cut below the median itself, which leaves nothing below where one value holds half the rows.
    """
    n = len(places)
    middle = int(np.partition(places, n // 2)[n // 2])
    below = int(np.count_nonzero(places < middle))
    position = middle
    if not literal:
        up_to = int(np.count_nonzero(places <= middle))
        if abs(n - 2 * up_to) < abs(n - 2 * below):
            below, position = up_to, max(middle + 1, FIRST_CUT)
    return position if block_rows <= below <= n - block_rows else None


def median_cuts(places: Numbers, block_rows: int) -> Numbers:
    """The median cut alone, as the paper proposes."""
    position = median_cut(places, block_rows)
    return np.array([] if position is None else [position], np.int64)


def even_cuts(places: Numbers, block_rows: int) -> Numbers:
    """The median, and the cuts that leave one to a few smallest blocks on either side: beyond the paper, they spare
    a query that needs less than a block the rest of a larger one."""
    n = len(places)
    some = np.arange(1, min(n // block_rows, _EVEN_CUTS) + 1) * block_rows
    ranks = np.unique(np.concatenate([some - 1, n - some, [n // 2]]))
    ordered = np.partition(places, ranks)
    above = np.concatenate([ordered[some - 1], ordered[[n // 2]]]) + 1
    return np.asarray(np.maximum(np.concatenate([above, ordered[n - some], ordered[[n // 2]]]), FIRST_CUT))


def query_extent(sample: Sample, queries: Numbers, column: int) -> tuple[Numbers, Numbers, Numbers]:
    """Per query that meets a node: its lowest and highest position in the column over its boxes, and its weight."""
    lo, hi, owner = sample.lo[column, queries], sample.hi[column, queries], sample.owner[queries]
    first = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    weight = sample.weight[owner[first]]
    if len(first) == len(owner):
        return lo, hi, weight
    return np.minimum.reduceat(lo, first), np.maximum.reduceat(hi, first), weight


def weight_of(sample: Sample, queries: Numbers) -> float:
    """The weight of the queries behind these boxes, each query counted once (3.5-23)."""
    return float(sample.weight[np.unique(sample.owner[queries])].sum())


Price = Callable[[Numbers], Numbers]
Propose = Callable[[Numbers, int], Numbers]


def read_whole(rows: Numbers) -> Numbers:
    """What a query costs on a node if it is not split further."""
    return rows


@dataclass(frozen=True)
class Priced:
    cost: float
    split: Split


def best_cut(
    sample: Sample, part: Part, block_rows: int, price: Price = read_whole, also: Propose | None = None
) -> Priced | None:
    """Algorithm 2: the cheapest cut at a query's bound or at a position also proposed (PW-13, 3.5-10, 3.5-11)."""
    if not len(part.queries):
        return None
    best: tuple[float, int, int, int] | None = None
    for d in range(len(sample.lines)):
        lows, highs, weight = query_extent(sample, part.queries, d)
        positions = np.concatenate([sample.lo[d, part.queries], sample.hi[d, part.queries] + 1])
        positions = np.maximum(positions, FIRST_CUT)
        if also is not None:
            positions = np.append(positions, also(part.places[d], block_rows))
        positions = np.unique(positions[(positions > part.lo[d]) & (positions <= part.hi[d])])
        if not len(positions):
            continue
        below = rows_below(part.places[d], int(part.lo[d]), int(part.hi[d]), positions)
        fits = (below >= block_rows) & (part.rows - below >= block_rows)
        if not fits.any():
            continue
        positions, below = positions[fits], below[fits].astype(np.float64)
        left = _weight_below(lows, weight, positions)
        right = weight.sum() - _weight_below(highs, weight, positions)
        cost = price(below) * left + price(part.rows - below) * right
        uneven = np.abs(part.rows - 2 * below)
        i = int(np.lexsort((positions, uneven, cost))[0])
        found = (float(cost[i]), int(uneven[i]), d, int(positions[i]))
        best = min(best, found) if best else found
    return Priced(best[0], CutAt(best[2], best[3])) if best else None


def _weight_below(bounds: Numbers, weight: Numbers, positions: Numbers) -> Numbers:
    order = np.argsort(bounds)
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    return np.take(total, np.searchsorted(bounds[order], positions, "left"))


def spread(sample: Sample, part: Part, columns: Sequence[int]) -> Numbers:
    """How wide the node's rows lie in each column, from 0 to 1, counting nulls as the lowest value."""
    ends = [sample.coords[d][[part.places[d].min(), part.places[d].max()]] for d in columns]
    return np.array([np.ptp(np.maximum(pair, 0)) for pair in ends])
