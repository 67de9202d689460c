"""Precise descriptors: a few tight boxes that together hold all rows of a block (PW-21, 3.5-20)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from parquetry.errors import SchemaError
from parquetry.layouts.coding.codec import Numbers, codec_for
from parquetry.layouts.coding.positions import Positions
from parquetry.layouts.pruning.regions import Region, RegionTable
from parquetry.model.box import Box
from parquetry.model.values import order_key

METHODS = ("gaps", "str")
_GAPS_TRIED = 8  # the widest gaps of a column that are tried as a place to part


def describe(rows: pa.Table, columns: Sequence[str], count: int, method: str = "gaps") -> tuple[Box, ...]:
    """At most ``count`` closed boxes around the rows of one block, none when it has no row.

    "gaps" parts where the boxes shrink most; "str" packs equal numbers of rows as an R-tree's bulk load does.
    """
    if method not in METHODS:
        raise SchemaError(f"precise descriptors are made by {' or '.join(METHODS)}, not '{method}'")
    if rows.num_rows == 0 or not columns:
        return () if rows.num_rows == 0 else (Box(),)
    lines, places, scaled = [], [], []
    for column in columns:
        line, place = _ranked(rows.column(column))
        lines.append(line)
        places.append(place)
        scaled.append(_scaled(line, place))
    points, grid = np.array(scaled), np.array(places)
    parts = _gaps(points, count) if method == "gaps" else _pack(points, np.arange(rows.num_rows), count, 0)
    return tuple(_box(columns, lines, grid[:, part]) for part in parts)


def _ranked(column: pa.ChunkedArray) -> tuple[Positions, Numbers]:
    codec = codec_for(column.type)
    if codec.kind == "object":
        line = Positions(sorted({order_key(v) for v in column.unique().to_pylist() if v is not None}), codec)
    else:
        numbers, nulls = codec.numbers(column)
        line = Positions(np.unique(numbers if nulls is None else numbers[~nulls]), codec)
    return line, line.place(column)


def _scaled(line: Positions, place: Numbers) -> Numbers:
    """The rows' values between 0 and 1; null a whole length below, so that a part seldom mixes both."""
    if line.array is None:
        values = np.arange(line.count, dtype=np.float64)
    else:
        values = line.array.astype(np.float64)
        finite = values[np.isfinite(values)]
        if len(finite):
            values = np.clip(np.nan_to_num(values, nan=finite[-1]), finite[0], finite[-1])
        else:
            values = np.zeros(line.count)
    length = float(values[-1] - values[0]) if line.count else 0.0
    at = np.concatenate([[-1.0], (values - values[:1]) / (length or 1.0)])
    return np.take(at, place // 2)


def _gaps(points: Numbers, count: int) -> list[Numbers]:
    """Parts the rows again and again at the gap that saves most volume."""
    parts = [np.arange(points.shape[1])]
    best = [_best_gap(points, parts[0])]
    while len(parts) < count:
        i = int(np.argmax([saved for saved, _ in best]))
        saved, below = best[i]
        if saved <= 0:
            break
        left, right = parts[i][below], parts[i][~below]
        parts[i : i + 1] = [left, right]
        best[i : i + 1] = [_best_gap(points, left), _best_gap(points, right)]
    return parts


def _best_gap(points: Numbers, rows: Numbers) -> tuple[float, Numbers]:
    mine = points[:, rows]
    whole = _volume(mine)
    best, mask = 0.0, np.zeros(len(rows), bool)
    for axis in mine:
        ordered = np.sort(axis)
        steps = np.diff(ordered)
        few = np.argpartition(steps, -_GAPS_TRIED)[-_GAPS_TRIED:] if len(steps) > _GAPS_TRIED else np.arange(len(steps))
        for i in few[steps[few] > 0].tolist():
            below = axis <= ordered[i]
            saved = whole - _volume(mine[:, below]) - _volume(mine[:, ~below])
            if saved > best:
                best, mask = saved, below
    return best, mask


def _volume(points: Numbers) -> float:
    # A thousandth on every side lets flat parts still count by their other sides.
    return float(np.prod(points.max(axis=1) - points.min(axis=1) + 1e-3))


def _pack(points: Numbers, rows: Numbers, count: int, axis: int) -> list[Numbers]:
    """Sort-tile-recursive: slabs along one column, each packed along the next."""
    if count <= 1 or len(rows) <= 1:
        return [rows]
    left = points.shape[0] - axis
    slabs = count if left == 1 else min(count, int(np.ceil(count ** (1 / left) - 1e-9)))
    ordered = rows[np.argsort(points[axis, rows], kind="stable")]
    shares = [count // slabs + (i < count % slabs) for i in range(slabs)]
    ends = (np.cumsum(shares) * len(rows) / count).astype(np.int64)
    pieces = np.split(ordered, ends[:-1])
    if left == 1:
        return [p for p in pieces if len(p)]
    return [q for p, n in zip(pieces, shares, strict=True) if len(p) for q in _pack(points, p, n, axis + 1)]


def _box(columns: Sequence[str], lines: Sequence[Positions], places: Numbers) -> Box:
    ends = zip(columns, lines, places.min(axis=1).tolist(), places.max(axis=1).tolist(), strict=True)
    # The lowest position of values is 2, so a part with nulls reaches from 0 and has no lower bound.
    return Box({column: line.interval(lo, hi) for column, line, lo, hi in ends})


class BoxTable:
    """The precise boxes of all blocks, for pruning; a block without a descriptor (None) may always match."""

    def __init__(self, blocks: Sequence[Sequence[Box] | None]) -> None:
        self.unknown = np.array([b is None for b in blocks], bool)
        self.owner = np.array([i for i, b in enumerate(blocks) for _ in b or ()], np.int64)
        self.table = RegionTable([Region(box) for b in blocks for box in b or ()])

    def might_match(self, boxes: Iterable[Box]) -> Numbers:
        """One bool per block: False only when none of its precise boxes meets any of the query's."""
        found = self.unknown.copy()
        found[self.owner[self.table.might_match(boxes)]] = True
        return found
