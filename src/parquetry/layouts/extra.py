"""Extra blocks: copies of much-asked regions, chosen within a space budget (PW-22, PW-23, 3.5-19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from parquetry.layouts.codec import Numbers
from parquetry.layouts.options import LearnOptions
from parquetry.layouts.positions import Positions
from parquetry.layouts.regions import RegionTable, regions
from parquetry.layouts.route import route_numpy
from parquetry.layouts.sample import decoded_boxes, encode
from parquetry.model.box import Box
from parquetry.model.layout import LayoutSpec
from parquetry.model.workload import LoggedQuery


@dataclass(frozen=True)
class ExtraBlock:
    """A copy of all rows inside ``box``; it answers a query that lies inside and is never read beside other blocks."""

    box: Box
    rows: int  # of the whole table; at least a block's


def choose_extra_blocks(
    spec: LayoutSpec, sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions, budget_rows: int
) -> tuple[ExtraBlock, ...]:
    """Regions of extended queries whose copies save most rows read per row stored, best first (Eq. 5)."""
    encoded = encode(sample, workload, options, extended=True)
    boxes = decoded_boxes(encoded)
    queries = [[b for b, o in zip(boxes, encoded.owner.tolist(), strict=True) if o == q] for q in range(len(workload))]
    queries = [q for q in queries if q]
    hulls = [reduce(Box.hull, q) for q in queries]
    weight = encoded.weight[np.unique(encoded.owner)]
    scale = 1 / options.sample_rate
    sizes = np.bincount(route_numpy(spec, sample), minlength=spec.blocks) * scale
    known = RegionTable(regions(spec))
    current = np.array([sizes[known.might_match(q)].sum() for q in queries])
    size = np.array([max(count_inside(sample, hull) * scale, options.block_rows) for hull in hulls])
    inside = np.array([[not a.minus(b) for a in hulls] for b in hulls], bool).reshape(len(hulls), len(hulls))
    chosen: list[ExtraBlock] = []
    left = float(budget_rows)
    while len(hulls):
        saved = np.where(inside, np.maximum(current[None, :] - size[:, None], 0) * weight[None, :], 0).sum(axis=1)
        gain = np.where(size <= left, saved / size, 0)
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            break
        chosen.append(ExtraBlock(hulls[best], round(float(size[best]))))
        left -= float(size[best])
        current = np.where(inside[best], np.minimum(current, size[best]), current)
    return tuple(chosen)


def count_inside(table: pa.Table, box: Box) -> int:
    """Rows of the table inside the box."""
    return int(rows_inside(table, box).sum())


def rows_inside(table: pa.Table, box: Box) -> Numbers:
    """Which rows of the table lie inside the box."""
    inside = np.ones(table.num_rows, bool)
    for column, interval in box.intervals.items():
        bounds = [v for v in (interval.lo, interval.hi) if v is not None]
        line = Positions.of(bounds, table.schema.field(column).type)
        lo, hi = line.range(interval)
        at = line.place(table.column(column))
        inside &= (at >= lo) & (at <= hi)
    return inside


def pick_extra_block(extra: Sequence[ExtraBlock], query: Sequence[Box], normal_rows: float) -> int | None:
    """The smallest extra block that holds the whole query and is cheaper than the normal route, or None (PW-23)."""
    holding = [i for i, e in enumerate(extra) if e.rows < normal_rows and all(not b.minus(e.box) for b in query)]
    return min(holding, key=lambda i: extra[i].rows, default=None)
