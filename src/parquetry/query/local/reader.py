"""What the local executor reads: exactly the kept row groups of every file, whichever way is sooner done.

DuckDB skips row groups by Parquet's min/max alone: not by regions or precise boxes, and not by floats, which have none.
So a file of which a plan keeps some is read by us and handed over as Arrow data, or by DuckDB, which is told the
numbers of the rows and skips by them as well. A file that is kept whole, or nearly so, DuckDB reads as it is.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from operator import call
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.model.schema import TableSchema
from parquetry.query.local.prepared import Held
from parquetry.storage.checked_file import CheckedFile, check_chunks, footer_of
from parquetry.storage.scan.arrow import read_row_groups, row_group_sizes
from parquetry.storage.scan.duck import ROW_NUMBER, numbered_rows, stored_sql, whole_files
from parquetry.storage.scan.scan import ReadTask, RowRange, TableScan, columns_had
from parquetry.storage.store import Store

BEYOND_PLAN = 0.1
"""So much more than the kept rows may be read of a file to read it whole: DuckDB's own reader is the fastest."""

# Rough milliseconds of a file, measured with row groups of 1,300 to 122,880 rows; only the order matters. DuckDB
# compares every range of rows with every row group of the file.
_NUMBERED_MS, _NUMBERED_PER_GROUP, _NUMBERED_PER_RANGE = 0.4, 0.03, 0.012
_PICKED_MS, _PICKED_PER_GROUP, _PICKED_PER_CHUNK = 0.1, 0.02, 0.01
_NUMBERED_PER_VALUE, _PICKED_PER_VALUE = (1.2e-5, 3e-5), (1.4e-5, 6e-5)  # of a fixed width, of any length
_DUCKDB_GAP = 16 << 10  # bytes between two chunks up to which DuckDB makes one read of them
_FEW_VALUES = 150_000  # are read sooner than handed to other threads
_MANY_VALUES = 8 << 20  # would take too much memory at once
_PIECE_ROWS = 1 << 18  # are read at once
_CORES = os.cpu_count() or 1

Piece = tuple[str, list[int]]  # row groups of a file


@dataclass
class Source:
    """DuckDB text of a relation with the table's stored rows; ``streams`` are the relations it names."""

    scan: TableScan
    sql: str = ""
    held: list[Held] = field(default_factory=list)  # it names these, which hold all the rows
    merged: bool = False  # or there is nothing to merge
    streams: dict[str, pa.RecordBatchReader | pa.Table] = field(default_factory=dict)
    in_files: tuple[int, int] = (0, 0)  # row groups and rows that DuckDB is to read from files
    bytes: int = 0
    rows: int = 0
    groups: int = 0
    error: Exception | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def counted(self) -> bool:
        """Whether what it reads is counted here: DuckDB need not be asked."""
        return not self.in_files[0]

    @property
    def small(self) -> bool:
        """Whether one thread is as soon done with it as several."""
        kept = self.scan.kept
        few = kept is None or kept.rows * len(self.scan.columns) <= _FEW_VALUES
        return bool(self.held) or not self.scan.tasks or self.counted and few


def measured(cursor: Any, sources: Sequence[Source], store: Store) -> dict[str, int]:
    """What was really read: picked row groups as counted here, files as DuckDB counted them."""
    for s in sources:
        if s.held:
            _count_kept(s, store)
    size, rows, groups = (sum(getattr(s, n) for s in sources) for n in ("bytes", "rows", "groups"))
    told, told_rows = (sum(s.in_files[i] for s in sources) for i in (0, 1))
    if told:
        profile = json.loads(cursor.get_profiling_information(format="json"))
        scanned = _sum_of(profile.get("operator", []), "row_groups_scanned")
        size += int(profile.get("io", {}).get("total_bytes_read", 0))
        rows += round(told_rows * scanned / told)
        groups += scanned
    files = sum(len(s.scan.tasks) for s in sources)
    return {"bytes_read": size, "rows_scanned": rows, "blocks_read": groups, "files_read": files}


@dataclass(frozen=True)
class Ways:
    """How each file of a plan is read: whole, by the numbers of its rows, or its kept row groups picked."""

    whole: frozenset[str] = frozenset()
    numbered: Mapping[str, list[RowRange]] = field(default_factory=dict)
    picked: Mapping[str, list[int]] = field(default_factory=dict)
    rows: int = 0  # all that is read


def ways_to_read(scan: TableScan, *, pick: bool) -> Ways:
    """The soonest way for each file that reads no more than the plan keeps of it, or hardly more."""
    if not pick or scan.kept is None:
        read = 0 if scan.kept is None else scan.kept.rows_in_files
        return Ways(frozenset(task.file.path for task in scan.tasks), rows=read)
    index, groups, ranges = scan.kept.index, scan.kept.row_groups(), scan.kept.row_ranges()
    schema, names = scan.table.schema, scan.columns
    rows_of = np.bincount(index.path_of, index.rows, len(index.paths))
    ordinal = {path: i for i, path in enumerate(index.paths)}
    # Between small chunks DuckDB reads what nobody wants.
    chunks = index.groups_of_path * len(schema.columns)
    small_chunks = np.bincount(index.path_of, index.bytes, len(index.paths)) < _DUCKDB_GAP * chunks
    small_chunks &= len(names) < len(schema.columns)
    whole: set[str] = set()
    numbered: dict[str, list[RowRange]] = {}
    picked: dict[str, list[int]] = {}
    read = 0
    can_number = ROW_NUMBER not in {n.lower() for n in schema.names}
    for path, kept in groups.items():
        at = ordinal[path]
        rows = sum(b - a for a, b in ranges[path])
        read += rows
        if index.file(path).small or small_chunks[at]:
            picked[path] = kept  # a small file is one read, which DuckDB would take several for
        elif rows_of[at] <= rows * (1 + BEYOND_PLAN):
            whole.add(path)
            read += int(rows_of[at]) - rows
        elif can_number and _numbering_pays(
            schema, names, in_file=int(index.groups_of_path[at]), ranges=len(ranges[path]), kept=len(kept), rows=rows
        ):
            numbered[path] = ranges[path]
        else:
            picked[path] = kept
    return Ways(frozenset(whole), numbered, picked, read)


def _numbering_pays(
    schema: TableSchema, names: Sequence[str], *, in_file: int, ranges: int, kept: int, rows: int
) -> bool:
    """Whether DuckDB is sooner done with the rows of a file by their numbers than we are who pick row groups."""
    types = [schema.column(n).arrow for n in names]
    fixed = sum(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) for kind in types)
    kinds = fixed, len(names) - fixed
    numbered = _NUMBERED_MS + in_file * (_NUMBERED_PER_GROUP + _NUMBERED_PER_RANGE * ranges)
    picked = _PICKED_MS + kept * (_PICKED_PER_GROUP + _PICKED_PER_CHUNK * len(names))
    numbered += rows * sum(n * ms for n, ms in zip(kinds, _NUMBERED_PER_VALUE, strict=True))
    picked += rows * sum(n * ms for n, ms in zip(kinds, _PICKED_PER_VALUE, strict=True))
    return bool(numbered < picked)


def held_source(scan: TableScan, there: Mapping[str, list[Held]]) -> Source:
    """The stored rows of a scan, which are ``there`` in memory, by path; they may be merged."""
    # What holds several files is read once, as if it were the last of them.
    held = {h: task for task in scan.tasks for h in there[task.file.path]}
    merged = not scan.merge or len(held) == 1
    sql = stored_sql(scan, [(task, h.name) for h, task in held.items()], ordered=not merged)
    return Source(scan, sql, list(held), merged)


def file_source(scan: TableScan, store: Store, *, pick: bool, name: str) -> Source:
    """The stored rows of a scan, from its files; ``pick`` allows row groups to be picked, which get a ``name``."""
    ways = ways_to_read(scan, pick=pick)
    source = Source(scan, merged=not scan.merge, in_files=_check_files(scan, store, ways))
    alike: dict[tuple[int, int], list[ReadTask]] = {}
    for task in scan.tasks:
        alike.setdefault((task.place if scan.merge else 0, task.schema_id), []).append(task)
    relations: list[tuple[ReadTask, str]] = []
    for tasks in alike.values():
        paths = [task.file.path for task in tasks]
        found = [numbered_rows(store, p, r) for p in paths if (r := ways.numbered.get(p))]
        if whole := [p for p in paths if p in ways.whole]:
            found.append(whole_files(store, whole))
        if groups := {p: ways.picked[p] for p in paths if p in ways.picked}:
            stored = columns_had(scan.table, tasks[0].schema_id, scan.columns)
            found.append(f"{name}_{len(source.streams)}")
            source.streams[found[-1]] = _picked(source, store, groups, stored)
        relations += [(tasks[0], relation) for relation in found]
    source.sql = stored_sql(scan, relations, ordered=scan.merge)
    return source


def _check_files(scan: TableScan, store: Store, ways: Ways) -> tuple[int, int]:
    """Checks what DuckDB is going to read, which does not do so itself; and counts its row groups and rows."""
    if scan.kept is None:
        return 0, 0
    index, kept = scan.kept.index, scan.kept.row_groups()
    wanted: dict[str, Sequence[int]] = {path: kept[path] for path in ways.numbered}
    rows = sum(b - a for ranges in ways.numbered.values() for a, b in ranges)
    whole = np.array([path in ways.whole for path in index.paths])[index.path_of]
    counts = zip(index.paths, index.groups_of_path.tolist(), strict=True)
    wanted |= {path: range(n) for path, n in counts if path in ways.whole}
    jobs = [partial(check_chunks, store, index.file(path), groups, scan.columns) for path, groups in wanted.items()]
    for _ in map(call, jobs) if len(jobs) == 1 else _readers().map(call, jobs):
        pass
    return sum(map(len, wanted.values())), rows + int(index.rows[whole].sum())


def _plain(schema: TableSchema, names: Sequence[str]) -> bool:
    """Whether filters on these columns mean the same in an Arrow table's scan, into which DuckDB pushes them.

    NaN compares otherwise there, and decimals and timestamps would have to be converted.
    """
    plain = pa.types.is_integer, pa.types.is_date32, pa.types.is_string
    return all(any(is_kind(schema.column(n).arrow) for is_kind in plain) for n in names)


def _picked(
    source: Source, store: Store, groups: Mapping[str, list[int]], columns: Sequence[str]
) -> pa.Table | pa.RecordBatchReader:
    """The picked rows, read in pieces by as many threads as there are cores if they are worth it.

    A table if filters mean the same in its scan, and a stream else, into which DuckDB pushes none.
    """
    assert source.scan.kept is not None
    index = source.scan.kept.index

    def read(piece: Piece) -> pa.Table:
        path, ordinals = piece
        rows, size = read_row_groups(store, index.file(path), ordinals, columns)
        with source.lock:
            source.bytes += size
            source.rows += rows.num_rows
            source.groups += len(ordinals)
        return rows

    pieces = [(path, part) for path, kept in groups.items() for part in _pieces(store, index.file(path), kept)]
    values = source.scan.kept.rows * len(columns)
    tables = map(read, pieces) if values <= _FEW_VALUES else _ahead(read, pieces)
    first = next(tables)
    if values <= _MANY_VALUES and _plain(source.scan.table.schema, columns):
        return pa.concat_tables([first, *(rows.cast(first.schema) for rows in tables)])

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first.to_batches()
        try:
            for rows in tables:
                yield from rows.cast(first.schema).to_batches()
        except Exception as e:
            source.error = e
            raise

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def _pieces(store: Store, file: CheckedFile, groups: Sequence[int]) -> list[list[int]]:
    """The row groups in parts of a bounded number of rows."""
    footer = footer_of(store, file)
    found: list[list[int]] = []
    room = 0
    for g in groups:
        rows = footer.row_group(g).num_rows
        if room < rows:
            found.append([])
            room = _PIECE_ROWS
        found[-1].append(g)
        room -= rows
    return found


def _ahead(read: Callable[[Piece], pa.Table], pieces: Iterable[Piece]) -> Iterator[pa.Table]:
    """What is read of the pieces, in order, while the next ones are being read."""
    waiting: deque[Future[pa.Table]] = deque()
    rest = iter(pieces)
    waiting.extend(_readers().submit(read, piece) for piece in islice(rest, _CORES + 1))
    while waiting:
        rows = waiting.popleft().result()
        waiting.extend(_readers().submit(read, piece) for piece in islice(rest, 1))
        yield rows


@lru_cache(maxsize=1)
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_CORES, thread_name_prefix="row-groups")


def _count_kept(source: Source, store: Store) -> None:
    """Counts the kept row groups as if they were read: what a query costs does not depend on what lies in memory."""
    kept = source.scan.kept
    assert kept is not None
    for path, ordinals in kept.row_groups().items():
        rows, sizes = row_group_sizes(store, kept.index.file(path), source.scan.columns)
        source.rows += sum(rows[g] for g in ordinals)
        source.bytes += sum(sizes[g] for g in ordinals)
        source.groups += len(ordinals)


def _sum_of(operators: list[dict[str, Any]], name: str) -> int:
    return sum(int(o.get(name, 0)) + _sum_of(o.get("children", []), name) for o in operators)
