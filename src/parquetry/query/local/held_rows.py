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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pyarrow as pa

from parquetry.errors import StorageError
from parquetry.model.delta import Delta, cover
from parquetry.model.state import State, TableState
from parquetry.query.local.admit_rows import Copies, Copy, Files, weight_of
from parquetry.query.local.prepared import Held, run
from parquetry.query.planning.plan import Plan, TablePlan
from parquetry.storage.checked_file import CheckedFile, check_chunks, footer_of
from parquetry.storage.scan.duck import ROW_NUMBER, numbered_rows, stored_sql, table_sql
from parquetry.storage.scan.scan import PIECE_ROWS, Piece, plan_scan
from parquetry.storage.snapshot_index import data_files, open_snapshot
from parquetry.storage.store import Store


class HeldRows:
    """Makes copies of pieces of files, and merges them. A query that has one reads on.

    ``cursor`` makes a new one."""

    def __init__(self, store: Store, cursor: Callable[[], Any]) -> None:
        self._store, self._cursor = store, cursor
        self._lock = threading.Lock()
        self._copies = Copies()  # under the lock, which queries wait for
        self._warmed: dict[int, Any] = {}  # what was there of each table
        self._merging: set[Files] = set()
        self._numbers = itertools.count(1)
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="held-rows")
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
            return self._copies.find(pieces, several)

    def warm(self, state: State, give_way: Callable[[], None]) -> None:
        """Tables in memory stay in memory: their new files are copied, and merged. ``give_way`` is called between
        steps."""
        tables = {t.table_id: t for t in state.tables.values()}
        with self._lock:
            by_table = self._copies.by_table()
        for table_id, held in by_table.items():
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
            self._copies.expect(new, held)
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
            by_table = self._copies.by_table()
        for table_id, held in by_table.items():
            table = tables.get(table_id)
            files = set() if table is None else _files(table)
            least = 0 if table is None else len(_mergeable(cover(table.deltas, state.qt)))
            with self._lock:
                copies = self._copies
                leaving = copies.take_out([p for p in held if p[0] not in files and p in copies.pieces])
                mine = [m for m, copy in copies.merged.items() if copy.table_id == table_id]
                old = [m for m in mine if len(m) < least or not files >= set(m)]
                leaving += [copies.merged.pop(m) for m in old]
            del leaving  # not under the lock

    def wait(self) -> None:
        """Returns when all copies that were asked for are made."""
        last = self._last
        if last is not None:
            last.result()

    def close(self) -> None:
        self._copier.shutdown(cancel_futures=True)
        with self._lock:
            self._copies.clear()

    def _note(self, pieces: Mapping[Piece, TablePlan], several: Mapping[Files, TablePlan]) -> None:
        """Copies and merges what is worth it now that it was asked for once more."""
        copies = self._copies
        for piece in copies.note(pieces):
            t = pieces[piece]
            assert t.index is not None
            self._last = self._copier.submit(self._copy, t.index.file(piece[0]), piece, t.state.table_id)
        for files in several.keys() - copies.merged.keys() - self._merging:
            if files and all((path, 0) in copies.pieces for path in files):
                self._merging.add(files)
                self._last = self._copier.submit(self._merge, several[files].state, several[files].deltas)

    def _merge(self, table: TableState, deltas: Sequence[Delta]) -> None:
        """Merges deltas of a table, if they are in memory, with what was merged of them before."""
        import duckdb

        files, copies = _mergeable(deltas), self._copies
        with self._lock:
            if not files or files in copies.merged or any((path, 0) not in copies.pieces for path in files):
                self._merging.discard(files)
                return
            before = max((m for m in copies.merged if m == files[: len(m)]), key=len, default=())
            rest = [copies.pieces[path, 0] for path in files[len(before) :]]
            parts = [copies.merged[before], *rest] if before else rest
            weight = sum(p.weight for p in parts)
            if weight > copies.free():
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
            copies.merged[files] = Copy(held, table.table_id, weight)
            self._merging.discard(files)

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
            weight = weight_of(footer.schema.to_arrow_schema(), [footer.row_group(g) for g in groups])
            with self._lock:
                leaving = self._copies.make_room(piece, weight)
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
            self._copies.pieces.setdefault(piece, Copy(held, table_id, weight))

    def _hold(self, text: str, reading: Iterable[Held] = ()) -> Held:
        """The rows of a query, on a cursor of their own: whoever names them needs it for a moment."""
        relation = run(self._cursor(), "sql", text, reading)
        return Held(f"__held_{next(self._numbers)}", relation.materialize())


def _mergeable(deltas: Sequence[Delta]) -> Files:
    """The files of the newest deltas that are small and of the same columns, if they are several."""
    small = list(takewhile(lambda d: d.rows <= PIECE_ROWS and d.schema_id == deltas[-1].schema_id, reversed(deltas)))
    files = [f for d in reversed(small) for f in d.files]
    return tuple(f.path for f in files) if len(files) > 1 and not any(f.extra for f in files) else ()


def _files(table: TableState) -> set[str]:
    return {f.path for d in table.deltas for f in d.files}
