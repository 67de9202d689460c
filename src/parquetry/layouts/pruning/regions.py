"""Regions: what a layout alone promises of each block, and which blocks a query may therefore skip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.curve import bounding_ranks
from parquetry.layouts.coding.positions import Positions
from parquetry.model.box import Box, Interval
from parquetry.model.layout import (
    CurveLayout,
    Cut,
    FeatureLayout,
    Groups,
    LayoutSpec,
    Leaf,
    NestedLayout,
    Node,
    ReachingLayout,
)
from parquetry.model.predicate import Predicate
from parquetry.workload.boxes import to_boxes

_MAX_PIECES = 256  # of a query's rest while holes are taken off it; beyond, the block is read


@dataclass(frozen=True)
class Region:
    """Rows of the block lie inside ``box`` and outside every hole."""

    box: Box
    holes: tuple[Box, ...] = ()

    def contains(self, row: Mapping[str, Any]) -> bool:
        return self.box.contains(row) and not any(h.contains(row) for h in self.holes)

    def might_match(self, predicate: Predicate) -> bool:
        """False only when no row of the region satisfies the predicate."""
        return bool(RegionTable([self]).might_match(to_boxes(predicate).boxes)[0])


def regions(spec: LayoutSpec) -> list[Region]:
    """The region of every block, by block number. A block's region may be wider than its rows, never narrower."""
    if isinstance(spec, ReachingLayout):
        return regions(spec.inner)
    if isinstance(spec, CurveLayout):
        return _curve_regions(spec)
    if isinstance(spec, NestedLayout):
        pairs = zip(spec.ranges, spec.parts, strict=True)
        return [_inside(r, Box({spec.column: own})) for own, part in pairs for r in regions(part)]
    if isinstance(spec, FeatureLayout):
        return [r for c in spec.clusters for r in _tree_regions(c.cells)]
    return _tree_regions(spec.nodes)


def _tree_regions(nodes: Sequence[Node]) -> list[Region]:
    found: list[Region] = []
    waiting = {0: Region(Box())}
    for i, node in enumerate(nodes):
        here = waiting.pop(i)
        if isinstance(node, Leaf):
            found.append(here)
        elif isinstance(node, Cut):
            waiting[node.left] = Region(here.box.intersect(Box({node.column: node.left_side})), here.holes)
            waiting[node.right] = Region(here.box.intersect(Box({node.column: node.right_side})), here.holes)
        elif isinstance(node, Groups):
            for box, child in zip(node.boxes, node.children, strict=True):
                waiting[child] = Region(here.box.intersect(box), here.holes)
            waiting[node.rest] = Region(here.box, here.holes + node.boxes)
    return [_inside(r, Box()) for r in found]


def _inside(region: Region, around: Box) -> Region:
    box = region.box.intersect(around)
    return Region(box, tuple(h for h in region.holes if not h.intersect(box).empty))


def _curve_regions(spec: CurveLayout) -> list[Region]:
    dims = len(spec.columns)
    starts = np.array([0, *spec.cuts], np.int64)
    ends = np.array([*spec.cuts, 1 << (spec.bits * dims)], np.int64)
    lo, hi = bounding_ranks(spec.curve, starts, ends, dims, spec.bits)
    found = []
    for low, high in zip(lo.tolist(), hi.tolist(), strict=True):
        box = {}
        for column, first, last in zip(spec.columns, low, high, strict=True):
            values = spec.boundaries[column]
            first = min(first, len(values))
            box[column] = Interval(
                lo=values[first - 1] if first else None,
                hi=values[last] if last < len(values) else None,
                hi_open=last < len(values),
                nulls=first == 0,
            )
        found.append(Region(Box(box)))
    return found


class RegionTable:
    """All regions of a layout as integer arrays: one query against 100,000 blocks takes about a millisecond."""

    def __init__(self, blocks: Sequence[Region]) -> None:
        boundaries: dict[str, list[Any]] = {}
        shapes = [s for r in blocks for s in (r.box, *r.holes)]
        for shape in shapes:
            for column, i in shape.intervals.items():
                boundaries.setdefault(column, []).extend(v for v in (i.lo, i.hi) if v is not None)
        self.columns = {c: n for n, c in enumerate(boundaries)}
        self.lines = [Positions.of(vs) for vs in boundaries.values()]
        self.count = len(blocks)
        self.lo, self.hi = self._ranges([r.box for r in blocks])
        self.owner = np.array([i for i, r in enumerate(blocks) for _ in r.holes], np.int64)
        self.hole_lo, self.hole_hi = self._ranges([h for r in blocks for h in r.holes])

    def _ranges(self, shapes: Sequence[Box]) -> tuple[Numbers, Numbers]:
        lo = np.zeros((len(self.lines), len(shapes)), np.int32)
        hi = np.repeat(np.array([[line.top] for line in self.lines], np.int32).reshape(-1, 1), len(shapes), axis=1)
        ranges: dict[tuple[int, Interval], tuple[int, int]] = {}
        for i, shape in enumerate(shapes):
            for column, interval in shape.intervals.items():
                n = self.columns[column]
                if (n, interval) not in ranges:
                    ranges[n, interval] = self.lines[n].range(interval)
                lo[n, i], hi[n, i] = ranges[n, interval]
        return lo, hi

    def might_match(self, boxes: Iterable[Box]) -> Numbers:
        """One bool per block: False only when no row of its region lies in any of the boxes."""
        found = np.zeros(self.count, dtype=bool)
        for box in boxes:
            found |= self._one(box)
        return found

    def _one(self, box: Box) -> Numbers:
        asked = {self.columns[c]: i for c, i in box.intervals.items() if c in self.columns}
        match = np.full(self.count, not box.empty)
        ranges = {n: self.lines[n].range(i) for n, i in asked.items()}
        for n, (lo, hi) in ranges.items():
            match &= (self.lo[n] <= hi) & (self.hi[n] >= lo)
        if len(self.owner):
            self._skip_holes(match, ranges)
        return match

    def _skip_holes(self, match: Numbers, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Clears blocks whose part of the query lies in holes: in one, or in several together (3.5-18)."""
        holes = np.flatnonzero(match[self.owner])
        if not len(holes):
            return
        blocks = self.owner[holes]
        covers, touches = np.ones(len(holes), bool), np.ones(len(holes), bool)
        for n in range(len(self.lines)):
            lo, hi = self.lo[n, blocks], self.hi[n, blocks]
            if n in ranges:
                lo, hi = np.maximum(lo, ranges[n][0]), np.minimum(hi, ranges[n][1])
            covers &= (self.hole_lo[n, holes] <= lo) & (self.hole_hi[n, holes] >= hi)
            touches &= (self.hole_lo[n, holes] <= hi) & (self.hole_hi[n, holes] >= lo)
        match[blocks[covers]] = False
        left = holes[touches & match[blocks]]
        owners, counts = np.unique(self.owner[left], return_counts=True)
        for block in owners[counts > 1].tolist():
            mine = left[self.owner[left] == block]
            asked = [ranges.get(n, (0, line.top)) for n, line in enumerate(self.lines)]
            rest = tuple(
                (max(int(self.lo[n, block]), lo), min(int(self.hi[n, block]), hi)) for n, (lo, hi) in enumerate(asked)
            )
            lows, highs = self.hole_lo[:, mine].T.tolist(), self.hole_hi[:, mine].T.tolist()
            taken = [list(zip(lo, hi, strict=True)) for lo, hi in zip(lows, highs, strict=True)]
            if _covered(rest, taken):
                match[block] = False


Ranges = tuple[tuple[int, int], ...]


def _covered(shape: Ranges, holes: Sequence[Sequence[tuple[int, int]]]) -> bool:
    """Whether the holes together cover the shape, by taking them off one after another."""
    pieces = [shape]
    for hole in holes:
        left: list[Ranges] = []
        for piece in pieces:
            if any(h[1] < p[0] or h[0] > p[1] for p, h in zip(piece, hole, strict=True)):
                left.append(piece)
                continue
            inner = list(piece)
            for n, (lo, hi) in enumerate(hole):
                p_lo, p_hi = inner[n]
                if p_lo < lo:
                    left.append((*inner[:n], (p_lo, lo - 1), *inner[n + 1 :]))
                if p_hi > hi:
                    left.append((*inner[:n], (hi + 1, p_hi), *inner[n + 1 :]))
                inner[n] = (max(p_lo, lo), min(p_hi, hi))
        pieces = left
        if not pieces or len(pieces) > _MAX_PIECES:
            break
    return not pieces
