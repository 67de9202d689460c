"""What a query, a refresh, a compaction or a sample reads of one table, as a value.

Three adapters turn it into rows: of Spark, of DuckDB and of Arrow. They alone know that older files lack columns, how
equal keys merge, what a view shows of what it stores, and where a file lies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from parquetry.model.delta import Delta, StoredFile
from parquetry.model.layout import LayoutSpec
from parquetry.model.state import TableState
from parquetry.model.view import ROWS
from parquetry.storage.snapshot_index import SnapshotIndex

RowRange = tuple[int, int]
"""Rows ``[first, stop)`` of a file."""

PIECE_ROWS = 1 << 15
Piece = tuple[str, int]
"""A file's path, and a number: of its row groups, those that start within so many times ``PIECE_ROWS``."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """One delta's part of one file."""

    file: StoredFile
    place: int  # the delta's, in the order of time
    schema_id: int
    layout_id: int
    rows: tuple[RowRange, ...] | None = None  # None is all


@dataclass(frozen=True, eq=False)
class KeptGroups:
    """The row groups of a snapshot that a query needs."""

    index: SnapshotIndex
    keep: np.ndarray[Any, np.dtype[np.bool_]]

    @cached_property
    def rows(self) -> int:
        return int(self.index.rows[self.keep].sum())

    @cached_property
    def bytes(self) -> int:
        return int(self.index.bytes[self.keep].sum())

    @cached_property
    def _in_order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Their ordinals, file by file."""
        kept = np.flatnonzero(self.keep)
        return kept[np.lexsort((self.index.row_group[kept], self.index.path_of[kept]))]

    def row_groups(self) -> dict[str, list[int]]:
        """Their ordinals in each file."""
        at = self._in_order
        files, starts = np.unique(self.index.path_of[at], return_index=True)
        parts = np.split(self.index.row_group[at], starts[1:])  # of no row groups, one that is empty
        return {self.index.paths[f]: part.tolist() for f, part in zip(files.tolist(), parts, strict=False)}

    def row_ranges(self) -> dict[str, list[RowRange]]:
        """Their rows in each file; neighbours are joined."""
        found: dict[str, list[RowRange]] = {}
        at = self._in_order
        first, rows = self.index.first_row[at], self.index.rows[at]
        for path, a, n in zip(self.index.path_of[at].tolist(), first.tolist(), rows.tolist(), strict=True):
            join_on(found.setdefault(self.index.paths[path], []), (a, a + n))
        return found

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of files that they lie in."""
        paths, numbers = self.index.path_of[self.keep], self.index.first_row[self.keep] // PIECE_ROWS
        found = dict.fromkeys(zip(paths.tolist(), numbers.tolist(), strict=True))
        return tuple((self.index.paths[path], number) for path, number in found)

    @property
    def rows_in_files(self) -> int:
        """Of the files that hold one: what a reader reads that skips nothing below the file."""
        read = np.zeros(len(self.index.paths), bool)
        read[self.index.path_of[self.keep]] = True
        return int(self.index.rows[read[self.index.path_of]].sum())


@dataclass(frozen=True, eq=False)
class TableScan:
    """``columns`` are stored ones: what ``named``, the columns that a reader names, are made of, and what merging
    compares."""

    table: TableState
    tasks: tuple[ReadTask, ...]
    named: tuple[str, ...]
    columns: tuple[str, ...]
    merge: bool  # equal keys of several deltas become one row
    visible: bool = True  # of a view: the reader names what it shows, not what is stored
    kept: KeptGroups | None = None  # of the tasks' files; None is all


def plan_scan(
    table: TableState,
    deltas: Iterable[Delta],
    named: Iterable[str] | None = None,
    *,
    files: Collection[str] | None = None,
    merge: bool | None = None,
    visible: bool = True,
) -> TableScan:
    """The scan of ``deltas``, oldest first: of the columns ``named``, or all of them.

    Without ``files`` every row comes once, extra blocks left out. ``merge``: unless said otherwise, as they must.
    """
    deltas = tuple(deltas)
    merge = must_merge(table, deltas) if merge is None else merge
    names = tuple(table.readable.names if named is None else named)
    tasks = read_tasks(deltas, files)
    return TableScan(table, tasks, names, columns_read(table, names, merge=merge, visible=visible), merge, visible)


def must_merge(table: TableState, deltas: Sequence[Delta]) -> bool:
    """Whether equal keys of these deltas must become one row; one delta is merged already."""
    return table.schema.keyed and len(deltas) > 1


def read_tasks(deltas: Iterable[Delta], files: Collection[str] | None = None) -> tuple[ReadTask, ...]:
    """One task for each of ``files``; without them for each that is no extra block."""
    return tuple(
        ReadTask(f, place, d.schema_id, d.layout_id)
        for place, d in enumerate(deltas)
        for f in d.files
        if (not f.extra if files is None else f.path in files)
    )


def columns_read(table: TableState, named: Iterable[str], *, merge: bool, visible: bool) -> tuple[str, ...]:
    """The stored columns that the columns ``named`` need: what they are made of, and what merging compares."""
    schema = table.schema
    columns = stored_columns(table, named, visible=visible) | (set(schema.key) if merge else set())
    if merge and schema.sequence:
        columns.add(schema.sequence)
    return tuple(n for n in schema.names if n in columns) or schema.key[:1]


def stored_columns(table: TableState, named: Iterable[str], *, visible: bool) -> set[str]:
    """The stored columns that the columns ``named`` are made of."""
    if table.view is None:
        return set(named)
    spec = table.view.spec
    hidden = {ROWS} if spec.hides_rows else set()
    return spec.stored_for(set(named)) if visible else set(named) | hidden


def columns_had(table: TableState, schema_id: int, columns: Iterable[str]) -> list[str]:
    """Those that files of a schema have, or the first of the key: something must be read to count rows."""
    had = frozenset(table.schemas[schema_id].names)
    return [c for c in columns if c in had] or [table.schema.key[0]]


def layout_of(table: TableState, layout_id: int) -> LayoutSpec | None:
    """The layout that a delta of the table was written in; None is the plain key order."""
    if layout_id == table.layout_id:
        return table.layout
    return table.layouts[layout_id] if layout_id else None


def join_on(ranges: list[RowRange], more: RowRange) -> None:
    """Adds a range behind all others, or to the last of them if it follows it."""
    if ranges and ranges[-1][1] == more[0]:
        ranges[-1] = (ranges[-1][0], more[1])
    else:
        ranges.append(more)
