"""Stored rows as Arrow data, of chosen row groups: what an index has ruled out is neither read nor decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from parquetry.model.delta import Delta
from parquetry.model.state import TableState
from parquetry.storage.cache import METADATA
from parquetry.storage.checked_file import (
    CheckedFile,
    check_whole,
    footer_of,
    footer_weight,
    leaves_of,
    read_chunks,
    read_whole,
)
from parquetry.storage.merge import ORDER
from parquetry.storage.scan.scan import TableScan, columns_had
from parquetry.storage.snapshot_index import data_files
from parquetry.storage.store import Store


def stored_rows(
    store: Store, table: TableState, schema_id: int, file: CheckedFile, groups: Sequence[int], columns: Sequence[str]
) -> tuple[pa.Table, int]:
    """The rows of these row groups, and the bytes read for them; a column that the file is too old to have is null."""
    had = columns_had(table, schema_id, columns)
    there, size = read_row_groups(store, file, groups, had)
    nulls = {c: pa.nulls(there.num_rows, table.schema.column(c).arrow) for c in columns if c not in had}
    return pa.table({c: nulls[c] if c in nulls else there.column(c) for c in columns}), size


def scanned_rows(
    store: Store, scan: TableScan, deltas: Sequence[Delta], columns: Sequence[str] | None = None
) -> pa.Table:
    """All stored rows of the scan's files, unmerged; without ``columns`` all of them, and for keyed tables
    ``__order``, as Spark's adapter gives it."""
    names, keyed = scan.table.schema.names, scan.table.schema.keyed
    columns = columns or ([*names, ORDER] if keyed else names)
    parts = list(scanned_files(store, scan, deltas, columns))
    return pa.concat_tables(parts) if parts else scan.table.schema.arrow.empty_table()


def scanned_files(store: Store, scan: TableScan, deltas: Sequence[Delta], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The same file by file."""
    checked = {file.path: file for d in deltas for file in data_files(store, d)}
    for task in scan.tasks:
        file = checked[task.file.path]
        groups = range(footer_of(store, file).num_row_groups)
        rows, _ = stored_rows(store, scan.table, task.schema_id, file, groups, [c for c in columns if c != ORDER])
        if ORDER in columns:
            rows = rows.append_column(ORDER, pa.repeat(pa.scalar(task.place, pa.int64()), rows.num_rows))
        yield rows


def read_row_groups(
    store: Store, file: CheckedFile, groups: Sequence[int], columns: Sequence[str]
) -> tuple[pa.Table, int]:
    """The rows of these row groups in these columns, and the bytes read for them. A small file is one read."""
    if file.small:
        data, size = pa.py_buffer(read_whole(store, file)), file.bytes
        footer = METADATA.get(
            ("footer", store.url(file.path)), lambda: pq.read_metadata(pa.BufferReader(data)), footer_weight
        )
    else:
        footer = footer_of(store, file)
        if not file.known:
            check_whole(store, file)
        data, size = read_chunks(store, file, footer, groups, columns)
    with pq.ParquetFile(pa.BufferReader(data), metadata=footer, pre_buffer=False) as parquet:
        rows = parquet.read_row_groups(list(groups), columns=list(columns), use_threads=False).select(list(columns))
    return rows, size


def row_group_sizes(store: Store, file: CheckedFile, columns: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """The rows of each row group of a file, and the bytes that these columns take in it."""

    def load() -> tuple[list[int], list[int]]:
        footer = footer_of(store, file)
        groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
        wanted = leaves_of(footer, columns)
        return [g.num_rows for g in groups], [sum(g.column(i).total_compressed_size for i in wanted) for g in groups]

    return METADATA.get(("sizes", store.url(file.path), columns), load, lambda found: 256 + 64 * len(found[0]))
