"""Writes one sorted run as Parquet, in a Spark task or in the process, and returns what the index needs to know of it.

A task gets Arrow batches sorted by (block, key), merges equal keys where the model says so, cuts row groups and files
by size, and yields one row per file. Statistics come from the same pass: nothing is read again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.model.types import type_name
from parquetry.storage.data_files import DataFiles
from parquetry.storage.pieces import Counted, in_pieces
from parquetry.storage.store import Store

_RESULT = pa.schema(
    [
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("checksum", pa.string()),
        ("first", pa.binary()),
        ("groups", pa.binary()),
        ("rows_in", pa.int64()),
        ("digest", pa.int64()),
    ]
)
RESULT_DDL = ", ".join(f"{f.name} {type_name(f.type)}" for f in _RESULT)


@dataclass(frozen=True)
class RunWriter:
    """What a task needs to write its part of a delta; sent to executors by pickling."""

    store: Store
    directory: str
    schema: TableSchema
    settings: Settings
    describe: Callable[[pa.Table], str] | None = None  # the precise descriptor of a row group, as JSON
    extra_from: int = 0  # a task with fewer rows than this writes no extra blocks
    sorted_by: int | None = None  # rows come sorted by so many leading key columns only; None: by all of them
    read: Callable[[int], Iterator[pa.RecordBatch]] | None = None  # gives the rows of the parts whose numbers come

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.read is not None:
            # Spark throws a worker away that has not read its input.
            parts = [part for batch in batches for part in batch.column(0).to_pylist()]
            batches = (rows for part in parts for rows in self.read(part))
        counted = Counted(batches, self.extra_from)
        files = DataFiles(self.store, self.directory, self.schema, self.settings, self.describe)
        try:
            for table in in_pieces(counted, self.schema, self.sorted_by):
                files.add(table)
            written = files.finish()
        except BaseException as e:
            files.abandon(e)
            raise
        if not written and counted.rows:
            raise AssertionError("rows came in but no file was written")
        for i, f in enumerate(written):
            rows_in, digest = (counted.rows, counted.digest) if i == 0 else (0, 0)
            row = [f.path, f.rows, f.bytes, f.checksum, f.groups[0].starts[0], pickle.dumps(f.groups), rows_in, digest]
            yield pa.RecordBatch.from_arrays(
                [pa.array([v], t.type) for v, t in zip(row, _RESULT, strict=True)], schema=_RESULT
            )
