"""Inside a scan worker: which rows of its files belong to a split, and the relation that reads them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.layouts.routing.route import compiled
from parquetry.model.keys import block_prefix, encode_keys
from parquetry.model.layout import layout_from_json
from parquetry.model.schema import TableSchema
from parquetry.splits.assignment import DeltaPart, Edge, FilePart, RowRange, SplitTask
from parquetry.splits.boundary import columns_in
from parquetry.storage.checked_file import CheckedFile, check_chunks, footer_of
from parquetry.storage.merge import ORDER, quote
from parquetry.storage.row_groups import ROW_NUMBER, read_row_groups
from parquetry.storage.store import Store


@dataclass(frozen=True, eq=False)
class StoredTable:
    """What a worker must know of the table to read its rows; sent to executors by pickling."""

    store: Store
    schema: TableSchema
    names: tuple[str, ...]  # the columns to read
    types: tuple[str, ...]  # their DuckDB types, for deltas that are too old to have one
    had: Mapping[int, frozenset[str]]  # columns by schema id
    layouts: Mapping[int, Mapping[str, Any] | None]  # by layout id
    ordered: bool  # rows carry their delta's place in time
    files: Mapping[str, CheckedFile]  # by path


def rows_of(task: SplitTask, table: StoredTable) -> tuple[str, int]:
    """DuckDB text of a relation with exactly the split's stored rows, and how many there are."""
    selects: list[str] = []
    count = 0
    for part in task.parts:
        whole: list[str] = []
        columns = _columns(part, table)
        for file in part.files:
            if file.whole:
                _check(file, file.rows, part, table)
                whole.append(file.path)
                count += sum(b - a for a, b in file.rows)
                continue
            rows = rows_inside(file, part, task, table)
            if rows:
                _check(file, rows, part, table)
                count += sum(b - a for a, b in rows)
                within = " OR ".join(f"{ROW_NUMBER} BETWEEN {a} AND {b - 1}" for a, b in rows)
                selects.append(f"SELECT {columns} FROM {_reading([file.path], table, numbered=True)} WHERE {within}")
        if whole:
            selects.append(f"SELECT {columns} FROM {_reading(whole, table, numbered=False)}")
    if not selects:
        nulls = [f"CAST(NULL AS {t}) AS {quote(n)}" for n, t in zip(table.names, table.types, strict=True)]
        selects = [f"SELECT {', '.join(nulls + ([f'0 AS {ORDER}'] if table.ordered else []))} WHERE false"]
    return " UNION ALL ".join(selects), count


def rows_inside(file: FilePart, part: DeltaPart, task: SplitTask, table: StoredTable) -> list[RowRange]:
    """The row ranges of a file that lie in the split, in order; neighbours joined."""
    found = list(file.rows)
    for edge in file.edges:
        first = 0 if task.lo is None else _rows_before(task.lo, edge, file, part, table)
        stop = edge.rows if task.hi is None else _rows_before(task.hi, edge, file, part, table)
        inside = ((max(a, first), min(b, stop)) for a, b in edge.within)
        found += [(edge.first + a, edge.first + b) for a, b in inside if a < b]
    joined: list[RowRange] = []
    for a, b in sorted(found):
        if joined and joined[-1][1] == a:
            joined[-1] = (joined[-1][0], b)
        else:
            joined.append((a, b))
    return joined


def _rows_before(key: bytes, edge: Edge, file: FilePart, part: DeltaPart, table: StoredTable) -> int:
    """How many rows of the edge have a smaller (block, key): a binary search, as they are sorted by it.

    Each side of a border asks this of the same rows, so a row is in exactly one split, and equal keys stay together.
    Only the columns that the border has are read: why borders are short (PP-29).
    """
    own = None if edge.block is None else block_prefix(edge.block)
    if own is not None and (key[: len(own)] != own or len(key) == len(own)):
        return edge.rows if own < key else 0
    layout = None if edge.block is not None else table.layouts[part.layout_id]
    spec = None if layout is None else layout_from_json(layout)
    compared = table.schema.key[: columns_in(key, [table.schema.column(k).arrow for k in table.schema.key])]
    columns = list(dict.fromkeys((*compared, *(spec.columns if spec is not None else ()))))
    rows, _ = read_row_groups(table.store, table.files[file.path], [edge.row_group], columns or [table.schema.key[0]])
    route = None if spec is None else compiled(spec, rows.schema)

    def keys_at(at: pa.Array) -> list[bytes]:
        some = rows.take(at)
        blocks = [own or block_prefix(0)] * len(at) if route is None else [block_prefix(int(b)) for b in route(some)]
        encoded = encode_keys(some.select(list(compared)).columns).to_pylist() if compared else [b""] * len(at)
        return [b + k for b, k in zip(blocks, encoded, strict=True)]

    # Two looks at a few hundred rows each instead of one row at a time.
    step = max(1, math.isqrt(edge.rows))
    coarse = pa.array(range(0, edge.rows, step))
    before = bisect_left(keys_at(coarse), key)
    if before == 0:
        return 0
    first = (before - 1) * step
    return first + bisect_left(keys_at(pa.array(range(first, min(first + step, edge.rows)))), key)


def _check(file: FilePart, rows: Sequence[RowRange], part: DeltaPart, table: StoredTable) -> None:
    """Checks what DuckDB is going to read, which does not do so itself."""
    checked = table.files[file.path]
    footer = footer_of(table.store, checked)
    ends = np.cumsum([footer.row_group(g).num_rows for g in range(footer.num_row_groups)])
    first = np.searchsorted(ends, [a for a, _ in rows], "right")
    last = np.searchsorted(ends, [b - 1 for _, b in rows], "right")
    groups = sorted({g for a, b in zip(first.tolist(), last.tolist(), strict=True) for g in range(a, b + 1)})
    check_chunks(table.store, checked, groups, [n for n in table.names if n in table.had[part.schema_id]])


def _columns(part: DeltaPart, table: StoredTable) -> str:
    had = table.had[part.schema_id]
    named = zip(table.names, table.types, strict=True)
    listed = [quote(n) if n in had else f"CAST(NULL AS {t}) AS {quote(n)}" for n, t in named]
    return ", ".join(listed + ([f"{part.place} AS {ORDER}"] if table.ordered else []))


def _reading(paths: Sequence[str], table: StoredTable, *, numbered: bool) -> str:
    listed = ", ".join("'" + table.store.url(p).replace("'", "''") + "'" for p in paths)
    # A folder above the warehouse may be called k=5: no reason to take 5 for the column k.
    return f"read_parquet([{listed}], hive_partitioning = false, {ROW_NUMBER} = {str(numbered).lower()})"
