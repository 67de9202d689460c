"""What each split reads of each file: row groups that lie wholly inside, and those at its ends that lie partly so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parquetry.model.delta import Delta
from parquetry.splits.cut import Split
from parquetry.splits.entries import Mask
from parquetry.splits.other_orders import KeyRange, Others
from parquetry.storage.index import overlapping
from parquetry.storage.scan.scan import ReadTask, RowRange, join_on, read_tasks
from parquetry.storage.snapshot_index import SnapshotIndex


@dataclass(frozen=True)
class Edge:
    """A row group that a border of the split may run through. ``block`` is None when it holds several."""

    row_group: int  # ordinal in the file
    first: int  # its first row in the file
    rows: int
    block: int | None
    within: tuple[RowRange, ...]  # rows of the row group that may match, in its own numbers
    in_order: bool = True  # its rows lie in the order of the split's keys


@dataclass(frozen=True)
class SplitPart:
    """A task's rows are read as they are; of each edge, the rows that the split's keys say."""

    task: ReadTask
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class SplitTask:
    """One worker's part of the query: the keys ``[lo, hi)`` of every delta (PP-06)."""

    ordinal: int
    lo: bytes | None
    hi: bytes | None
    parts: tuple[SplitPart, ...]


Touched = Mapping[int, Sequence[RowRange]]
"""Rows that may match, of row groups of which others surely do not."""


def assign(
    splits: Sequence[Split],
    index: SnapshotIndex,
    keep: Mask,
    deltas: Sequence[Delta],
    touched: Touched | None = None,
    others: Others | None = None,
) -> list[SplitTask]:
    """The tasks of the splits; row groups that are neither kept nor among ``others`` are left out everywhere. A split
    without any has none."""
    whole, others = _whole_files(deltas), others or {}
    tasks: list[SplitTask] = []
    for split in splits:
        met = {g: keys for place in range(len(deltas)) for g, keys in _in_order(split, index, keep, place)}
        met |= {g: keys for g, keys in others.items() if _meets(split, keys)}
        found: dict[int, tuple[list[RowRange], list[Edge]]] = {}
        for g in sorted(met):
            rows, edges = found.setdefault(int(index.path_of[g]), ([], []))
            edge = _edge(index, g, (touched or {}).get(g), in_order=g not in others)
            if not _inside(split, met[g]):
                edges.append(edge)
                continue
            for a, b in edge.within:
                join_on(rows, (edge.first + a, edge.first + b))
        if found:
            parts = tuple(SplitPart(_rows_of(whole[p], rows), tuple(edges)) for p, (rows, edges) in found.items())
            tasks.append(SplitTask(len(tasks), split.lo, split.hi, parts))
    return tasks


def _in_order(split: Split, index: SnapshotIndex, keep: Mask, place: int) -> Iterator[tuple[int, KeyRange]]:
    """The kept row groups of a delta that the split meets, with their keys."""
    table, offset = index.tables[place], int(index.offsets[place])
    hits = overlapping(table.starts, table.ends, split.lo or b"", split.hi)
    for i in (np.flatnonzero(keep[offset + hits.start : offset + hits.stop]) + hits.start).tolist():
        yield offset + i, (table.starts[i], table.ends[i])


def _meets(split: Split, keys: KeyRange) -> bool:
    start, end = keys
    return (split.hi is None or start < split.hi) and (split.lo is None or end is None or end > split.lo)


def _inside(split: Split, keys: KeyRange) -> bool:
    start, end = keys
    return (split.lo is None or split.lo <= start) and (split.hi is None or end is not None and end <= split.hi)


def _edge(index: SnapshotIndex, g: int, within: Sequence[RowRange] | None, *, in_order: bool) -> Edge:
    first_block, last_block = (int(blocks[g]) for blocks in index.block_span)
    rows = int(index.rows[g])
    block = first_block if in_order and first_block == last_block else None
    inside = ((0, rows),) if within is None else tuple(within)
    return Edge(int(index.row_group[g]), int(index.first_row[g]), rows, block, inside, in_order)


def assign_by_delta(
    index: SnapshotIndex, keep: Mask, deltas: Sequence[Delta], splits: int, touched: Touched | None = None
) -> list[SplitTask]:
    """Even tasks for a query that merges nothing: delta after delta, cut at rows, so that most read one delta only.

    A key may be in several tasks. What they give must be aggregated above them in any case (NA-54, 3.2-6).
    """
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
            first = int(index.first_row[g])
            join_on(rows[task].setdefault(int(index.path_of[g]), []), (first + a, first + stop))
            done += stop - a
            a = stop
    whole = _whole_files(deltas)
    parts = [tuple(SplitPart(_rows_of(whole[p], r)) for p, r in files.items()) for files in rows if files]
    return [SplitTask(ordinal, None, None, files) for ordinal, files in enumerate(parts)]


def _whole_files(deltas: Sequence[Delta]) -> tuple[ReadTask, ...]:
    """By the ordinals that files have in the index."""
    return read_tasks(deltas, {f.path for d in deltas for f in d.files})


def _rows_of(whole: ReadTask, rows: Sequence[RowRange]) -> ReadTask:
    return whole if list(rows) == [(0, whole.file.rows)] else replace(whole, rows=tuple(rows))
