"""What progressive partitioning is measured against: fixed sizes, fixed levels, one worker (PP-48…PP-50)."""

from __future__ import annotations

import numpy as np

from parquetry.splits.candidates import accumulate
from parquetry.splits.cut import Split, Splits, create_splits, drill_down
from parquetry.splits.entries import Entries, Keys, SplitIndex, concat, keys_of
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish, choose_points, judge, targets
from parquetry.splits.shorten_key import Shorten, shorten_bytes


def fixed_level(
    index: SplitIndex, query: KeyRanges, wish: Wish, level: int, theta: float = 1.0, shorten: Shorten = shorten_bytes
) -> Splits:
    """One selection among all matching entries of ``level``, or of the root where a tree is lower (PP-49, 3.1-14)."""
    entries, rounds, nodes = read_to_level(index, query, level)
    if not len(entries):
        return Splits((), 1, 0.0, rounds, nodes, 0, True)
    c = accumulate(entries)
    splits = wish.derive(c.total)
    points = choose_points(c, targets(c.total, splits), narrow_ties=False)
    done = create_splits(entries, c, points, shorten)
    qualified = not judge(c, points, theta).unqualified.any()
    return Splits(done, splits, c.total, rounds, nodes, len(entries), qualified)


def read_to_level(index: SplitIndex, query: KeyRanges, level: int) -> tuple[Entries, int, int]:
    """All matching entries of a level, the rounds and the nodes it took to read them."""
    entries = query.match(index.roots())
    rounds = nodes = 0
    virtual = np.ones(len(entries), bool)  # a tree of one node still has it read
    while (above := virtual | (entries.level > level)).any():
        reading = entries.take(above)
        rounds, nodes = rounds + 1, nodes + int(reading.count.sum())
        read = drill_down(index, reading, query, np.zeros(len(reading)))
        entries = concat([entries.take(~above), read])
        virtual = np.zeros(len(entries), bool)
    return entries, rounds, nodes


def fixed_boundaries(index: SplitIndex, size: float) -> Keys:
    """Keys that cut the whole table every ``size``, as if it had been range partitioned when it was written."""
    entries, _, _ = read_to_level(index, KeyRanges.everything(), 0)
    c = accumulate(entries)
    at = np.unique(choose_points(c, np.arange(size, c.total, size), narrow_ties=False)) if c.count else np.zeros(0, int)
    found: Keys = c.keys[at + 1]
    return found


def fixed_size(boundaries: Keys, size: float, query: KeyRanges, splits: int) -> Splits:
    """The parts between boundaries that the query touches, put together to at most ``splits`` (PP-48).

    Neighbours are put together by count (3.1-13). Boundaries would be stored with the table: finding them is free here.
    """
    cuts = boundaries.tolist()
    starts = keys_of([b"", *cuts])
    touched = np.flatnonzero(
        query.overlaps(starts, keys_of([*cuts, max([*cuts, *query.los, *query.his, b""]) + b"\0"]))
    )
    if not len(touched):
        return Splits((), 1, 0.0, 0, 0, 0, True)
    groups = np.array_split(touched, min(splits, len(touched)))
    bounds = [None, *(starts[g[0]] for g in groups[1:]), None]
    ranges = zip(bounds, bounds[1:], groups, strict=False)
    made = tuple(Split(lo, hi, size * len(g), 0.0, size * len(g)) for lo, hi, g in ranges)
    return Splits(made, splits, size * len(touched), 0, 0, 0, True)


def sequential(index: SplitIndex, query: KeyRanges) -> Splits:
    """One worker for all (PP-50)."""
    entries = query.match(index.roots())
    total = float(entries.sizes.sum())
    whole = (Split(None, None, total, 0.0, total),) if len(entries) else ()
    return Splits(whole, 1, total, 0, 0, len(entries), True)
