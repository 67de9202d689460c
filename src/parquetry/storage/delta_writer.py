"""Turns rows into the files of one delta: a Spark frame on executors, an Arrow table in the process; index here."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from parquetry import failpoints
from parquetry.errors import StorageError
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.layout import EXTRA_BASE
from parquetry.model.state import TableState
from parquetry.storage.index import RowGroup, build_index
from parquetry.storage.kept import KeptFile
from parquetry.storage.merge import BLOCK, ORDER
from parquetry.storage.ranges import partition_by_range
from parquetry.storage.store import Store, checksum
from parquetry.storage.writer import RESULT_DDL, RunWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INDEX_NAME = "index.pqx"


@dataclass(frozen=True)
class Written:
    """What a write produced. ``delta`` is None when no row came in; its timestamps are set by the commit."""

    delta: Delta | None
    rows_in: int
    digest: str


def new_delta_id() -> str:
    """Unique to the attempt, so a retry or a lost worker never writes into a published delta."""
    return uuid.uuid4().hex


def delta_directory(table_id: int, delta_id: str) -> str:
    return f"{table_id}/{delta_id}"


@dataclass(frozen=True)
class WrittenFiles:
    files: tuple[KeptFile, ...]
    rows_in: int
    digest: str


@dataclass(frozen=True)
class DeltaJob:
    """A delta to be written: of which table, and how."""

    table: TableState  # in whose schema, layout and settings
    delta_id: str
    tasks: int
    level: int = 0
    times: tuple[int, int] = (0, 0)
    expected_rows: int | None = None
    kept: tuple[KeptFile, ...] = ()
    """Files of a replaced delta, or made before, that belong to the new one as they are."""
    sorted_by: int | None = None
    """Of rows in parts, or a frame whose partitions are stretches of the run: each is sorted by so many leading key
    columns. Rows in parts are sorted by all of them unless it is said."""
    describe: Callable[[pa.Table], str] | None = None
    """What a row group holds, more precisely than its statistics (PW-21)."""

    @property
    def directory(self) -> str:
        return delta_directory(self.table.table_id, self.delta_id)


@dataclass(frozen=True)
class RowsInParts:
    """Stretches of a delta's run, in order; each is read by the task that writes it."""

    spark: SparkSession
    parts: int
    read: Callable[[int], Iterator[pa.RecordBatch]]  # sent to executors by pickling


def write_files(rows: DataFrame | pa.Table | RowsInParts, store: Store, job: DeltaJob) -> WrittenFiles:
    """Sorts and writes ``rows`` as stretches of a delta's run, one for each task; a table is one, in the process."""
    if isinstance(rows, pa.Table):
        results = _written_here(rows, store, job)
    elif isinstance(rows, RowsInParts):
        results = _written_in_parts(rows, store, job)
    else:
        results = _written_by_tasks(rows, store, job)
    failpoints.reach("write.files")
    rows_in = sum(r["rows_in"] for r in results)
    digest = f"{sum(r['digest'] for r in results) % (1 << 64):016x}"
    files = [KeptFile(StoredFile(r["path"], r["bytes"], r["checksum"], r["rows"]), _groups(r)) for r in results]
    return WrittenFiles(tuple(files), rows_in, digest)


def _written_here(rows: pa.Table, store: Store, job: DeltaJob) -> list[Any]:
    schema, settings = job.table.schema, job.table.settings
    order = [BLOCK] if BLOCK in rows.column_names else []
    if not schema.keyed:  # else equal keys are merged, and sorted by that
        order += schema.key
    if order and rows.num_rows:
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in order]))  # NaN last; no key is null
    whole = rows.combine_chunks().to_batches()
    writer = RunWriter(store, job.directory, schema, settings, job.describe, settings.row_group_rows, 0)
    return [made.to_pylist()[0] for made in writer(iter(whole))]


def _written_in_parts(rows: RowsInParts, store: Store, job: DeltaJob) -> list[Any]:
    schema, settings = job.table.schema, job.table.settings
    writer = RunWriter(store, job.directory, schema, settings, job.describe, 0, job.sorted_by, rows.read)
    numbers = rows.spark.range(0, rows.parts, 1, rows.parts)
    return numbers.mapInArrow(lambda batches: writer(batches), RESULT_DDL).collect()


def _written_by_tasks(frame: DataFrame, store: Store, job: DeltaJob) -> list[Any]:
    schema, settings, tasks, blocks = job.table.schema, job.table.settings, job.tasks, job.table.blocks
    order = [BLOCK] if BLOCK in frame.columns else []
    order += [f"`{k.replace('`', '``')}`" for k in schema.key]
    if job.sorted_by is not None:
        run = frame
    elif tasks == 1:
        run = frame.coalesce(1)
    elif blocks >= tasks:
        from pyspark.sql import functions as F

        own = f"CAST({BLOCK} * {tasks}L DIV {blocks} AS INT)"
        dealt = f"CASE WHEN {BLOCK} < {EXTRA_BASE} THEN {own} ELSE ({BLOCK} - {EXTRA_BASE}) % {tasks} END"
        run = frame.repartitionById(tasks, F.expr(dealt))
    else:
        run = partition_by_range(frame, tasks, order)
    if schema.keyed and ORDER in frame.columns:
        order = [*order, ORDER]
    extra_from = settings.row_group_rows if tasks == 1 else 0
    writer = RunWriter(store, job.directory, schema, settings, job.describe, extra_from, job.sorted_by)
    # A closure, not the object itself: Spark asks the function for its name.
    ordered_run = run if job.sorted_by is not None else run.sortWithinPartitions(*order)
    # Under plain names: Spark would read a dot or a backtick in a column's name as syntax here.
    names = ordered_run.columns
    plain = ordered_run.toDF(*[f"c{i}" for i in range(len(names))])
    return plain.mapInArrow(lambda batches: writer(b.rename_columns(names) for b in batches), RESULT_DDL).collect()


def write_delta(rows: DataFrame | pa.Table | RowsInParts, store: Store, job: DeltaJob) -> Written:
    """Sorts and writes ``rows`` (the table's columns, and any of __block, __order, __digest) as one delta.

    With at least as many blocks as tasks, neighbouring blocks go to one task each, which needs no sampling pass.
    Extra blocks are dealt out to the tasks in turn. A delta smaller than a row group gets none: all of it is small.
    Only files named by tasks that succeeded are published; what a retried task left behind is deleted here or,
    after a crash, by vacuum.
    """
    made = write_files(rows, store, job)
    if job.expected_rows not in (None, made.rows_in):
        # Spark passes over an empty file without a word; a rewrite would make the loss final.
        raise StorageError(
            f"{job.expected_rows:,} rows are stored but {made.rows_in:,} could be read; nothing was changed. "
            "Run 'parquetry verify' to see which file is damaged"
        )
    return finish_delta(store, job, made.files, made.rows_in, made.digest)


def finish_delta(store: Store, job: DeltaJob, files: Sequence[KeptFile], rows_in: int, digest: str) -> Written:
    """The delta of files that were written for the job and those that it keeps, with its index; others are deleted."""
    table = job.table
    if not files and not job.kept:
        return Written(None, rows_in, digest)
    ordered = sorted([*files, *job.kept], key=lambda f: (f.groups[0].starts[0], f.groups[-1].last))
    index = index_of(store, job, ordered, f"{job.directory}/{INDEX_NAME}")
    failpoints.reach("write.index")
    stored = tuple(f.file for f in ordered)
    _delete_leftovers(store, job.directory, {index.path, *(f.path for f in stored)})
    delta = Delta(
        delta_id=job.delta_id,
        table_id=table.table_id,
        t_lo=job.times[0],
        t_hi=job.times[1],
        level=job.level,
        rows=sum(f.rows for f in stored if not f.extra),
        bytes=sum(f.bytes for f in stored),
        schema_id=table.schema_id,
        layout_id=table.layout_id,
        index=index,
        files=stored,
    )
    return Written(delta, rows_in, digest)


def index_of(store: Store, job: DeltaJob, files: Sequence[KeptFile], path: str) -> StoredFile:
    """Writes the index of files that are one run, in its order."""
    settings = job.table.settings
    groups = [replace(g, file=ordinal) for ordinal, f in enumerate(files) for g in f.groups]
    index = build_index(groups, job.table.schema, settings.leaf_capacity, settings.inner_capacity)
    store.write(path, index)
    return StoredFile(path, len(index), checksum(index))


def _groups(row: Any) -> tuple[RowGroup, ...]:
    return tuple(pickle.loads(row["groups"]))


def _delete_leftovers(store: Store, directory: str, published: set[str]) -> None:
    for path, *_ in store.list(directory):
        if path not in published:
            store.delete(path)
