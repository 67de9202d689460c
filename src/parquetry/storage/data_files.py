"""Cuts a sorted run into row groups and Parquet files, and keeps what the index needs to know of them.

Each extra block gets files of its own, so that a reader can take it or leave it (PW-22).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parquetry.model.delta import EXTRA_FILE
from parquetry.model.keys import block_prefix, encode_keys
from parquetry.model.layout import EXTRA_BASE
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.model.types import is_float, is_nested
from parquetry.storage.checked_file import checksums_of
from parquetry.storage.index import RowGroup
from parquetry.storage.merge import BLOCK
from parquetry.storage.row_group_numbers import ROW_GROUP, row_group_number
from parquetry.storage.store import Sink, Store

DICTIONARY_ROWS = 20_000  # the first rows of a file, which decide
_DICTIONARY_SHARE = 0.1  # a dictionary pays below this share of distinct values; above it Spark and DuckDB read slower
FILE_GROUPS = 128  # row groups of a file: engines read its whole footer to read one of them
_BUFFER_BYTES = 1 << 20


@dataclass
class WrittenFile:
    path: str
    rows: int
    bytes: int
    checksum: str
    groups: tuple[RowGroup, ...]


@dataclass
class DataFiles:
    """Takes the pieces of a run one after the other; ``finish`` gives the files they became."""

    store: Store
    directory: str
    schema: TableSchema
    settings: Settings
    describe: Callable[[pa.Table], str] | None = None
    done: list[WrittenFile] = field(default_factory=list)
    pending: list[pa.Table] = field(default_factory=list)
    pending_rows: int = 0

    def __post_init__(self) -> None:
        self._writer: pq.ParquetWriter | None = None
        self._extra: int | None = None  # the extra block that the open file holds
        self._arrow = self.schema.arrow
        # Parquet statistics leave NaN out, so an engine that trusts them would skip rows that Spark's order says
        # match (NaN is the largest). Our index knows about NaN; the files themselves carry no statistics there.
        self._counted_columns = [f.name for f in self._arrow if not is_float(f.type) and not is_nested(f.type)]

    def add(self, table: pa.Table) -> None:
        self.pending.append(table)
        self.pending_rows += table.num_rows
        if self.pending_rows >= self.settings.row_group_rows:
            self._cut(final=False)

    def finish(self) -> list[WrittenFile]:
        if self.pending_rows:
            self._cut(final=True)
        self._close()
        return self.done

    def abandon(self, error: BaseException) -> None:
        """Leaves no half-written file behind."""
        if self._writer is not None:
            with suppress(BaseException):
                self._publishing.__exit__(type(error), error, error.__traceback__)
            self._writer = None  # it writes its footer as it goes, for which there may be no room either

    def _cut(self, *, final: bool) -> None:
        table = pa.concat_tables(self.pending)
        blocks = _blocks_of(table)
        ends = self._group_ends(table.num_rows, blocks, final)
        done = ends[-1] if ends else 0
        if done:
            self._write_groups(table.slice(0, done), blocks, ends)
        rest = table.slice(done)
        self.pending = [rest] if rest.num_rows else []
        self.pending_rows = rest.num_rows

    def _group_ends(self, rows: int, blocks: np.ndarray | None, final: bool) -> list[int]:
        """Where row groups end. The last rows wait for more unless these are the ``final`` ones."""
        size = self.settings.row_group_rows
        if blocks is None:
            full = rows - rows % size
            return [*range(size, full + 1, size), *([rows] if final and full < rows else [])]
        ends, start = [], 0
        while start < rows:
            end = _end_at_block(blocks, start, min(start + size, rows), self.settings)
            if end == rows and end - start < size and not final:
                break  # more rows of the block may come
            ends.append(end)
            start = end
        return ends

    def _write_groups(self, table: pa.Table, blocks: np.ndarray | None, ends: list[int]) -> None:
        """What can be done for all row groups at once is: they may be small and many."""
        data = table.select(self.schema.names).cast(self._arrow).combine_chunks()
        spans = list(zip([0, *ends], ends, strict=False))
        leaves = self.settings.leaf_capacity
        marks = [np.append(np.arange(a, b, -(-(b - a) // leaves)), b - 1) for a, b in spans]
        at = np.concatenate(marks)
        ids = blocks[at] if blocks is not None else np.zeros(len(at), np.int32)
        encoded = encode_keys(data.select(list(self.schema.key)).take(pa.array(at)).columns).to_pylist()
        keys = [block_prefix(b) + k for b, k in zip(ids.tolist(), encoded, strict=True)]
        done = 0
        for (a, b), mark in zip(spans, marks, strict=True):
            after = done + len(mark)
            self._write_group(data.slice(a, b - a), int(ids[done]), mark - a, keys[done:after])
            done = after

    def _write_group(self, data: pa.Table, block: int, marks: np.ndarray, keys: list[bytes]) -> None:
        """``keys`` are those of the rows at ``marks``: where each leaf entry starts, and the last row."""
        extra = block if block >= EXTRA_BASE else None
        if extra != self._extra:
            self._close()
            self._extra = extra
        if self._writer is None:
            self._open(data)
        assert self._writer is not None
        number = pa.scalar(row_group_number(self._path, len(self._groups)), pa.int64())
        numbered = data.append_column(ROW_GROUP, pa.repeat(number, data.num_rows))
        self._writer.write_table(numbered, row_group_size=data.num_rows)
        floats = {f.name: _float_stats(data.column(f.name)) for f in self._arrow if is_float(f.type)}
        self._groups.append(
            RowGroup(
                file=0,
                row_group=len(self._groups),
                rows=data.num_rows,
                bytes=0,
                block=block,
                starts=tuple(keys[:-1]),
                start_rows=tuple(np.diff(np.append(marks[:-1], data.num_rows)).tolist()),
                last=keys[-1],
                mins={n: s[0] for n, s in floats.items()},
                maxs={n: s[1] for n, s in floats.items()},
                nulls={f.name: data.column(f.name).null_count for f in self._arrow},
                nans={n: s[2] for n, s in floats.items()},
                boxes=None if self.describe is None else self.describe(data),
            )
        )
        if self._out.tell() >= self.settings.file_bytes or len(self._groups) == FILE_GROUPS:
            self._close()

    def _open(self, first: pa.Table) -> None:
        prefix = "part-" if self._extra is None else EXTRA_FILE
        self._path = f"{self.directory}/{prefix}{uuid.uuid4().hex}.parquet"
        self._publishing = self.store.open_output(self._path)
        self._sink: Sink = self._publishing.__enter__()
        self._groups: list[RowGroup] = []
        self._footer: list[Any] = []
        # A small row group is written in hundreds of small pieces.
        self._out = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFER_BYTES)
        self._writer = pq.ParquetWriter(
            self._out,
            self._arrow.append(pa.field(ROW_GROUP, pa.int64())),
            compression=self.settings.compression,
            use_dictionary=[*_dictionary_columns(first), ROW_GROUP],
            write_statistics=[*self._counted_columns, ROW_GROUP],
            write_page_index=True,
            write_page_checksum=True,  # Spark compares it; what we read ourselves has checksums in the index
            metadata_collector=self._footer,
            store_schema=False,
            store_decimal_as_integer=True,  # up to 18 digits: every engine reads them sooner than bytes
        )

    def _close(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._out.flush()
        self._writer = None
        self._publishing.__exit__(None, None, None)
        footer = self._footer[0]
        groups = tuple(_with_footer_stats(g, footer.row_group(i), self._arrow) for i, g in enumerate(self._groups))
        if self.store.local:  # elsewhere only Spark reads them, and to read them once more would take long
            crcs, at, crc = checksums_of(self.store, self._path, self._sink.size, footer)
            groups = tuple(
                replace(g, chunk_crcs=c, footer_at=at, footer_crc=crc) for g, c in zip(groups, crcs, strict=True)
            )
        rows = sum(g.rows for g in groups)
        self.done.append(WrittenFile(self._path, rows, self._sink.size, self._sink.checksum, groups))


def _blocks_of(table: pa.Table) -> np.ndarray | None:
    if BLOCK not in table.schema.names:
        return None
    blocks: np.ndarray = table.column(BLOCK).to_numpy()
    return blocks if blocks[0] != blocks[-1] or blocks[0] != 0 else None


def _end_at_block(blocks: np.ndarray, start: int, end: int, settings: Settings) -> int:
    """Where the row group that begins at ``start`` ends: where a block ends, once it has ``block_group_rows`` rows.

    Smaller blocks share their row group, so small deltas keep few of them (NA-55). An extra block never shares.
    """
    if blocks[start] >= EXTRA_BASE:
        return min(int(np.searchsorted(blocks, blocks[start], side="right")), end)
    reached = min(start + settings.block_group_rows, len(blocks))
    at_block = int(np.searchsorted(blocks, blocks[reached - 1], side="right"))
    # A plain int would make numpy copy all blocks to compare them.
    return min(at_block, int(np.searchsorted(blocks, blocks.dtype.type(EXTRA_BASE))), end)


def dictionary_limit(rows: int) -> int:
    """How many distinct values the first ``rows`` rows of a file may have for a dictionary to pay."""
    return max(64, int(rows * _DICTIONARY_SHARE))


def _dictionary_columns(table: pa.Table) -> list[str]:
    """Flat columns whose first rows have few distinct values.

    Never floats: Spark skips a row group whose dictionary lacks the wanted value, and to that filter -0.0 is not 0.0.
    """
    head = table.slice(0, DICTIONARY_ROWS)
    few = dictionary_limit(head.num_rows)
    return [
        f.name
        for f in table.schema
        if not (is_nested(f.type) or is_float(f.type) or pa.types.is_boolean(f.type))
        and pc.count_distinct(head.column(f.name), mode="all").as_py() <= few
    ]


def _float_stats(column: pa.ChunkedArray) -> tuple[Any, Any, bool]:
    nan = pc.is_nan(column)
    has_nan = bool(pc.any(nan).as_py())
    if has_nan:
        column = column.filter(pc.invert(nan))
    found = pc.min_max(column).as_py()
    return found["min"], found["max"], has_nan


def _with_footer_stats(group: RowGroup, footer: Any, schema: pa.Schema) -> RowGroup:
    mins, maxs = dict(group.mins), dict(group.maxs)
    flat = {f.name for f in schema if not is_float(f.type) and not is_nested(f.type)}
    size = 0
    for i in range(footer.num_columns):
        column = footer.column(i)
        if column.path_in_schema == ROW_GROUP:
            continue  # no query reads it for its values
        size += column.total_compressed_size
        stats = column.statistics if column.path_in_schema in flat else None
        if stats is not None and stats.has_min_max:
            mins[column.path_in_schema], maxs[column.path_in_schema] = stats.min, stats.max
    return replace(group, bytes=size, mins=mins, maxs=maxs)
