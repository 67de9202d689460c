"""Row groups that do not lie in the order in which splits are cut: of another layout, or copies in an extra block.

Splits are cut in the order that most of the kept bytes have. All rows of a key must meet in one split, so a worker
looks at every row of such a row group and takes those of its keys; here it is found out which splits can have any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from parquetry.layouts.pruning.regions import RegionTable
from parquetry.model.box import Box, Interval
from parquetry.model.keys import block_prefix, encode_value, successor
from parquetry.model.types import is_float, is_nested
from parquetry.splits.entries import Mask
from parquetry.storage.snapshot_index import SnapshotIndex

KeyRange = tuple[bytes, bytes | None]
Others = Mapping[int, KeyRange]
"""Row groups in other orders, with the keys ``[start, end)`` that their rows can have in the order of the splits."""


@dataclass(frozen=True)
class KeyOrder:
    """By block and key under a layout; with ``block``, by key where all rows lie in this one."""

    layout_id: int
    block: int | None = None


def main_order(index: SnapshotIndex, keep: Mask, plain: Collection[int]) -> tuple[KeyOrder, Mask]:
    """The order of most kept bytes, and the kept row groups that lie in it. ``plain`` layouts are all the key order."""
    layouts = np.where(np.isin(index.layout, list(plain)), 0, index.layout)
    orders = np.stack((layouts, np.where(index.extra, index.block_span[0], -1)), 1)
    found, of = np.unique(orders[keep], axis=0, return_inverse=True)
    layout_id, block = found[np.argmax(np.bincount(of.ravel(), index.bytes[keep]))].tolist()
    own = keep & (orders == (layout_id, block)).all(axis=1)
    return KeyOrder(layout_id, None if block < 0 else block), own


def keys_in_order(index: SnapshotIndex, group: int, order: KeyOrder, regions: RegionTable | None) -> KeyRange:
    """The keys that a row group's rows can have in an order: by its min/max, and what ``regions`` say of blocks."""
    place = int(index.delta[group])
    stats, at = index.tables[place], group - int(index.offsets[place])

    def between(column: str) -> Interval:
        arrow = index.schema.column(column).arrow
        if is_float(arrow) or is_nested(arrow):  # a NaN is in no statistics
            return Interval(nulls=True)
        low, high = (stats.stat(kind, column, arrow)[at].as_py() for kind in ("min", "max"))
        nulls = stats.stat("nulls", column, arrow)[at].as_py() != 0
        return Interval(None if nulls else low, high, nulls=nulls)

    first = last = order.block or 0
    if regions is not None and order.block is None:
        met = np.flatnonzero(regions.might_match([Box({c: between(c) for c in regions.columns})]))
        first, last = int(met[0]), int(met[-1])
    leading = index.schema.key[0]
    arrow, inside = index.schema.column(leading).arrow, between(leading)
    start = block_prefix(first) + (b"" if inside.lo is None else encode_value(inside.lo, arrow))
    return start, successor(block_prefix(last) + (b"" if inside.hi is None else encode_value(inside.hi, arrow)))
