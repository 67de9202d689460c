"""The row groups of all deltas of a snapshot side by side, for pruning in one vectorised pass."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.errors import CatalogError
from parquetry.model.delta import Delta
from parquetry.model.keys import BLOCK_BYTES
from parquetry.model.layout import EXTRA_BASE
from parquetry.model.order_codes import Bounds, bounds_of
from parquetry.model.schema import TableSchema
from parquetry.model.types import is_float, is_nested
from parquetry.storage.cache import METADATA
from parquetry.storage.checked_file import CheckedFile
from parquetry.storage.index import Ints
from parquetry.storage.index_reader import RowGroupTable, open_index
from parquetry.storage.store import Store

_UNKNOWN = -1


class SnapshotIndex:
    """Row group ``i`` counts through the tables in their order. A column's bounds are prepared on first use.

    ``paths`` are the data files of all deltas, in the order of the deltas.
    """

    def __init__(self, tables: Sequence[RowGroupTable], schema: TableSchema, deltas: Sequence[Delta] = ()) -> None:
        self.tables = tuple(tables)
        self.schema = schema
        self.paths = [f.path for d in deltas for f in d.files]
        self._deltas = tuple(deltas)
        self._layouts = np.array([d.layout_id for d in deltas], np.int64)
        self._files_before = np.cumsum([0, *(len(d.files) for d in deltas)])
        self.offsets: Ints = np.concatenate(([0], np.cumsum([len(t) for t in tables], dtype=np.int64)))
        self._bounds: dict[str, Bounds | None] = {}
        self.prepared: dict[str, Any] = {}  # what a proof has made of this snapshot, for the next query
        self._nulls: dict[str, Ints] = {}

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def delta(self) -> Ints:
        """The ordinal of each row group's delta."""
        return np.repeat(np.arange(len(self.tables)), np.diff(self.offsets))

    @cached_property
    def rows(self) -> Ints:
        return self.numbers("rows")

    @cached_property
    def bytes(self) -> Ints:
        return self.numbers("bytes")

    @cached_property
    def path_of(self) -> Ints:
        """The ordinal in ``paths`` of the file that holds each row group."""
        return self._files_before[self.delta] + self.numbers("file")

    def file(self, path: str) -> CheckedFile:
        """A data file with its checksums."""
        if path not in self._files:
            place, ordinal = self._places[path]
            self._files[path] = _data_file(self._deltas[place], ordinal, self.tables[place])
        return self._files[path]

    @cached_property
    def _files(self) -> dict[str, CheckedFile]:
        return {}

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        return {f.path: (place, i) for place, d in enumerate(self._deltas) for i, f in enumerate(d.files)}

    @cached_property
    def groups_of_path(self) -> Ints:
        """The number of row groups of each file in ``paths``."""
        return np.bincount(self.path_of, minlength=len(self.paths))

    @cached_property
    def row_group(self) -> Ints:
        """The ordinal of each row group in its file."""
        return self.numbers("row_group")

    @cached_property
    def first_row(self) -> Ints:
        """The number in its file of each row group's first row."""
        order = np.lexsort((self.row_group, self.path_of))
        before = np.cumsum(self.rows[order]) - self.rows[order]
        _, start, of = np.unique(self.path_of[order], return_index=True, return_inverse=True)
        found = np.empty(len(self), np.int64)
        found[order] = before - before[start][of]
        return found

    @cached_property
    def layout(self) -> Ints:
        """The layout id of each row group's delta; 0 where it is not known."""
        return self._layouts[self.delta] if len(self._layouts) else np.zeros(len(self), np.int64)

    @cached_property
    def block_span(self) -> tuple[Ints, Ints]:
        """The first and the last block of each row group."""
        if not self.tables:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first, last = (np.concatenate([_blocks_of(t.batch[end]) for t in self.tables]) for end in ("start", "end"))
        return first, last

    @cached_property
    def extra(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which row groups belong to extra blocks: their rows are in others, too (PW-22)."""
        return self.block_span[0] >= EXTRA_BASE

    @cached_property
    def boxes(self) -> list[str | None]:
        """The precise descriptor of each row group, as JSON."""
        return [text for t in self.tables for text in t.batch["boxes"].to_pylist()]

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Every layout block that may have rows, extra ones left out; a row group of small blocks holds several."""
        if not self.tables:
            return ()
        first, last = (span[~self.extra] for span in self.block_span)
        found = [first, *(np.arange(a, b + 1) for a, b in np.unique(np.stack((first, last), 1)[first < last], axis=0))]
        return tuple(np.unique(np.concatenate(found)).tolist())

    def prepare(self) -> None:
        """Makes beforehand what almost every query asks of it."""
        _ = self.rows, self.bytes, self.path_of, self.row_group, self.first_row, self.extra, self.blocks
        for column in self.schema.key:
            self.bounds(column)
            self.nulls(column)

    def numbers(self, name: str) -> Ints:
        """One of file, row_group, rows, bytes, block of every row group."""
        parts = [np.asarray(t.batch[name]).astype(np.int64) for t in self.tables]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def bounds(self, column: str) -> Bounds | None:
        """The min/max of a column; None for a nested one, which has none."""
        if column not in self._bounds:
            arrow = self.schema.column(column).arrow
            self._bounds[column] = None if is_nested(arrow) else self._make_bounds(column, arrow)
        return self._bounds[column]

    def ends(self, column: str) -> tuple[pa.Array, pa.Array]:
        """The smallest and largest value of a flat column in every row group; null where unknown."""
        arrow = self.schema.column(column).arrow
        return self._stat("min", column, arrow), self._stat("max", column, arrow)

    def nulls(self, column: str) -> Ints:
        """The null count of a column in every row group, -1 where unknown."""
        if column not in self._nulls:
            self._nulls[column] = np.asarray(self._stat("nulls", column, pa.int64()).fill_null(_UNKNOWN))
        return self._nulls[column]

    def _make_bounds(self, column: str, arrow: pa.DataType) -> Bounds:
        nans = self._stat("nan", column, pa.bool_()) if is_float(arrow) else None
        return bounds_of(self._stat("min", column, arrow), self._stat("max", column, arrow), nans)

    def _stat(self, kind: str, column: str, arrow: pa.DataType) -> pa.Array:
        if not self.tables:
            return pa.nulls(0, arrow)
        return pa.concat_arrays([t.stat(kind, column, arrow) for t in self.tables])


def _blocks_of(keys: pa.Array) -> Ints:
    prefixes = pc.binary_slice(keys, 0, BLOCK_BYTES)
    return np.frombuffer(prefixes.buffers()[2], ">u4", len(keys)).astype(np.int64)


def data_files(store: Store, delta: Delta) -> list[CheckedFile]:
    """The data files of a delta with their checksums."""
    groups = open_index(store, delta.index).row_groups()
    return [_data_file(delta, i, groups) for i in range(len(delta.files))]


def _data_file(delta: Delta, ordinal: int, groups: RowGroupTable) -> CheckedFile:
    stored, known = delta.files[ordinal], groups.checks.get(ordinal)
    return CheckedFile(stored.path, stored.bytes, stored.checksum, *(known or ()))


def open_snapshot(store: Store, deltas: Sequence[Delta], schema: TableSchema) -> SnapshotIndex:
    """The row groups of the deltas, under the table's current schema; made once per process and snapshot."""

    def load() -> SnapshotIndex:
        tables = [open_index(store, d.index).row_groups() for d in deltas]
        for t, d in zip(tables, deltas, strict=True):
            lost = [f"column '{c}'" for c in sorted(t.columns.difference(schema.names))]
            lost += ["a data file"] if len(t) and pc.max(t.batch["file"]).as_py() >= len(d.files) else []
            if lost:
                told = f"the catalog is damaged: it lost {lost[0]}, which '{d.index.path}' has"
                raise CatalogError(f"{told}; restore it from a copy")
        return SnapshotIndex(tables, schema, deltas)

    key = ("snapshot", store.url(""), tuple(d.index.path for d in deltas), tuple(schema.columns), schema.key)
    weight_per_row_group = 32 * len(schema.columns)
    return METADATA.get(key, load, lambda s: 1024 + weight_per_row_group * len(s))
