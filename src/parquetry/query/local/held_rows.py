"""Rows that are asked for again and again, held in DuckDB's memory (NA-27, hot data).

To open a Parquet file takes longer than to scan a few thousand rows. Files are copied in pieces of a few row groups:
those that queries read. Data files never change, so a copy is never stale; it is made beside the queries, which read
the file until the copy is there. New files of a table that is in memory are copied as soon as they are seen: mostly
before the QT reaches them. Small deltas are merged in memory, too. So a query reads one copy of a small table and few
of a larger one, however many deltas wait for compaction.

A copy is a materialized relation, not a table: DuckDB plans a statement that reads a table anew each time that it is
executed, prepared or not, for the table may have changed.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import pyarrow as pa

from parquetry.errors import StorageError
from parquetry.model.delta import Delta, cover
from parquetry.model.state import State, TableState
from parquetry.query.local.prepared import Held, run
from parquetry.query.planning.plan import Plan, TablePlan
from parquetry.storage.checked_file import CheckedFile, check_chunks, footer_of
from parquetry.storage.scan.duck import ROW_NUMBER, numbered_rows, stored_sql, table_sql
from parquetry.storage.scan.scan import PIECE_ROWS, Piece, plan_scan
from parquetry.storage.snapshot_index import data_files, open_snapshot
from parquetry.storage.store import Store

_MOST_PIECE_BYTES = 32 << 20  # of memory
_MOST_BYTES = 256 << 20  # of memory, for all copies
_REFERENCE = 16  # bytes of a value of any length, short ones included
_LEAST_ASKED = 2  # so often a piece is read before it is copied
_MOST_COUNTED = 4096


@dataclass
class _Copy:
    held: Held
    table_id: int
    weight: int


class HotFiles:
    """Copies of pieces of files; the least recently used leave first. A query that has one reads on.

    ``cursor`` makes a new one."""

    def __init__(self, store: Store, cursor: Callable[[], Any]) -> None:
        self._store, self._cursor = store, cursor
        self._lock = threading.Lock()
        self._copies: OrderedDict[Piece, _Copy] = OrderedDict()
        self._merged: dict[tuple[str, ...], _Copy] = {}  # of the files of several deltas
        self._warmed: dict[int, Any] = {}  # what was there of each table
        self._merging: set[tuple[str, ...]] = set()
        self._asked: Counter[Piece] = Counter()
        self._numbers = itertools.count(1)
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="hot-files")
        self._last: Future[None] | None = None

    def of(self, plan: Plan, *, asked: bool = True) -> dict[str, list[Held]]:
        """What holds the plan's rows, by the paths of their files; nothing unless all are there. ``asked``: someone
        asked for them, and what is not there will be copied if that happens again."""
        if not plan.holds:
            return {}
        tables = plan.tables.values()
        pieces = {piece: t for t in tables if t.kept for piece in t.kept.pieces}
        several = {_mergeable(t.deltas): t for t in tables}
        with self._lock:
            if asked:
                self._note(pieces, several)
            return self._found(pieces, several)

    def warm(self, state: State, give_way: Callable[[], None]) -> None:
        """Tables in memory stay in memory: their new files are copied, and merged. ``give_way`` is called between
        steps."""
        tables = {t.table_id: t for t in state.tables.values()}
        for table_id, held in self._by_table().items():
            table = tables.get(table_id)
            if table is not None and held:
                deltas = cover(table.deltas, state.qt)
                seen = tuple(d.delta_id for d in table.deltas), len(deltas)
                if self._warmed.get(table_id) != seen:
                    self._warmed[table_id] = seen
                    with suppress(StorageError, pa.ArrowException, OSError):  # a query will tell
                        self._warm_table(table, deltas, held, give_way)

    def _warm_table(
        self, table: TableState, deltas: Sequence[Delta], held: Collection[Piece], give_way: Callable[[], None]
    ) -> None:
        known = {path for path, _ in held}
        files = {f.path: f for d in table.deltas for f in data_files(self._store, d)}
        new = [piece for path, file in files.items() if path not in known for piece in self._pieces(file)]
        if len(new) > len(held):
            return  # little of the table was in memory
        with self._lock:
            asked = max(self._asked[piece] for piece in held)
            self._asked.update({piece: max(0, asked - self._asked[piece]) for piece in new})
        for piece in new:
            give_way()
            self._copy(files[piece[0]], piece, table.table_id)
        give_way()
        self._merge(table, deltas)
        give_way()
        open_snapshot(self._store, table.deltas, table.schema).prepare()

    def forget(self, state: State) -> None:
        """Copies of files that are gone leave, and what was merged of them, or of fewer than readers have by now."""
        tables = {t.table_id: t for t in state.tables.values()}
        self._warmed = {table_id: seen for table_id, seen in self._warmed.items() if table_id in tables}
        there = {path for t in tables.values() for path in _files(t)}
        with self._lock:
            self._merging = {files for files in self._merging if there.issuperset(files)}
        for table_id, held in self._by_table().items():
            table = tables.get(table_id)
            files = set() if table is None else _files(table)
            least = 0 if table is None else len(_mergeable(cover(table.deltas, state.qt)))
            with self._lock:
                leaving = self._take_out([p for p in held if p[0] not in files and p in self._copies])
                mine = [m for m, copy in self._merged.items() if copy.table_id == table_id]
                old = [m for m in mine if len(m) < least or not files >= set(m)]
                leaving += [self._merged.pop(m) for m in old]
            del leaving  # not under the lock, which queries wait for

    def wait(self) -> None:
        """Returns when all copies that were asked for are made."""
        last = self._last
        if last is not None:
            last.result()

    def close(self) -> None:
        self._copier.shutdown(cancel_futures=True)
        with self._lock:
            self._copies.clear()
            self._merged.clear()

    def _note(self, pieces: Mapping[Piece, TablePlan], several: Mapping[tuple[str, ...], TablePlan]) -> None:
        """Counts that these pieces of tables were asked for; copies and merges what is worth it by now."""
        if len(self._asked) > _MOST_COUNTED:
            self._asked.clear()
        self._asked.update(list(pieces))
        for piece, t in pieces.items():
            if piece in self._copies:
                self._copies.move_to_end(piece)
            # Asked for the second, fourth, eighth... time: one for which there was no room may have it later.
            elif self._asked[piece] >= _LEAST_ASKED and self._asked[piece].bit_count() == 1:
                assert t.index is not None
                self._last = self._copier.submit(self._copy, t.index.file(piece[0]), piece, t.state.table_id)
        for files in several.keys() - self._merged.keys() - self._merging:
            if files and all((path, 0) in self._copies for path in files):
                self._merging.add(files)
                self._last = self._copier.submit(self._merge, several[files].state, several[files].deltas)

    def _found(self, pieces: Iterable[Piece], several: Iterable[tuple[str, ...]]) -> dict[str, list[Held]]:
        """Of files whose rows are merged in one copy, that one."""
        merged = {path: self._merged[files].held for files in several if files in self._merged for path in files}
        found: dict[str, list[Held]] = {}
        for piece in pieces:
            path, _ = piece
            if piece not in self._copies:
                return {}
            if path in merged:
                found[path] = [merged[path]]
            else:
                found.setdefault(path, []).append(self._copies[piece].held)
        return found

    def _merge(self, table: TableState, deltas: Sequence[Delta]) -> None:
        """Merges deltas of a table, if they are in memory, with what was merged of them before."""
        import duckdb

        files = _mergeable(deltas)
        with self._lock:
            if not files or files in self._merged or any((path, 0) not in self._copies for path in files):
                self._merging.discard(files)
                return
            before = max((m for m in self._merged if m == files[: len(m)]), key=len, default=())
            rest = [self._copies[path, 0] for path in files[len(before) :]]
            parts = [self._merged[before], *rest] if before else rest
            weight = sum(p.weight for p in parts)
            if weight > self._free():
                return  # nor is it tried again
        try:
            # As they are stored: what a view shows of them is up to the query.
            schema_id = deltas[-1].schema_id
            stored = replace(table, schema=table.schemas[schema_id], schema_id=schema_id, view=None)
            scan = plan_scan(stored, deltas, files=files)
            tasks = scan.tasks[max(0, len(before) - 1) :]
            relations = [(task, p.held.name) for task, p in zip(tasks, parts, strict=True)]
            text = table_sql(scan, stored_sql(scan, relations, ordered=scan.merge))
            held = self._hold(text, [p.held for p in parts])
        except duckdb.Error:
            return  # the files themselves are there
        with self._lock:
            self._merged[files] = _Copy(held, table.table_id, weight)
            self._merging.discard(files)

    def _by_table(self) -> dict[int, list[Piece]]:
        """The pieces in memory of each table."""
        found: dict[int, list[Piece]] = {}
        with self._lock:
            for copy in self._merged.values():
                found.setdefault(copy.table_id, [])
            for piece, copy in self._copies.items():
                found.setdefault(copy.table_id, []).append(piece)
        return found

    def _pieces(self, file: CheckedFile) -> dict[Piece, list[int]]:
        """The pieces of a file, with their row groups."""
        footer, first = footer_of(self._store, file), 0
        found: dict[Piece, list[int]] = {}
        for g in range(footer.num_row_groups):
            found.setdefault((file.path, first // PIECE_ROWS), []).append(g)
            first += footer.row_group(g).num_rows
        return found

    def _copy(self, file: CheckedFile, piece: Piece, table_id: int) -> None:
        import duckdb

        try:
            footer, groups = footer_of(self._store, file), self._pieces(file)[piece]
            weight = _weight(footer.schema.to_arrow_schema(), [footer.row_group(g) for g in groups])
            with self._lock:
                there = weight > _MOST_PIECE_BYTES or piece in self._copies
                leaving = None if there else self._make_room(piece, weight)
            if leaving is None:
                return
            del leaving
            before, own = (sum(footer.row_group(g).num_rows for g in part) for part in (range(groups[0]), groups))
            check_chunks(self._store, file, groups, footer.schema.to_arrow_schema().names)
            rows = numbered_rows(self._store, file.path, [(before, before + own)])
            held = self._hold(f"SELECT * EXCLUDE {ROW_NUMBER} FROM {rows}")
        except (duckdb.Error, pa.ArrowException, StorageError, OSError):
            return  # the query that reads the file itself will say what is wrong with it
        with self._lock:
            self._copies.setdefault(piece, _Copy(held, table_id, weight))

    def _hold(self, text: str, reading: Iterable[Held] = ()) -> Held:
        """The rows of a query, on a cursor of their own: whoever names them needs it for a moment."""
        relation = run(self._cursor(), "sql", text, reading)
        return Held(f"__hot_{next(self._numbers)}", relation.materialize())

    def _free(self) -> int:
        return _MOST_BYTES - sum(c.weight for c in (*self._copies.values(), *self._merged.values()))

    def _make_room(self, piece: Piece, weight: int) -> list[_Copy] | None:
        """Takes out copies that are asked for less, the least recently used first; None if that makes no room."""
        free, leaving = self._free(), []
        for old, copy in self._copies.items():
            if free >= weight:
                break
            if self._asked[old] < self._asked[piece]:
                leaving.append(old)
                free += copy.weight
        return self._take_out(leaving) if free >= weight else None

    def _take_out(self, pieces: Collection[Piece]) -> list[_Copy]:
        """Takes out copies, and what was merged of them."""
        paths = {path for path, _ in pieces}
        merged = [m for m in self._merged if not paths.isdisjoint(m)]
        return [self._copies.pop(piece) for piece in pieces] + [self._merged.pop(m) for m in merged]


def _weight(schema: pa.Schema, groups: Sequence[Any]) -> int:
    """The bytes that row groups take in DuckDB's memory, roughly: values of a fixed width, or references to encoded
    ones, of which several may be the same."""
    widths = {field.name: _width(field.type) for field in schema}
    fixed = sum(g.num_rows for g in groups) * sum(w or _REFERENCE for w in widths.values())
    chunks = [g.column(i) for g in groups for i in range(g.num_columns)]
    variable = [c for c in chunks if widths[c.path_in_schema.partition(".")[0]] is None]
    return int(fixed + 4 * sum(c.total_uncompressed_size for c in variable))


def _width(kind: pa.DataType) -> int | None:
    """The bytes of a value, if all have the same."""
    if pa.types.is_decimal(kind):
        return 16 if kind.precision > 18 else 8
    return max(1, int(kind.bit_width) // 8) if pa.types.is_primitive(kind) else None


def _mergeable(deltas: Sequence[Delta]) -> tuple[str, ...]:
    """The files of the newest deltas that are small and of the same columns, if they are several."""
    small = list(takewhile(lambda d: d.rows <= PIECE_ROWS and d.schema_id == deltas[-1].schema_id, reversed(deltas)))
    files = [f for d in reversed(small) for f in d.files]
    return tuple(f.path for f in files) if len(files) > 1 and not any(f.extra for f in files) else ()


def _files(table: TableState) -> set[str]:
    return {f.path for d in table.deltas for f in d.files}
