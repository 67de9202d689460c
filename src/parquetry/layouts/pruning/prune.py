"""Which row groups might hold a row that a query wants. What is not known might match: pruning loses no row."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.layouts.pruning.descriptors import BoxTable
from parquetry.layouts.pruning.features import FeatureTable
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.model.box import Box
from parquetry.model.key_ranges import KeyRange, key_ranges
from parquetry.model.layout import EXTRA_BASE, LayoutSpec, ReachingLayout, cut_columns
from parquetry.model.order_codes import HIGHEST, LOWEST, Bounds, codes_of
from parquetry.model.predicate import (
    And,
    IsNull,
    Nothing,
    NotNull,
    OneOf,
    Opaque,
    Or,
    Predicate,
    Range,
    columns_of,
    restrict,
)
from parquetry.model.reached import Reached, can_be_key
from parquetry.model.through import is_through
from parquetry.storage.index import overlapping
from parquetry.storage.index_reader import RowGroupTable
from parquetry.storage.snapshot_index import SnapshotIndex
from parquetry.workload.boxes import to_boxes
from parquetry.workload.simplify import both, conjuncts

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class LayoutRegions:
    """What a layout alone says of its blocks, which holds for the deltas written in it."""

    layout_id: int
    columns: tuple[str, ...]
    table: RegionTable
    extra: tuple[Box, ...] = ()  # the regions of its extra blocks
    features: FeatureTable | None = None
    reached: tuple[Reached, ...] = ()  # what stands behind those of its columns that are not the table's own

    @staticmethod
    def of(layout_id: int, spec: LayoutSpec) -> LayoutRegions:
        features = FeatureTable(spec)
        known = features if features.features else None
        reached = spec.reached if isinstance(spec, ReachingLayout) else ()
        return LayoutRegions(layout_id, cut_columns(spec), RegionTable(regions(spec)), spec.extra, known, reached)


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a query wants of a snapshot's row groups: rows that satisfy the predicate and the ``opaque`` conditions.

    ``layouts`` are the table's own and those that some deltas still have (3.4-10). Row groups of extra blocks are left
    out; with ``extra``, all but those of this one (PW-23). Rows are judged as stored: on keyed tables the caller passes
    only conditions that hold of every version of a key.
    """

    index: SnapshotIndex
    predicate: Predicate
    layouts: Sequence[LayoutRegions] = ()
    opaque: Sequence[Opaque] = ()
    extra: int | None = None
    off: Collection[str] = ()  # proofs that are not to be used, be it inside another one
    joined: Mapping[str, pa.Array] = field(default_factory=dict)
    """All values that a wanted row may have in a column, where a join left so many; the predicate may say less."""

    @cached_property
    def stored(self) -> Predicate:
        """What the predicate says of the table's own columns."""
        through = any(map(is_through, columns_of(self.predicate)))
        return restrict(self.predicate, frozenset(self.index.schema.names)) if through else self.predicate

    @property
    def all(self) -> Mask:
        return ~self.index.extra if self.extra is None else self.index.block_span[0] == EXTRA_BASE + self.extra


def prune(wanted: Wanted) -> Mask:
    """The row groups of which no proof shows that they hold no wanted row."""
    keep = wanted.all
    for name, proof in PROOFS.items():
        if name not in wanted.off and keep.any():
            might = proof(wanted)
            keep = keep if might is None else keep & might
    return keep


def _by_key(w: Wanted) -> Mask | None:
    ranges = key_ranges(w.stored, w.index.schema, w.index.blocks if w.extra is None else (EXTRA_BASE + w.extra,))
    return None if ranges is None else _within_ranges(w.index, ranges)


def _by_minmax(w: Wanted) -> Mask:
    return _evaluate(w.index, w.stored, minmax=True, nulls=False)


def _by_nulls(w: Wanted) -> Mask:
    """With min/max at every leaf: of an OR that says more than one after the other."""
    return _evaluate(w.index, w.stored, minmax="prune_minmax" not in w.off, nulls=True)


def _by_region(w: Wanted) -> Mask | None:
    def might_match(known: LayoutRegions) -> Mask:
        return known.table.might_match(to_boxes(_reaching(w, known.reached), known.columns).boxes)

    return _by_blocks(w, might_match)


def _reaching(w: Wanted, reached: Sequence[Reached]) -> Predicate:
    """The predicate with what its keys say of the columns that they lead to."""
    told = []
    for r in reached:
        keys = w.joined.get(r.own)
        if keys is None:
            sets = [p for p in conjuncts(w.predicate) if isinstance(p, OneOf) and p.column == r.own]
            keys = pa.array(list(sets[0].values)) if sets else None
        if keys is not None and can_be_key(keys.type):
            told.append(r.holds(keys))
    return both([w.predicate, *told]) if told else w.predicate


def _by_features(w: Wanted) -> Mask | None:
    return _by_blocks(w, lambda k: None if k.features is None else k.features.might_match(w.stored, w.opaque))


def _by_boxes(w: Wanted) -> Mask | None:
    precise = _precise(w.index)
    return None if precise is None else precise.might_match(to_boxes(w.stored).boxes)


PROOFS: Mapping[str, Callable[[Wanted], Mask | None]] = {
    "prune_key": _by_key,
    "prune_minmax": _by_minmax,
    "prune_nulls": _by_nulls,
    "prune_region": _by_region,
    "prune_features": _by_features,
    "prune_boxes": _by_boxes,
}
"""In their order: the row group's range of keys; its smallest and largest values; its null counts; its blocks' part of
space under the layout, holes included (PW-08); conditions that none of its blocks' rows satisfies (WP-15); its precise
descriptor (PW-21). None says nothing."""


def _by_blocks(w: Wanted, might_match: Callable[[LayoutRegions], Mask | None]) -> Mask | None:
    """Row groups with a block that might match, by what the layout of each delta says of its blocks."""
    if w.extra is not None or not w.layouts:
        return None
    index = w.index
    keep = np.ones(len(index), bool)
    first, last = index.block_span
    for layout in w.layouts:
        # Extra blocks have no part of space, and no features, to themselves.
        mine = np.flatnonzero((index.layout == layout.layout_id) & ~index.extra)
        match = might_match(layout) if len(mine) else None
        if match is not None:
            before = np.concatenate(([0], np.cumsum(match)))
            keep[mine] = before[last[mine] + 1] > before[first[mine]]
    return keep


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


def _evaluate(index: SnapshotIndex, predicate: Predicate, *, minmax: bool, nulls: bool) -> Mask:
    """Where a predicate might hold by these statistics."""
    size = len(index)
    match predicate:
        case And(parts) | Or(parts) if parts:
            found = [_evaluate(index, p, minmax=minmax, nulls=nulls) for p in parts]
            combined = np.logical_and if isinstance(predicate, And) else np.logical_or
            return np.asarray(combined.reduce(found))
        case Or() | Nothing():
            return np.zeros(size, bool)
        case IsNull(column) if nulls:
            return np.asarray(index.nulls(column) != 0)
        case Range(column) | OneOf(column) | NotNull(column):
            might = _by_bounds(index.bounds(column) if minmax else None, predicate, size)
            return might & (index.nulls(column) != index.rows) if nulls else might
        case _:
            return np.ones(size, bool)


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
