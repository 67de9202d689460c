"""A sample and a workload as integers: rows become positions per column, filters become ranges of positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.errors import UnknownColumn
from parquetry.layouts.coding.codec import Codec, Numbers, codec_for
from parquetry.layouts.coding.positions import Positions, as_small_integers
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.variance import Domain, estimate_delta, extend, in_numbers
from parquetry.model.box import Box
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, IsNull, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.values import order_key
from parquetry.workload.boxes import to_boxes

MAX_BOUNDARIES = 1 << 15  # per column; beyond, quantiles. Far finer than any block, and small enough for CPU caches
_QUANTILE_ROWS = 1 << 20  # quantiles of that many rows are as good as those of all


@dataclass(frozen=True)
class Sample:
    """``places[d, i]`` is row i's position in column d. Query box k is ``[lo[d, k], hi[d, k]]`` in every column and
    belongs to query ``owner[k]``; owners ascend. ``coords[d]`` maps positions to numbers of 0 to 1."""

    columns: tuple[str, ...]
    lines: tuple[Positions, ...]
    places: Numbers
    coords: tuple[Numbers, ...]
    lo: Numbers
    hi: Numbers
    owner: Numbers
    weight: Numbers
    delta: dict[str, Any]

    @property
    def rows(self) -> int:
        return int(self.places.shape[1])


def encode(table: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions, extended: bool) -> Sample:
    """The sample over the columns that can be cut, with the workload's filters, extended by δ if asked (PW-06)."""
    columns, codecs, numbers, domains = [], [], [], []
    for column in choose_columns(table, workload, options):
        codec = codec_for(table.schema.field(column).type)
        distinct = _distinct(table.column(column), codec)
        if len(distinct) < 2 and not (len(distinct) == 1 and table.column(column).null_count):
            continue  # one value, or all null: nothing to cut
        columns.append(column)
        codecs.append(codec)
        numbers.append(distinct)
        domains.append(Domain.of(codec, distinct))
    queries = [to_boxes(q.predicate, columns).boxes for q in workload]
    boxes = [box for boxes in queries for box in boxes]
    owner = np.array([i for i, boxes in enumerate(queries) for _ in boxes], np.int64)
    delta: dict[str, Any] = {}
    if extended and boxes:
        amount = options.delta
        if amount is None:
            amount = estimate_delta(queries, columns, domains, options)
        spans = in_numbers(amount, columns, domains)
        boxes = [extend(box, dict(zip(columns, domains, strict=True)), spans) for box in boxes]
        delta = {"delta": amount if isinstance(amount, float | int) else {c: str(v) for c, v in amount.items()}}
    lines = [_line(c, codec, ns, boxes) for c, codec, ns in zip(columns, codecs, numbers, strict=True)]
    places = np.empty((len(columns), table.num_rows), np.int32)
    for d, (column, line) in enumerate(zip(columns, lines, strict=True)):
        places[d] = line.place(table.column(column))
    lo, hi = np.zeros((len(columns), len(boxes)), np.int32), np.zeros((len(columns), len(boxes)), np.int32)
    for d, (column, line) in enumerate(zip(columns, lines, strict=True)):
        for k, box in enumerate(boxes):
            lo[d, k], hi[d, k] = line.range(box.intervals[column]) if column in box.intervals else (0, line.top)
    coords = tuple(_coords(line, domain) for line, domain in zip(lines, domains, strict=True))
    weight = np.array([q.weight for q in workload], np.float64)
    return Sample(tuple(columns), tuple(lines), places, coords, lo, hi, owner, weight, delta)


def choose_columns(table: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> list[str]:
    """The columns that were asked for, or those that the workload filters, in the table's order."""
    if options.columns is not None:
        for column in options.columns:
            if column not in table.column_names:
                raise UnknownColumn(column, "the sample", table.column_names)
            codec_for(table.schema.field(column).type)
        return list(options.columns)
    used = set().union(*(_columns(q.predicate) for q in workload)) if workload else set()
    return [f.name for f in table.schema if f.name in used and not pa.types.is_nested(f.type)]


def _columns(predicate: Predicate) -> set[str]:
    match predicate:
        case And(parts) | Or(parts):
            return set().union(*(_columns(p) for p in parts)) if parts else set()
        case Range(column) | OneOf(column) | IsNull(column) | NotNull(column):
            return {column}
    return set()


def _distinct(column: pa.ChunkedArray, codec: Codec) -> Any:
    """The column's sorted distinct numbers (objects: order keys), thinned to quantiles when there are very many."""
    if codec.kind == "object":
        values = sorted(order_key(v) for v in pc.unique(column).to_pylist() if v is not None)
        step = -(-len(values) // MAX_BOUNDARIES) or 1
        return values[::step] if step == 1 or values[-1] == values[::step][-1] else [*values[::step], values[-1]]
    numbers, nulls = codec.numbers(column)
    if nulls is not None:
        numbers = numbers[~nulls]
    whole = as_small_integers(numbers)
    if whole is not None:
        low = whole.min()
        few = (np.flatnonzero(np.bincount(whole - low)) + low).astype(numbers.dtype)
    else:
        few = np.unique(numbers[:: -(-len(numbers) // _QUANTILE_ROWS) or 1])
        if len(few) <= MAX_BOUNDARIES and len(numbers) > _QUANTILE_ROWS:
            few = np.unique(numbers)
    if len(few) > MAX_BOUNDARIES:
        few = few[np.linspace(0, len(few) - 1, MAX_BOUNDARIES).astype(np.int64)]
    if len(numbers) and len(few) > 1:
        few = np.unique(np.concatenate([few, [numbers.min(), numbers.max()]]).astype(few.dtype))
    return few


def _line(column: str, codec: Codec, distinct: Any, boxes: Sequence[Box]) -> Positions:
    intervals = [b.intervals[column] for b in boxes if column in b.intervals]
    bounds = [v for i in intervals for v in (i.lo, i.hi) if v is not None]
    if codec.kind == "object":
        return Positions(sorted({*distinct, *(order_key(v) for v in bounds)}), codec)
    extra = np.array([codec.number(v) for v in bounds], np.float64 if codec.kind == "float" else np.int64)
    return Positions(np.unique(np.concatenate([distinct, extra]).astype(extra.dtype)), codec)


def _coords(line: Positions, domain: Domain) -> Numbers:
    """Positions on a scale of 0 to 1; a gap lies between its ends, null below everything."""
    if line.array is None:
        at = np.arange(line.count) / max(1, line.count - 1)
    else:
        at = np.clip(np.nan_to_num((line.array - domain.low) / (domain.length or 1.0), nan=1.0), 0.0, 1.0)
    coords = np.empty(line.top + 1)
    coords[2 : line.top : 2] = at
    coords[3 : line.top - 1 : 2] = (at[1:] + at[:-1]) / 2
    coords[0], coords[1], coords[line.top] = -1.0, 0.0, 1.0
    return coords


def decoded_boxes(sample: Sample) -> list[Box]:
    """The query boxes of the sample, extended as they were, with real values again."""
    boxes = []
    for k in range(sample.lo.shape[1]):
        sides = {}
        for d, (column, line) in enumerate(zip(sample.columns, sample.lines, strict=True)):
            lo, hi = int(sample.lo[d, k]), int(sample.hi[d, k])
            if (lo, hi) != (0, line.top):
                sides[column] = line.interval(lo, hi)
        boxes.append(Box(sides))
    return boxes
