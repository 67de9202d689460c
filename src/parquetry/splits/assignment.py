"""What each split reads of each file: row groups that lie wholly inside, and those at its ends that lie partly so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parquetry.model.delta import Delta
from parquetry.splits.entries import Ints, Mask
from parquetry.splits.progressive import Split
from parquetry.storage.index import overlapping
from parquetry.storage.snapshot_index import SnapshotIndex

RowRange = tuple[int, int]
"""Rows ``[first, stop)`` of a file."""


@dataclass(frozen=True)
class Edge:
    """A row group that a border of the split may run through. ``block`` is None when it holds several."""

    row_group: int  # ordinal in the file
    first: int  # its first row in the file
    rows: int
    block: int | None
    within: tuple[RowRange, ...]  # rows of the row group that may match, in its own numbers


@dataclass(frozen=True)
class FilePart:
    """``rows`` are read as they are; of each edge, the rows that the split's keys say. ``whole`` is all of the file."""

    path: str
    rows: tuple[RowRange, ...]
    edges: tuple[Edge, ...] = ()
    whole: bool = False


@dataclass(frozen=True)
class DeltaPart:
    place: int  # in the order of time
    schema_id: int
    layout_id: int
    files: tuple[FilePart, ...]


@dataclass(frozen=True)
class SplitTask:
    """One worker's part of the query: the keys ``[lo, hi)`` of every delta (PP-06)."""

    ordinal: int
    lo: bytes | None
    hi: bytes | None
    parts: tuple[DeltaPart, ...]


Touched = Mapping[int, Sequence[RowRange]]
"""Rows that may match, of row groups of which others surely do not."""


def assign(
    splits: Sequence[Split], index: SnapshotIndex, keep: Mask, deltas: Sequence[Delta], touched: Touched | None = None
) -> list[SplitTask]:
    """The tasks of the splits; row groups that are not kept are left out everywhere. A split without any has none."""
    first_rows = _first_rows(index)
    tasks: list[SplitTask] = []
    for split in splits:
        parts = []
        for place, delta in enumerate(deltas):
            files = _files(split, index, keep, place, first_rows, touched or {})
            if files:
                parts.append(DeltaPart(place, delta.schema_id, delta.layout_id, files))
        if parts:
            tasks.append(SplitTask(len(tasks), split.lo, split.hi, tuple(parts)))
    return tasks


def assign_by_delta(
    index: SnapshotIndex, keep: Mask, deltas: Sequence[Delta], splits: int, touched: Touched | None = None
) -> list[SplitTask]:
    """Even tasks for a query that merges nothing: delta after delta, cut at rows, so that most read one delta only.

    A key may be in several tasks. What they give must be aggregated above them in any case (NA-54, 3.2-6).
    """
    first_rows = _first_rows(index)
    pieces = [
        (g, a, b) for g in np.flatnonzero(keep).tolist() for a, b in (touched or {}).get(g, ((0, int(index.rows[g])),))
    ]
    total = sum(b - a for _, a, b in pieces)
    cuts = [total * k // splits for k in range(1, splits + 1)]
    rows: list[dict[int, list[RowRange]]] = [{} for _ in range(splits)]
    done = task = 0
    for g, a, b in pieces:
        while a < b:
            while cuts[task] <= done:
                task += 1
            stop = min(b, a + cuts[task] - done)
            ranges = rows[task].setdefault(int(index.path_of[g]), [])
            first = int(first_rows[g])
            if ranges and ranges[-1][1] == first + a:
                ranges[-1] = (ranges[-1][0], first + stop)
            else:
                ranges.append((first + a, first + stop))
            done += stop - a
            a = stop
    place_of = np.repeat(np.arange(len(deltas)), [len(d.files) for d in deltas])
    tasks: list[SplitTask] = []
    for files in rows:
        parts = []
        for place in sorted({int(place_of[path]) for path in files}):
            own = {p: r for p, r in files.items() if place_of[p] == place}
            read = tuple(
                FilePart(index.paths[p], tuple(r), whole=r == [(0, _rows_of(index, p))]) for p, r in own.items()
            )
            parts.append(DeltaPart(place, deltas[place].schema_id, deltas[place].layout_id, read))
        if parts:
            tasks.append(SplitTask(len(tasks), None, None, tuple(parts)))
    return tasks


def _first_rows(index: SnapshotIndex) -> Ints:
    """The first row of each row group in its file: the rows of those before it there."""
    before = np.cumsum(index.rows) - index.rows
    path = index.path_of
    heads = np.flatnonzero(np.diff(path, prepend=-1))
    return before - np.repeat(before[heads], np.diff(np.append(heads, len(path))))


def _files(
    split: Split, index: SnapshotIndex, keep: Mask, place: int, first_rows: Ints, touched: Touched
) -> tuple[FilePart, ...]:
    table, offset = index.tables[place], int(index.offsets[place])
    hits = overlapping(table.starts, table.ends, split.lo or b"", split.hi)
    groups = offset + np.flatnonzero(keep[offset + hits.start : offset + hits.stop]) + hits.start
    found: dict[int, tuple[list[RowRange], list[Edge]]] = {}
    first_block, last_block = index.block_span
    for g in groups.tolist():
        rows, edges = found.setdefault(int(index.path_of[g]), ([], []))
        first, count = int(first_rows[g]), int(index.rows[g])
        within = tuple(touched.get(g, ((0, count),)))
        start, end = table.starts[g - offset], table.ends[g - offset]
        if (split.lo is not None and start < split.lo) or (split.hi is not None and end > split.hi):
            block = int(first_block[g]) if first_block[g] == last_block[g] else None
            edges.append(Edge(int(index.row_group[g]), first, count, block, within))
            continue
        for a, b in within:
            if rows and rows[-1][1] == first + a:
                rows[-1] = (rows[-1][0], first + b)
            else:
                rows.append((first + a, first + b))
    return tuple(
        FilePart(index.paths[path], tuple(rows), tuple(edges), rows == [(0, _rows_of(index, path))])
        for path, (rows, edges) in found.items()
    )


def _rows_of(index: SnapshotIndex, path: int) -> int:
    """All rows of a file. Its row groups stand together in the index."""
    a, b = np.searchsorted(index.path_of, [path, path + 1])
    return int(index.rows[a:b].sum())
