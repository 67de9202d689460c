"""PAW: partitions aware of workload variance, with irregular blocks (PW-10…PW-20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from parquetry.errors import SchemaError
from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.learners.grow import (
    CutAt,
    GroupsAt,
    Part,
    Price,
    Priced,
    Span,
    Split,
    best_cut,
    even_cuts,
    grow,
    median_cut,
    median_cuts,
    read_whole,
    spread,
    weight_of,
    within,
)
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import Sample, encode
from parquetry.model.layout import TreeLayout
from parquetry.model.logged_query import LoggedQuery

VARIANTS = ("foresight", "paper")
_LEAST_RADIUS = 1e-6  # of a domain: an equality has no radius to grow by (3.5-8)
_UNASKED_WIDTH = 0.1  # of a domain: how wide queries are taken to be on a column that none bounds


def learn_paw(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> TreeLayout:
    """A tree for the logged queries and for all within δ of them (PW-05, PW-06); what they leave is cut by medians.

    Variant "paper" is greedy as printed: a node costs its queries all its rows. "foresight" expects that a node large
    enough will be split again, so it does not strand queries in nodes too small for that: it reads about a tenth less.
    """
    variant = options.variant or "foresight"
    if variant not in VARIANTS:
        raise SchemaError(f"paw has the variants {' and '.join(VARIANTS)}, not '{variant}'")
    encoded = encode(sample, workload, options, extended=True)
    block_rows = options.sample_block_rows
    widths = _query_widths(encoded)
    price, also = (read_whole, median_cuts) if variant == "paper" else (_foresee(block_rows), even_cuts)

    def decide(part: Part) -> Split | None:
        if part.rows < 2 * block_rows:
            return None
        found: list[Priced] = []
        if len(part.queries):
            # Eq. (4) with its inequality mended: groups pay on small and medium nodes only (PW-15, 3.5-1).
            small = part.rows <= options.alpha * block_rows
            if small and (groups := split_by_groups(encoded, part, block_rows, price)):
                found.append(groups)
            if cut := best_cut(encoded, part, block_rows, price, also):
                found.append(cut)
        best = min(found, key=lambda p: p.cost, default=None)
        if best and best.cost < part.rows * weight_of(encoded, part.queries):
            return best.split
        return _refine(encoded, part, block_rows, widths) if options.refine else None

    how = {"block_rows": options.block_rows, "variant": variant, "alpha": options.alpha, "refine": options.refine}
    return grow(encoded, "paw", decide, {**how, **encoded.delta})


def _foresee(block_rows: int) -> Price:
    """What a query will cost on a node in the end: all of a node that cannot be split, little more than one block of
    a larger one. Fitted by hand on lineitem and OSM-like data; its neighbours tried there cost within 7 % of it."""

    def price(rows: Numbers) -> Numbers:
        return np.where(rows < 2 * block_rows, rows, 1.1 * block_rows + 0.1 * rows)

    return price


@dataclass(frozen=True)
class _Group:
    lo: Numbers
    hi: Numbers
    queries: Numbers


def split_by_groups(sample: Sample, part: Part, block_rows: int, price: Price = read_whole) -> Priced | None:
    """Algorithm 1: queries that meet share a box, every box gets a block of its own, the rest is irregular.

    Boxes that are too small grow; when grown boxes meet they merge and grow again (PW-10…PW-12, 3.5-7, 3.5-9).
    """
    lo = np.maximum(sample.lo[:, part.queries], part.lo[:, None])
    hi = np.minimum(sample.hi[:, part.queries], part.hi[:, None])
    groups = _merge([_Group(lo[:, k], hi[:, k], part.queries[[k]]) for k in range(len(part.queries))])
    while True:
        grown: list[_Group] = []
        sizes: list[int] = []
        for g in groups:
            if (len(grown) + 1) * block_rows > part.rows - block_rows:
                return None  # so many groups of full size leave no room for the rest
            box, size = _expand(sample, part, g, block_rows)
            grown.append(_Group(*box, g.queries))
            sizes.append(size)
        merged = _merge(grown)
        if len(merged) == len(grown):
            break
        groups = merged
    if part.rows - sum(sizes) < block_rows:
        return None
    priced = price(np.array(sizes, np.float64)).tolist()
    cost = sum(each * weight_of(sample, g.queries) for each, g in zip(priced, grown, strict=True))
    return Priced(cost, GroupsAt(tuple((g.lo, g.hi) for g in grown)))


def _merge(groups: list[_Group]) -> list[_Group]:
    """Groups whose boxes meet become one with the box around them, until no two meet."""
    done: list[_Group] = []
    for g in groups:
        again = True
        while again:
            again = False
            for i, other in enumerate(done):
                if bool((g.lo <= other.hi).all() and (other.lo <= g.hi).all()):
                    both = np.concatenate([g.queries, other.queries])
                    g = _Group(np.minimum(g.lo, other.lo), np.maximum(g.hi, other.hi), both)
                    del done[i]
                    again = True
                    break
        done.append(g)
    return done


def _expand(sample: Sample, part: Part, group: _Group, block_rows: int) -> tuple[Span, int]:
    """The box of the group with at least ``block_rows`` rows, grown evenly about its centre if need be (PW-11)."""
    size = int(within(part.places, group.lo, group.hi, part.lo, part.hi).sum())
    if size >= block_rows:
        return (group.lo, group.hi), size
    factor = np.zeros(part.rows)
    for d, coords in enumerate(sample.coords):
        if group.lo[d] <= part.lo[d] and group.hi[d] >= part.hi[d]:
            continue
        low, high = max(coords[group.lo[d]], 0.0), coords[group.hi[d]]
        radius = max((high - low) / 2, _LEAST_RADIUS)
        by_position = np.abs(coords[part.lo[d] : part.hi[d] + 1] - (low + high) / 2) / radius
        np.maximum(factor, by_position[part.places[d] - part.lo[d]], out=factor)
    least = np.partition(factor, block_rows - 1)[block_rows - 1]
    taken = part.places[:, factor <= least]
    lo, hi = np.minimum(group.lo, taken.min(axis=1)), np.maximum(group.hi, taken.max(axis=1))
    return (lo, hi), int(within(part.places, lo, hi, part.lo, part.hi).sum())


def _query_widths(sample: Sample) -> Numbers:
    """The usual width of a query in each column, for choosing where an unforeseen query gains most from a cut."""
    widths = []
    for d, coords in enumerate(sample.coords):
        bounded = (sample.lo[d] > 1) | (sample.hi[d] < sample.lines[d].top)
        width = coords[sample.hi[d, bounded]] - np.maximum(coords[sample.lo[d, bounded]], 0)
        share = bounded.mean() if len(bounded) else 0.0
        typical = float(np.clip(width, 0, 1).mean()) if len(width) else _UNASKED_WIDTH
        widths.append(typical * share + (1 - share))
    return np.asarray(np.maximum(widths, _LEAST_RADIUS))


def _refine(sample: Sample, part: Part, block_rows: int, widths: Numbers) -> CutAt | None:
    """The median cut of the column in which the node is widest against the usual query (PW-19); irregular nodes too
    (3.5-17)."""
    columns = range(len(sample.columns))
    for column in np.argsort(-spread(sample, part, columns) / widths, kind="stable").tolist():
        position = median_cut(part.places[column], block_rows)
        if position is not None:
            return CutAt(column, position)
    return None
