"""Which row groups might hold a row that a query wants. What is not known might match: pruning loses no row."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parquetry.layouts.pruning.descriptors import BoxTable
from parquetry.layouts.pruning.features import FeatureTable
from parquetry.layouts.pruning.regions import RegionTable
from parquetry.model.box import Box
from parquetry.model.key_ranges import KeyRange, key_ranges
from parquetry.model.layout import EXTRA_BASE
from parquetry.model.order_codes import HIGHEST, LOWEST, Bounds, codes_of
from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Opaque, Or, Predicate, Range
from parquetry.storage.index import overlapping
from parquetry.storage.index_reader import RowGroupTable
from parquetry.storage.snapshot_index import SnapshotIndex
from parquetry.workload.boxes import to_boxes

PROOFS = ("key", "minmax", "nulls", "region", "features", "boxes")

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Pruned:
    """``keep`` is True where rows might match. ``skipped_by`` counts each skipped row group at the first proof."""

    keep: Mask
    skipped_by: dict[str, int]


@dataclass(frozen=True, eq=False)
class LayoutRegions:
    """What a layout alone says of its blocks, which holds for the deltas written in it."""

    layout_id: int
    columns: tuple[str, ...]
    table: RegionTable
    extra: tuple[Box, ...] = ()  # the regions of its extra blocks
    features: FeatureTable | None = None


def prune(
    index: SnapshotIndex,
    predicate: Predicate,
    *,
    proofs: Sequence[str] = PROOFS,
    layout: LayoutRegions | None = None,
    older: Sequence[LayoutRegions] = (),
    opaque: Sequence[Opaque] = (),
    extra: int | None = None,
) -> Pruned:
    """Drops the row groups of which a proof shows that no row satisfies the predicate and the ``opaque`` conditions.

    ``key``: its range of keys; ``minmax``, ``nulls``: its statistics; ``region``: its blocks' part of space under the
    layout, holes included (PW-08); ``features``: conditions that none of its blocks' rows satisfies (WP-15); ``boxes``:
    its precise descriptor (PW-21). ``older`` are layouts that some deltas still have (3.4-10).
    Row groups of extra blocks are left out; with ``extra``, all but those of this one (PW-23).
    Rows are judged as stored: on keyed tables the caller passes only conditions that hold of every version of a key.
    """
    keep = ~index.extra if extra is None else index.block_span[0] == EXTRA_BASE + extra
    skipped_by: dict[str, int] = {}

    def skip(proof: str, might_match: Mask) -> None:
        before = int(np.count_nonzero(keep))
        np.logical_and(keep, might_match, out=keep)
        skipped = before - int(np.count_nonzero(keep))
        if skipped:
            skipped_by[proof] = skipped

    if "key" in proofs:
        ranges = key_ranges(predicate, index.schema, index.blocks if extra is None else (EXTRA_BASE + extra,))
        if ranges is not None:
            skip("key", _within_ranges(index, ranges))
    found = _evaluate(index, predicate, "minmax" in proofs, "nulls" in proofs)
    if "minmax" in proofs:
        skip("minmax", found.by_minmax)
    if "nulls" in proofs:
        skip("nulls", found.by_both)
    if extra is None:
        layouts = [*older, *([layout] if layout is not None else [])]
        if "region" in proofs and keep.any():
            skip("region", _by_blocks(index, layouts, lambda known: _in_regions(known, predicate)))
        if "features" in proofs and keep.any():
            skip("features", _by_blocks(index, layouts, lambda known: _by_features(known, predicate, opaque)))
    if "boxes" in proofs and keep.any():
        precise = _precise(index)
        if precise is not None:
            skip("boxes", precise.might_match(to_boxes(predicate).boxes))
    return Pruned(keep, skipped_by)


def _by_blocks(
    index: SnapshotIndex, layouts: Sequence[LayoutRegions], might_match: Callable[[LayoutRegions], Mask | None]
) -> Mask:
    """Row groups with a block that might match, by what the layout of each delta says of its blocks."""
    keep = np.ones(len(index), bool)
    first, last = index.block_span
    for layout in layouts:
        # Extra blocks have no part of space, and no features, to themselves.
        mine = np.flatnonzero((index.layout == layout.layout_id) & ~index.extra)
        match = might_match(layout) if len(mine) else None
        if match is not None:
            before = np.concatenate(([0], np.cumsum(match)))
            keep[mine] = before[last[mine] + 1] > before[first[mine]]
    return keep


def _in_regions(layout: LayoutRegions, predicate: Predicate) -> Mask:
    return layout.table.might_match(to_boxes(predicate, layout.columns).boxes)


def _by_features(layout: LayoutRegions, predicate: Predicate, opaque: Sequence[Opaque]) -> Mask | None:
    return None if layout.features is None else layout.features.might_match(predicate, opaque)


def _precise(index: SnapshotIndex) -> BoxTable | None:
    """The precise descriptors of a snapshot, parsed at the first query; None when no row group has one."""
    if "boxes" not in index.prepared:
        texts = index.boxes
        parsed = [None if t is None else [Box.from_json(b) for b in json.loads(t)] for t in texts]
        index.prepared["boxes"] = BoxTable(parsed) if any(t is not None for t in texts) else None
    return index.prepared["boxes"]  # type: ignore[no-any-return]


def _within_ranges(index: SnapshotIndex, ranges: Sequence[KeyRange]) -> Mask:
    keep = np.zeros(len(index), bool)
    for table, offset in zip(index.tables, index.offsets.tolist(), strict=False):
        if len(ranges) <= len(table):
            for lo, hi in ranges:
                hits = overlapping(table.starts, table.ends, lo, hi)
                keep[offset + hits.start : offset + hits.stop] = True
        else:
            keep[offset : offset + len(table)] = _meets_any(table, ranges)
    return keep


def _meets_any(table: RowGroupTable, ranges: Sequence[KeyRange]) -> list[bool]:
    """The same by looking up the row groups in the ranges, for few row groups and many ranges."""
    los = [lo for lo, _ in ranges]
    his = [hi for _, hi in ranges if hi is not None]  # only the last range can be unbounded
    pairs = zip(table.starts, table.ends, strict=True)
    return [bisect_right(his, start) < bisect_left(los, end) for start, end in pairs]


@dataclass(frozen=True, eq=False)
class _Might:
    """Where a predicate might hold, by min/max alone and with null counts too; one array when these agree."""

    by_minmax: Mask
    by_both: Mask


def _evaluate(index: SnapshotIndex, predicate: Predicate, minmax: bool, nulls: bool) -> _Might:
    match predicate:
        case And(parts) if parts:
            return _combine(np.logical_and, [_evaluate(index, p, minmax, nulls) for p in parts])
        case Or(parts):
            if not parts:
                return _same(np.zeros(len(index), bool))
            return _combine(np.logical_or, [_evaluate(index, p, minmax, nulls) for p in parts])
        case And() | Anything():
            return _same(np.ones(len(index), bool))
        case Nothing():
            return _same(np.zeros(len(index), bool))
        case IsNull(column):
            everywhere = np.ones(len(index), bool)
            return _Might(everywhere, index.nulls(column) != 0) if nulls else _same(everywhere)
        case Range(column) | OneOf(column) | NotNull(column):
            might = _by_bounds(index.bounds(column) if minmax else None, predicate, len(index))
            if not nulls:
                return _same(might)
            some_value = index.nulls(column) != index.rows
            return _same(might) if some_value.all() else _Might(might, might & some_value)


def _same(mask: Mask) -> _Might:
    return _Might(mask, mask)


def _combine(operation: np.ufunc, parts: list[_Might]) -> _Might:
    by_minmax = operation.reduce([p.by_minmax for p in parts])
    if all(p.by_both is p.by_minmax for p in parts):
        return _same(by_minmax)
    return _Might(by_minmax, operation.reduce([p.by_both for p in parts]))


def _by_bounds(bounds: Bounds | None, leaf: Range | OneOf | NotNull, size: int) -> Mask:
    if bounds is None or isinstance(leaf, NotNull):
        return np.ones(size, bool)
    try:
        if isinstance(leaf, Range):
            lo = LOWEST if leaf.lo is None else bounds.code(leaf.lo) + leaf.lo_open
            hi = HIGHEST if leaf.hi is None else bounds.code(leaf.hi) - leaf.hi_open
            return _meets(bounds, lo, hi)
        values = codes_of(leaf.values, bounds)
    except TypeError:
        return np.ones(size, bool)  # a value that is not of the column's type
    if not len(values):
        return np.zeros(size, bool)
    might = _meets(bounds, int(values[0]), int(values[-1]))
    if len(values) > 1:
        at = np.flatnonzero(might)
        following = np.searchsorted(values, bounds.lows[at])
        might[at] = values[following] <= bounds.highs[at]
    return might


def _meets(bounds: Bounds, lo: int, hi: int) -> Mask:
    return (bounds.highs >= lo) & (bounds.lows <= hi)
