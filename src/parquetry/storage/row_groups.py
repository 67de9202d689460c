"""Reads chosen row groups of data files: what an index has ruled out is neither read nor decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parquetry.storage.cache import METADATA
from parquetry.storage.store import Store

ROW_NUMBER = "file_row_number"
"""What DuckDB calls the number of a row in its file, by which it skips row groups as well."""
_CHUNK_WEIGHT = 300  # bytes that a footer takes in memory for one column chunk, with room


def footer_of(store: Store, path: str) -> Any:
    """The footer of a data file, read once per process: data files never change."""

    def load() -> Any:
        with store.open_input(path) as stream:
            return pq.read_metadata(stream)

    return METADATA.get(
        ("footer", store.url(path)), load, lambda f: 1024 + _CHUNK_WEIGHT * f.num_columns * f.num_row_groups
    )


def read_row_groups(store: Store, path: str, groups: Sequence[int], columns: Sequence[str]) -> tuple[pa.Table, int]:
    """The rows of these row groups in these columns, and the bytes that held them."""
    footer = footer_of(store, path)
    # One read per column chunk, without the gaps that a pre-buffered read would bridge.
    with store.open_input(path) as stream, pq.ParquetFile(stream, metadata=footer, pre_buffer=False) as file:
        rows = file.read_row_groups(list(groups), columns=list(columns), use_threads=False).select(list(columns))
    return rows, chunk_bytes(footer, groups, columns)


def row_group_sizes(store: Store, path: str, columns: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """The rows of each row group of a file, and the bytes that these columns take in it."""

    def load() -> tuple[list[int], list[int]]:
        footer = footer_of(store, path)
        groups = range(footer.num_row_groups)
        return [footer.row_group(g).num_rows for g in groups], [chunk_bytes(footer, [g], columns) for g in groups]

    return METADATA.get(("sizes", store.url(path), columns), load, lambda found: 256 + 64 * len(found[0]))


def chunk_bytes(footer: Any, groups: Sequence[int], columns: Sequence[str]) -> int:
    """The bytes that these columns take in these row groups."""
    wanted = _leaves(footer, columns)
    return sum(footer.row_group(g).column(i).total_compressed_size for g in groups for i in wanted)


def _leaves(footer: Any, columns: Sequence[str]) -> list[int]:
    whole, nested = frozenset(columns), tuple(f"{c}." for c in columns)
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    return [i for i, path in enumerate(paths) if path in whole or path.startswith(nested)]
