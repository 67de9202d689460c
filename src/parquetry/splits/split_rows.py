"""Inside a scan worker: which rows of its files belong to a split, and the relation that reads them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from parquetry.layouts.routing.route import compiled
from parquetry.model.keys import block_prefix, encode_keys
from parquetry.splits.assignment import Edge, SplitPart, SplitTask
from parquetry.splits.other_orders import KeyOrder
from parquetry.splits.shorten_key import columns_in
from parquetry.storage.checked_file import CheckedFile, check_chunks, footer_of
from parquetry.storage.scan.arrow import stored_rows
from parquetry.storage.scan.duck import numbered_rows, stored_sql, whole_files
from parquetry.storage.scan.scan import ReadTask, RowRange, TableScan, columns_had, join_on, layout_of
from parquetry.storage.store import Store


@dataclass(frozen=True, eq=False)
class StoredTable:
    """What a worker must know of the table to read its rows; sent to executors by pickling."""

    store: Store
    scan: TableScan  # without tasks: a split brings its own
    files: Mapping[str, CheckedFile]  # by path
    order: KeyOrder  # of the splits' keys


def stored_table(scan: TableScan, store: Store, order: KeyOrder) -> StoredTable:
    index = None if scan.kept is None else scan.kept.index  # None without deltas
    files = {} if index is None else {task.file.path: index.file(task.file.path) for task in scan.tasks}
    return StoredTable(store, replace(scan, table=replace(scan.table, deltas=()), tasks=(), kept=None), files, order)


@dataclass(frozen=True, eq=False)
class SplitRows:
    """DuckDB text of a relation with a split's stored rows, and the Arrow data that it names."""

    sql: str
    rows: int
    streams: dict[str, pa.RecordBatchReader]
    bytes: int = 0  # read for the streams


def rows_of(split: SplitTask, table: StoredTable, name: str = "__picked") -> SplitRows:
    """Exactly the split's stored rows; Arrow data in it is called ``name`` and a number."""
    whole: dict[tuple[int, int], list[ReadTask]] = {}
    relations: list[tuple[ReadTask, str]] = []
    streams: dict[str, pa.RecordBatchReader] = {}
    count = size = 0
    for part in split.parts:
        task = part.task
        rows = [(0, task.file.rows)] if task.rows is None else rows_inside(part, split, table)
        if rows:
            _check(task, rows, table)
            count += sum(b - a for a, b in rows)
        if task.rows is None:
            whole.setdefault((task.place, task.schema_id), []).append(task)
        elif rows:
            relations.append((task, numbered_rows(table.store, task.file.path, rows)))
        for edge in (e for e in part.edges if not e.in_order):
            found, read = _rows_between(edge, task, split, table)
            relations.append((task, f"{name}_{len(streams)}"))
            streams[relations[-1][1]] = found.to_reader()
            count, size = count + found.num_rows, size + read
    relations += [(tasks[0], whole_files(table.store, [t.file.path for t in tasks])) for tasks in whole.values()]
    return SplitRows(stored_sql(table.scan, relations, ordered=table.scan.merge), count, streams, size)


def rows_inside(part: SplitPart, split: SplitTask, table: StoredTable) -> list[RowRange]:
    """The row ranges of a file that lie in the split, in order; neighbours joined. Edges in other orders have none."""
    found = list(part.task.rows or ())
    for edge in (e for e in part.edges if e.in_order):
        first = 0 if split.lo is None else _rows_before(split.lo, edge, part.task, table)
        stop = edge.rows if split.hi is None else _rows_before(split.hi, edge, part.task, table)
        inside = ((max(a, first), min(b, stop)) for a, b in edge.within)
        found += [(edge.first + a, edge.first + b) for a, b in inside if a < b]
    joined: list[RowRange] = []
    for rows in sorted(found):
        join_on(joined, rows)
    return joined


def _rows_before(key: bytes, edge: Edge, task: ReadTask, table: StoredTable) -> int:
    """How many rows of the edge have a smaller (block, key): a binary search, as they are sorted by it.

    Each side of a border asks this of the same rows, so a row is in exactly one split, and equal keys stay together.
    Only the columns that the border has are read: why borders are short (PP-29).
    """
    own = None if edge.block is None else block_prefix(edge.block)
    if own is not None and (key[: len(own)] != own or len(key) == len(own)):
        return edge.rows if own < key else 0
    schema = table.scan.table.schema
    compared = schema.key[: columns_in(key, [schema.column(k).arrow for k in schema.key])]
    rows, keys_of, _ = _with_keys(edge, task, table, KeyOrder(task.layout_id, edge.block), compared, ())
    # Two looks at a few hundred rows each instead of one row at a time.
    step = max(1, math.isqrt(edge.rows))
    coarse = pa.array(range(0, edge.rows, step))
    before = bisect_left(keys_of(rows.take(coarse)), key)
    if before == 0:
        return 0
    first = (before - 1) * step
    return first + bisect_left(keys_of(rows.slice(first, step)), key)


def _rows_between(edge: Edge, task: ReadTask, split: SplitTask, table: StoredTable) -> tuple[pa.Table, int]:
    """The rows of an edge that have keys of the split in the split's order, and the bytes read for them."""
    scan = table.scan
    rows, keys_of, size = _with_keys(edge, task, table, table.order, scan.table.schema.key, scan.columns)
    lo, hi = split.lo or b"", split.hi
    inside = [lo <= key and (hi is None or key < hi) for key in keys_of(rows)]
    return rows.filter(pa.array(inside, pa.bool_())).select(list(scan.columns)), size


def _with_keys(
    edge: Edge, task: ReadTask, table: StoredTable, order: KeyOrder, compared: Sequence[str], columns: Sequence[str]
) -> tuple[pa.Table, Callable[[pa.Table], list[bytes]], int]:
    """The rows of an edge in ``columns`` and others, what gives the (block, key) of some, and the bytes read for them.

    Of the key, the columns ``compared`` count.
    """
    state = table.scan.table
    spec = None if order.block is not None else layout_of(state, order.layout_id)
    wanted = list(dict.fromkeys((*columns, *compared, *(spec.columns if spec is not None else ()))))
    file, wanted = table.files[task.file.path], wanted or [state.schema.key[0]]
    rows, size = stored_rows(table.store, state, task.schema_id, file, [edge.row_group], wanted)
    route = None if spec is None else compiled(spec, rows.schema)

    def keys_of(some: pa.Table) -> list[bytes]:
        blocks = [order.block or 0] * some.num_rows if route is None else route(some)
        encoded = encode_keys(some.select(list(compared)).columns).to_pylist() if compared else [b""] * some.num_rows
        return [block_prefix(int(b)) + k for b, k in zip(blocks, encoded, strict=True)]

    return rows, keys_of, size


def _check(task: ReadTask, rows: Sequence[RowRange], table: StoredTable) -> None:
    """Checks what DuckDB is going to read, which does not do so itself."""
    checked = table.files[task.file.path]
    footer = footer_of(table.store, checked)
    ends = np.cumsum([footer.row_group(g).num_rows for g in range(footer.num_row_groups)])
    first = np.searchsorted(ends, [a for a, _ in rows], "right")
    last = np.searchsorted(ends, [b - 1 for _, b in rows], "right")
    groups = sorted({g for a, b in zip(first.tolist(), last.tolist(), strict=True) for g in range(a, b + 1)})
    check_chunks(table.store, checked, groups, columns_had(table.scan.table, task.schema_id, table.scan.columns))
