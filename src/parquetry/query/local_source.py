"""What the local executor reads: whole files through DuckDB's own reader, or picked row groups as Arrow data.

DuckDB skips row groups by min/max, not by regions or precise boxes, and looks at every row group of a file to do so.
Where a plan keeps few rows, handing it exactly the kept row groups reads fewer bytes and is sooner done. Where it keeps
more than a few, but fewer than min/max would, DuckDB is told the numbers of their rows, by which it skips as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.model.distinct import SKETCH_TYPE
from parquetry.query.plan import TablePlan
from parquetry.query.prepared import Held
from parquetry.storage.merge import ORDER, quote
from parquetry.storage.row_groups import ROW_NUMBER, read_row_groups, row_group_sizes
from parquetry.storage.store import Store

NAME = "pick_row_groups"

# Rough milliseconds, measured on lineitem with row groups of 1,024 to 122,880 rows; only the order matters.
_FILES_MS, _FILES_PER_FILE, _FILES_PER_GROUP, _FILES_PER_VALUE = 2.5, 0.05, 0.02, 0.6e-5
_NUMBERED_PER_FILE = 0.4
_MOST_NUMBERED = 32  # files that are read one by one, and ranges of rows in all of them
_PICKED_MS, _PICKED_PER_FILE, _PICKED_PER_GROUP, _PICKED_PER_VALUE = 2.6, 0.1, 0.08, 2.8e-5
_FEW_VALUES = 150_000  # are read sooner than handed to other threads
_PLAIN_PER_VALUE = 0.9e-5  # of columns with plain types


@dataclass
class Source:
    """DuckDB text of a relation with the table's stored rows; ``streams`` are the relations it names."""

    sql: str
    table: TablePlan
    columns: Sequence[str]
    held: list[Held] = field(default_factory=list)  # it names these, which hold all the rows
    merged: bool = False  # or there is nothing to merge
    streams: dict[str, pa.RecordBatchReader | pa.Table] = field(default_factory=dict)
    bytes: int = 0
    rows: int = 0
    groups: int = 0
    error: Exception | None = None

    @property
    def counted(self) -> bool:
        """Whether what it reads is counted here: DuckDB need not be asked."""
        return bool(self.held or self.streams) or not self.table.files

    @property
    def small(self) -> bool:
        """Whether one thread is as soon done with it as several."""
        few = self.table.rows * len(self.columns) <= _FEW_VALUES
        return bool(self.held) or not self.table.files or bool(self.streams) and few


def measured(cursor: Any, sources: Sequence[Source], store: Store) -> dict[str, int]:
    """What was really read: picked row groups as counted here, whole files as DuckDB counted them."""
    for s in sources:
        if s.held:
            _count_kept(s, store)
    whole = [s.table for s in sources if not s.counted]
    size, rows, groups = (sum(getattr(s, n) for s in sources) for n in ("bytes", "rows", "groups"))
    if whole:
        profile = json.loads(cursor.get_profiling_information(format="json"))
        scanned, kept = _sum_of(profile.get("operator", []), "row_groups_scanned"), sum(t.groups_read for t in whole)
        size += int(profile.get("io", {}).get("total_bytes_read", 0))
        rows += round(sum(t.rows for t in whole) * scanned / kept) if kept else 0
        groups += scanned
    files = sum(len(s.table.files) for s in sources)
    return {"bytes_read": size, "rows_scanned": rows, "blocks_read": groups, "files_read": files}


def source_of(t: TablePlan, names: Sequence[str], store: Store, *, pick: bool, hot: Mapping[str, list[Held]]) -> Source:
    """The stored rows of ``t`` in the columns ``names``, unmerged unless they lie in memory so; with the delta's place
    in time if they have to be merged.

    ``pick`` allows row groups to be picked; ``hot`` holds all its rows in memory, by path. A column that a delta is too
    old to have is null there.
    """
    pick = pick and not hot
    groups = t.row_groups() if pick and _picking_pays(t, names) else {}
    numbered = t.row_ranges() if pick and not groups and _numbering_pays(t, len(names)) else {}
    files = [(place, d, f.path) for place, d in enumerate(t.deltas) for f in d.files if f.path in t.files]
    # What holds several files is read once, as if it were the last of them.
    held = {h: (place, d) for place, d, path in files for h in (hot[path] if hot else ())}
    source = Source("", t, names, list(held), merged=not t.merge or len(held) == 1)
    scans: dict[tuple[int, int], list[str]] = {}
    for place, d, read in [(*at, h.name) for h, at in held.items()] if hot else files:
        scans.setdefault((0 if source.merged else place, d.schema_id), []).append(read)
    selects: list[str] = []
    for (place, schema_id), paths in scans.items():
        had = set(t.state.schemas[schema_id].names)
        columns = [quote(n) if n in had else f"CAST(NULL AS {duck_type(t, n)}) AS {quote(n)}" for n in names]
        ordered = [] if source.merged else [f"{place} AS {ORDER}"]
        if groups:
            name = f"__picked_{t.state.table_id}_{len(selects)}"
            stored = [n for n in names if n in had] or [t.state.schema.key[0]]
            picked = _table if _plain(t, stored) else _stream
            source.streams[name] = picked(source, store, {p: groups[p] for p in paths}, stored)
            relations = [name]
        elif hot:
            relations = paths
        elif numbered:
            relations = [numbered_rows(store.url(p), numbered[p]) for p in paths]
        else:
            relations = [_reading(store.url(p) for p in paths)]
        selects += [f"SELECT {', '.join(columns + ordered)} FROM {relation}" for relation in relations]
    if not selects:
        columns = [f"CAST(NULL AS {duck_type(t, n)}) AS {quote(n)}" for n in names] + [f"0 AS {ORDER}"]
        selects = [f"SELECT {', '.join(columns)} WHERE false"]
    source.sql = " UNION ALL ".join(selects)
    return source


def _reading(urls: Iterable[str], options: str = "") -> str:
    listed = ", ".join("'" + url.replace("'", "''") + "'" for url in urls)
    # A folder above the warehouse may be called k=5: no reason to take 5 for the column k.
    return f"read_parquet([{listed}], hive_partitioning = false{options})"


def numbered_rows(url: str, ranges: Sequence[tuple[int, int]]) -> str:
    """A file's rows with these numbers, the last ones included, in DuckDB's words."""
    within = " OR ".join(f"{ROW_NUMBER} BETWEEN {a} AND {b}" for a, b in ranges)
    return f"{_reading([url], f', {ROW_NUMBER} = true')} WHERE {within}"


def _numbering_pays(t: TablePlan, columns: int) -> bool:
    """Whether it is worth its while to say which rows DuckDB shall read, beyond what it finds out by min/max."""
    if t.index is None or t.keep is None or ROW_NUMBER in {n.lower() for n in t.state.schema.names}:
        return False
    spared = _FILES_PER_VALUE * (t.rows_by_statistics - t.rows) * columns
    return t.groups_read <= _MOST_NUMBERED and spared > _NUMBERED_PER_FILE * len(t.files)


def _picking_pays(t: TablePlan, names: Sequence[str]) -> bool:
    """Whether reading the kept row groups only is expected to be sooner done than DuckDB over their files."""
    if t.index is None or t.keep is None:
        return False
    in_files = int(t.index.groups_of_path[np.unique(t.index.path_of[t.keep])].sum())
    files, columns = len(t.files), len(names)
    whole = (
        _FILES_MS
        + _FILES_PER_FILE * files
        + _FILES_PER_GROUP * in_files
        + _FILES_PER_VALUE * t.rows_by_statistics * columns
    )
    per_value = _PLAIN_PER_VALUE if _plain(t, names) else _PICKED_PER_VALUE
    picked = _PICKED_MS + _PICKED_PER_FILE * files + _PICKED_PER_GROUP * t.groups_read + per_value * t.rows * columns
    return picked < whole


def _plain(t: TablePlan, names: Sequence[str]) -> bool:
    """Whether filters on these columns mean the same in an Arrow table's scan, into which DuckDB pushes them.

    NaN compares otherwise there, and decimals and timestamps would have to be converted.
    """
    return all(_is_plain(t.state.schema.column(n).arrow) for n in names)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_string(kind))


def _table(source: Source, store: Store, groups: dict[str, list[int]], columns: Sequence[str]) -> pa.Table:
    """The picked rows at once, files side by side if they are worth a thread: sooner done than a stream, which is read
    with one thread."""
    threads = map if source.table.rows * len(columns) <= _FEW_VALUES else _readers().map
    read = list(threads(lambda path: read_row_groups(store, path, groups[path], columns), groups))
    first, *more = (
        _counted(source, rows, size, len(groups[path])) for path, (rows, size) in zip(groups, read, strict=True)
    )
    return pa.concat_tables([first, *(rows.cast(first.schema) for rows in more)])


@lru_cache(maxsize=1)
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="row-groups")


def _count_kept(source: Source, store: Store) -> None:
    """Counts the kept row groups as if they were read: what a query costs does not depend on what lies in memory."""
    t, kept = source.table, source.table.row_groups()
    for path in t.files:
        rows, sizes = row_group_sizes(store, path, tuple(source.columns))
        ordinals = kept.get(path, []) if t.keep is not None else range(len(rows))
        source.rows += sum(rows[g] for g in ordinals)
        source.bytes += sum(sizes[g] for g in ordinals)
        source.groups += len(ordinals)


def _counted(source: Source, rows: pa.Table, size: int, groups: int) -> pa.Table:
    source.bytes += size
    source.rows += rows.num_rows
    source.groups += groups
    return rows


def _stream(source: Source, store: Store, groups: dict[str, list[int]], columns: Sequence[str]) -> pa.RecordBatchReader:
    """The picked rows file by file, read as they are asked for. A stream, not a table: DuckDB would push filters into
    a table's scan, where NaN compares otherwise."""
    files = iter(groups.items())

    def read() -> pa.Table:
        path, ordinals = next(files)
        return _counted(source, *read_row_groups(store, path, ordinals, columns), len(ordinals))

    first = read()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first.to_batches()
        while True:
            try:
                rows = read()
            except StopIteration:
                return
            except Exception as e:
                source.error = e
                raise
            yield from rows.cast(first.schema).to_batches()

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def duck_type(t: TablePlan, name: str) -> str:
    """A stored column's type in DuckDB's words."""
    kind = t.state.schema.column(name).type
    known = {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "string": "VARCHAR", "binary": "BLOB"}
    return "SMALLINT[]" if kind == SKETCH_TYPE else known.get(kind, kind)


def _sum_of(operators: list[dict[str, Any]], name: str) -> int:
    return sum(int(o.get(name, 0)) + _sum_of(o.get("children", []), name) for o in operators)
