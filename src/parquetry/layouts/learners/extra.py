"""Extra blocks: copies of much-asked regions, chosen within a space budget (PW-22, PW-23, 3.5-19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import Sample, decoded_boxes, encode
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.box import Box
from parquetry.model.layout import LayoutSpec
from parquetry.model.logged_query import LoggedQuery

_CANDIDATES = 1000  # regions considered, those of the heaviest queries; the work grows with candidates times queries


@dataclass(frozen=True)
class ExtraBlock:
    """A copy of all rows inside ``box``; it answers a query that lies inside and is never read beside other blocks."""

    box: Box
    rows: int  # of the whole table; at least a block's


def choose_extra_blocks(
    spec: LayoutSpec,
    sample: pa.Table,
    workload: Sequence[LoggedQuery],
    options: LearnOptions,
    budget_rows: int,
    most: int | None = None,
) -> tuple[ExtraBlock, ...]:
    """Regions of extended queries whose copies save most rows read per row stored, best first (Eq. 5)."""
    encoded = encode(sample, workload, options, extended=True)
    if not len(encoded.owner) or not encoded.columns:
        return ()
    owners, first = np.unique(encoded.owner, return_index=True)
    lo, hi = np.minimum.reduceat(encoded.lo, first, axis=1), np.maximum.reduceat(encoded.hi, first, axis=1)
    weight = encoded.weight[owners]
    scale = 1 / options.sample_rate
    sizes = np.bincount(route_numpy(spec, sample), minlength=spec.blocks) * scale
    known, boxes = RegionTable(regions(spec)), decoded_boxes(encoded)
    ends = [*first[1:].tolist(), len(boxes)]
    current = np.array([sizes[known.might_match(boxes[a:b])].sum() for a, b in zip(first.tolist(), ends, strict=True)])
    asked = _distinct_hulls(lo, hi, weight)
    size = np.array([max(_count(encoded, lo[:, q], hi[:, q]) * scale, options.block_rows) for q in asked.tolist()])
    inside = np.ones((len(asked), len(owners)), bool)
    for low, high in zip(lo, hi, strict=True):
        inside &= (low[asked, None] <= low[None, :]) & (high[asked, None] >= high[None, :])
    chosen: list[ExtraBlock] = []
    left = float(budget_rows)
    while most is None or len(chosen) < most:
        saved = np.where(inside, np.maximum(current[None, :] - size[:, None], 0) * weight[None, :], 0).sum(axis=1)
        gain = np.where(size <= left, saved / size, 0)
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            break
        chosen.append(ExtraBlock(_hull(encoded, lo[:, asked[best]], hi[:, asked[best]]), round(float(size[best]))))
        left -= float(size[best])
        current = np.where(inside[best], np.minimum(current, size[best]), current)
    return tuple(chosen)


def _distinct_hulls(lo: Numbers, hi: Numbers, weight: Numbers) -> Numbers:
    """The first query of each distinct hull, for the heaviest hulls."""
    _, first, hull = np.unique(np.vstack([lo, hi]), axis=1, return_index=True, return_inverse=True)
    total = np.bincount(hull.ravel(), weights=weight)
    return np.sort(first[np.argsort(-total, kind="stable")[:_CANDIDATES]])


def _count(sample: Sample, lo: Numbers, hi: Numbers) -> int:
    rows: Numbers | None = None
    for places, low, high, line in zip(sample.places, lo, hi, sample.lines, strict=True):
        if (low, high) != (0, line.top):
            at = places if rows is None else places[rows]
            hits = (at >= low) & (at <= high)
            rows = np.flatnonzero(hits) if rows is None else rows[hits]
    return sample.rows if rows is None else len(rows)


def _hull(sample: Sample, lo: Numbers, hi: Numbers) -> Box:
    sides = zip(sample.columns, sample.lines, lo.tolist(), hi.tolist(), strict=True)
    return Box({c: line.interval(low, high) for c, line, low, high in sides if (low, high) != (0, line.top)})
