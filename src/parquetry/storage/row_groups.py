"""Reads chosen row groups of data files: what an index has ruled out is neither read nor decoded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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
from parquetry.storage.store import Store

ROW_NUMBER = "file_row_number"
"""What DuckDB calls the number of a row in its file, by which it skips row groups as well."""


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
        groups = range(footer.num_row_groups)
        return [footer.row_group(g).num_rows for g in groups], [chunk_bytes(footer, [g], columns) for g in groups]

    return METADATA.get(("sizes", store.url(file.path), columns), load, lambda found: 256 + 64 * len(found[0]))


def chunk_bytes(footer: Any, groups: Sequence[int], columns: Collection[str]) -> int:
    """The bytes that these columns take in these row groups."""
    wanted = leaves_of(footer, columns)
    return sum(footer.row_group(g).column(i).total_compressed_size for g in groups for i in wanted)
