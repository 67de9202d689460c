"""Small files that are asked for again and again, as tables in DuckDB's memory (NA-27, hot data).

To open a small Parquet file takes longer than to scan its rows. Data files never change, so a copy is never stale; it
is made beside the queries, which read the file until the copy is there. New files of a table that is in memory are
copied as soon as they are seen: mostly before the QT reaches them. Deltas after the first are merged in memory,
too, if each has one file: a query reads two tables then, however many deltas wait for compaction.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from parquetry.errors import StorageError
from parquetry.model.delta import Delta, cover
from parquetry.model.state import State, TableState
from parquetry.query.plan import Plan
from parquetry.storage.merge import ORDER, merge_sql, quote
from parquetry.storage.row_groups import footer_of
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.store import Store

_MOST_FILE_BYTES = 4 << 20
_MOST_BYTES = 256 << 20  # of memory, for all copies
_VALUE_BYTES = 12  # of a value in memory, besides what it refers to
_LEAST_ASKED = 2  # so often a file is read before it is copied
_MOST_COUNTED = 4096
_TABLE = "rows"


@dataclass
class _Copy:
    name: str
    table_id: int
    weight: int
    users: int = 0


class HotFiles:
    """Copies of small files; the least recently used leave first, but not while a query reads them."""

    def __init__(self, store: Store, cursor: Callable[[], Any]) -> None:
        self._store, self._cursor = store, cursor
        self._lock = threading.Lock()
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._tails: dict[tuple[str, ...], _Copy] = {}  # of the files of all deltas but the first, merged
        self._asked: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="hot-files")
        self._last: Future[None] | None = None

    @contextmanager
    def of(self, plan: Plan) -> Iterator[Mapping[str, str]]:
        """The tables that hold the plan's files, by path; none of them unless all are there."""
        files = [(d.table_id, f) for t in plan.tables.values() for d in t.deltas for f in d.files if f.path in t.files]
        if not files or any(f.bytes > _MOST_FILE_BYTES for _, f in files):
            yield {}
            return
        used = self._take({f.path: table_id for table_id, f in files}, [_tail(t.deltas) for t in plan.tables.values()])
        try:
            yield {path: f"{copy.name}.{_TABLE}" for path, copy in used.items()}
        finally:
            with self._lock:
                for copy in used.values():
                    copy.users -= 1

    def warm(self, state: State) -> None:
        """Tables in memory stay in memory: their new files are copied, and merged."""
        tables = {t.table_id: t for t in state.tables.values()}
        for table_id, paths in self._by_table().items():
            files = _files(tables.get(table_id))
            missing = [p for p, size in files.items() if size <= _MOST_FILE_BYTES and p not in paths]
            if paths and files and len(missing) <= len(paths):  # else little of the table was in memory
                with self._lock:
                    asked = max(self._asked[path] for path in paths)
                    self._asked.update({path: max(0, asked - self._asked[path]) for path in missing})
                for path in missing:
                    self._copy(path, table_id)
                self._merge(tables[table_id])
                with suppress(StorageError, pa.ArrowException, OSError):  # a query will tell
                    open_snapshot(self._store, tables[table_id].deltas, tables[table_id].schema).prepare()

    def forget(self, state: State) -> None:
        """Copies of files that are gone leave, and what was merged of them, or of fewer than readers have by now."""
        tables = {t.table_id: t for t in state.tables.values()}
        for table_id, paths in self._by_table().items():
            files = _files(tables.get(table_id))
            least = len(cover(tables[table_id].deltas, state.qt)) - 1 if files else 0
            with self._lock:
                gone = [p for p in paths if p not in files and p in self._copies and self._copies[p].users == 0]
                mine = [t for t, copy in self._tails.items() if copy.table_id == table_id and copy.users == 0]
                old = [t for t in mine if len(t) < least or not files.keys() >= set(t)]
                leaving = self._take_out(gone) + [self._tails.pop(tail).name for tail in old if tail in self._tails]
            self._drop(leaving)

    def wait(self) -> None:
        """Returns when all copies that were asked for are made."""
        last = self._last
        if last is not None:
            last.result()

    def close(self) -> None:
        self._copier.shutdown(cancel_futures=True)

    def _take(self, paths: Mapping[str, int], tails: Iterable[tuple[str, ...]]) -> dict[str, _Copy]:
        """The copies of files, given with their tables; none of them unless all are there. Of files whose rows are
        merged in one table, that one."""
        with self._lock:
            if len(self._asked) > _MOST_COUNTED:
                self._asked.clear()
            self._asked.update(list(paths))
            missing = [path for path in paths if path not in self._copies]
            for path in missing:
                # Asked for the second, fourth, eighth... time: one for which there was no room may have it later.
                if self._asked[path] >= _LEAST_ASKED and self._asked[path].bit_count() == 1:
                    self._last = self._copier.submit(self._copy, path, paths[path])
            if missing:
                return {}
            for path in paths:
                self._copies.move_to_end(path)
            found = {path: self._copies[path] for path in paths}
            merged = {path: self._tails[tail] for tail in tails if tail in self._tails for path in tail}
            found.update({path: merged[path] for path in paths if path in merged})
            for copy in found.values():
                copy.users += 1
            return found

    def _merge(self, table: TableState) -> None:
        """Merges the newest deltas of a table, if they are in memory, with what was merged of them before."""
        import duckdb

        tail = _tail(table.deltas)
        schema = table.schemas[table.deltas[-1].schema_id] if tail else table.schema
        with self._lock:
            if not tail or tail in self._tails or any(path not in self._copies for path in tail):
                return
            before = max((t for t in self._tails if t == tail[: len(t)]), key=len, default=())
            parts = [*([self._tails[before]] if before else []), *(self._copies[path] for path in tail[len(before) :])]
            for part in parts:
                part.users += 1
        try:
            columns = ", ".join(quote(n) for n in schema.names)
            selects = [f"SELECT {columns}, {i} AS {ORDER} FROM {p.name}.{_TABLE}" for i, p in enumerate(parts)]
            rows = f"({' UNION ALL '.join(selects)})"
            name = self._load(merge_sql(schema, rows) if schema.keyed else f"SELECT {columns} FROM {rows}")
        except duckdb.Error:
            return  # the files themselves are there
        finally:
            with self._lock:
                for part in parts:
                    part.users -= 1
        with self._lock:
            self._tails[tail] = _Copy(name, table.table_id, sum(p.weight for p in parts))

    def _by_table(self) -> dict[int, list[str]]:
        """The files in memory of each table."""
        found: dict[int, list[str]] = {}
        with self._lock:
            for copy in self._tails.values():
                found.setdefault(copy.table_id, [])
            for path, copy in self._copies.items():
                found.setdefault(copy.table_id, []).append(path)
        return found

    def _copy(self, path: str, table_id: int) -> None:
        import duckdb

        try:
            footer = footer_of(self._store, path)
            encoded = sum(footer.row_group(g).total_byte_size for g in range(footer.num_row_groups))
            weight = _VALUE_BYTES * footer.num_rows * footer.num_columns + 4 * encoded
            with self._lock:
                leaving = None if path in self._copies else self._make_room(path, weight)
            if leaving is None:
                return
            self._drop(leaving)
            url = self._store.url(path).replace("'", "''")
            name = self._load(f"SELECT * FROM read_parquet(['{url}'], hive_partitioning = false)")
        except (duckdb.Error, pa.ArrowException, StorageError, OSError):
            return  # the query that reads the file itself will say what is wrong with it
        with self._lock:
            twice = path in self._copies
            if not twice:
                self._copies[path] = _Copy(name, table_id, weight)
        if twice:
            self._drop([name])

    def _load(self, rows: str) -> str:
        """A table with these rows, in a database of its own: only so DuckDB compresses it in memory, and scans
        strings a third faster; and prepared statements stay as they are when other tables come and go."""
        cursor = self._cursor()
        name = f"__hot_{next(self._numbers)}"
        cursor.execute(f"ATTACH ':memory:' AS {name} (COMPRESS)")
        try:
            cursor.execute(f"CREATE TABLE {name}.{_TABLE} AS {rows}")
            cursor.execute(f"CHECKPOINT {name}")
        except BaseException:
            self._drop([name])
            raise
        return name

    def _make_room(self, path: str, weight: int) -> list[str] | None:
        """Takes out copies that are asked for less, the least recently used first: their names, or nothing if
        there would not be room even so."""
        free = _MOST_BYTES - sum(c.weight for c in (*self._copies.values(), *self._tails.values()))
        leaving = []
        for old, copy in self._copies.items():
            if free >= weight:
                break
            if copy.users == 0 and self._asked[old] < self._asked[path]:
                leaving.append(old)
                free += copy.weight
        return self._take_out(leaving) if free >= weight else None

    def _take_out(self, paths: Collection[str]) -> list[str]:
        """Takes out copies, and what was merged of them: their names."""
        merged = [t for t, copy in self._tails.items() if copy.users == 0 and not set(t).isdisjoint(paths)]
        return [self._copies.pop(path).name for path in paths] + [self._tails.pop(tail).name for tail in merged]

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:  # not under the lock: queries would wait
            self._cursor().execute(f"DETACH {name}")


def _tail(deltas: Sequence[Delta]) -> tuple[str, ...]:
    """The files of all deltas but the first, where there are several with one file each, of the same columns."""
    rest = deltas[1:]
    alike = len({d.schema_id for d in rest}) == 1 and all(len(d.files) == 1 and not d.files[0].extra for d in rest)
    return tuple(d.files[0].path for d in rest) if len(rest) > 1 and alike else ()


def _files(table: TableState | None) -> dict[str, int]:
    """The table's files and their bytes; none if it is gone."""
    return {} if table is None else {f.path: f.bytes for d in table.deltas for f in d.files}
