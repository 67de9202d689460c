"""Workload variance: how far future filters may lie from logged ones, and filters widened by it (PW-03…PW-06)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.errors import SchemaError
from parquetry.layouts.coding.codec import Codec, Numbers
from parquetry.layouts.learners.options import LearnOptions
from parquetry.model.box import Box, Interval

_AT_ONCE = 256  # boxes compared with all others at a time: memory stays bounded however long the log is
_WITHOUT_HISTORY = 0.01  # one query tells nothing of variance: the paper's default share


@dataclass(frozen=True)
class Domain:
    """The range of a column's numbers. Categories have none: a neighbour in order is not similar (3.5-22)."""

    codec: Codec
    low: float
    high: float

    @classmethod
    def of(cls, codec: Codec, distinct: Any) -> Domain:
        if codec.kind == "object" or pa.types.is_boolean(codec.arrow):
            return cls(codec, 0.0, 0.0)
        finite = distinct[np.isfinite(distinct)]
        return cls(codec, float(finite[0]), float(finite[-1])) if len(finite) else cls(codec, 0.0, 0.0)

    @property
    def length(self) -> float:
        return self.high - self.low

    def share(self, value: Any, default: float) -> float:
        """Where a bound lies in the domain, from 0 to 1 (3.5-3); an absent one at ``default`` (3.5-4)."""
        if value is None or self.length == 0:
            return default
        at = (float(self.codec.number(value)) - self.low) / self.length
        return 1.0 if math.isnan(at) else min(1.0, max(0.0, at))


def in_numbers(
    amount: float | Mapping[str, Any], columns: Sequence[str], domains: Sequence[Domain]
) -> dict[str, float]:
    """δ per column in the column's numbers: a share of every domain, or the amounts given."""
    if isinstance(amount, int | float):
        return {c: amount * d.length for c, d in zip(columns, domains, strict=True)}
    return {c: _span(amount[c], d.codec) if c in amount else 0.0 for c, d in zip(columns, domains, strict=True)}


def _span(amount: Any, codec: Codec) -> float:
    if isinstance(amount, timedelta):
        if pa.types.is_date(codec.arrow):
            return float(amount / timedelta(days=1))
        if pa.types.is_timestamp(codec.arrow):
            return float(amount / timedelta(microseconds=1))
    elif codec.kind != "object" and isinstance(amount, int | float | Decimal):
        scale = codec.arrow.scale if pa.types.is_decimal(codec.arrow) else 0
        return float(amount) * float(10**scale)
    raise SchemaError(f"delta {amount!r} does not fit a column of type {codec.arrow}; give a number, or a timedelta")


def extend(box: Box, domains: Mapping[str, Domain], spans: Mapping[str, float]) -> Box:
    """The box widened by δ on every side, free of a bound where it leaves the domain (PW-06)."""
    return Box({c: _extend(i, domains[c], spans[c]) if c in domains else i for c, i in box.intervals.items()})


def _extend(interval: Interval, domain: Domain, span: float) -> Interval:
    if span <= 0 or not interval.values:
        return interval
    lo, hi, number, codec = interval.lo, interval.hi, domain.codec.number, domain.codec
    whole = codec.kind == "int"
    if lo is not None and math.isfinite(low := number(lo) - span):
        lo = None if low <= domain.low else codec.value(math.ceil(low) if whole else low)
    if hi is not None and math.isfinite(high := number(hi) + span):
        hi = None if high >= domain.high else codec.value(math.floor(high) if whole else high)
    return Interval(lo, hi, lo is not None and interval.lo_open, hi is not None and interval.hi_open, interval.nulls)


def distances(future: Numbers, past: Numbers) -> Numbers:
    """Definition 1 between every future and every past query, each given as its bounds in shares (PW-03)."""
    apart: Numbers = np.abs(future[:, None, :] - past[None, :, :]).max(axis=2)
    return apart


def estimate_delta(
    queries: Sequence[Sequence[Box]], columns: Sequence[str], domains: Sequence[Domain], options: LearnOptions
) -> float:
    """δ' of the later half of the workload (PW-18, 3.5-12), as a share of each domain.

    "matching" pairs the halves one to one. "hausdorff" takes each later query's distance to the nearest before it, in
    either half: a log that shows one dashboard after the other has its like close by, not in the earlier half.
    """
    half = len(queries) // 2
    boxes = _bounds([b for q in queries for b in q], columns, domains)
    of = np.repeat(np.arange(len(queries)), [len(q) for q in queries])
    later = of >= half
    if not later.any() or later.all() or boxes.shape[1] == 0:
        return _WITHOUT_HISTORY
    if options.delta_estimate == "matching":
        past, future = boxes[~later], boxes[later]
        return bottleneck_matching(distances(future, past)[: len(past), : len(future)])
    nearest = []
    for at in np.array_split(np.flatnonzero(later), -(-len(boxes) // _AT_ONCE)):
        apart = distances(boxes[at], boxes)
        apart[of[at][:, None] <= of[None, :]] = np.inf
        nearest.append(apart.min(axis=1))
    return float(np.quantile(np.concatenate(nearest), options.delta_quantile))


def _bounds(boxes: Sequence[Box], columns: Sequence[str], domains: Sequence[Domain]) -> Numbers:
    free = Interval()
    rows = []
    for box in boxes:
        row: list[float] = []
        for c, domain in zip(columns, domains, strict=True):
            if domain.length:
                i = box.intervals.get(c, free)
                row += [domain.share(i.lo, 0.0), domain.share(i.hi, 1.0)]
        rows.append(row)
    return np.array(rows, np.float64).reshape(len(boxes), 2 * sum(d.length > 0 for d in domains))


def bottleneck_matching(apart: Numbers) -> float:
    """The least threshold under which rows and columns can be matched one to one (Definition 2, PW-04)."""
    levels = np.unique(apart)
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if _matches(apart <= levels[middle]):
            high = middle
        else:
            low = middle + 1
    return float(levels[low])


def _matches(allowed: Numbers) -> bool:
    """Whether every row of the smaller side finds a partner of its own, by augmenting paths."""
    if allowed.shape[0] > allowed.shape[1]:
        allowed = allowed.T
    partner = np.full(allowed.shape[1], -1)
    for start in range(allowed.shape[0]):
        came_from: dict[int, int] = {}  # column -> row that reached it
        waiting, end = [start], -1
        while waiting and end < 0:
            row = waiting.pop()
            for column in np.flatnonzero(allowed[row]).tolist():
                if column in came_from:
                    continue
                came_from[column] = row
                if partner[column] < 0:
                    end = column
                    break
                waiting.append(int(partner[column]))
        if end < 0:
            return False
        while end >= 0:
            row = came_from[end]
            before = np.flatnonzero(partner == row)
            partner[end] = row
            end = int(before[0]) if len(before) else -1
    return True
