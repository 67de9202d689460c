"""A large batch of Parquet files, written by tasks that read it themselves: no row goes through the JVM.

Each task takes some row groups, fits their rows to the table as a small batch is fitted, and writes them as a sorted
run. Runs that do not overlap are the delta; others are merged part by part, as a compaction merges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parquetry.ingest.here import fitted_here, plain_parquet, plain_rows
from parquetry.ingest.sources import TASK_BYTES, Files
from parquetry.layouts.routing.route import in_blocks
from parquetry.layouts.write_rows import routes_here, write_rows
from parquetry.model.delta import Delta
from parquetry.model.state import TableState
from parquetry.model.types import is_nested
from parquetry.splits.merged_runs import cut_runs, in_order
from parquetry.storage.delta_writer import DeltaJob, RowsInParts, Written, finish_delta, index_of, write_files
from parquetry.storage.kept import KeptFile
from parquetry.storage.merge import BLOCK, ORDER
from parquetry.storage.pieces import DIGEST
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_BYTES = 32 << 20  # of input: of less, a session of Spark's own is as soon done
_PART_ORDER = 1 << 40  # more rows than a part has

Group = tuple[str, int]
"""A file's path and the ordinal of a row group."""


@dataclass(frozen=True, eq=False)
class FittedParts:
    """Gives the rows of a part in the table's order, with their digests; sent to executors by pickling."""

    table: TableState
    parts: tuple[tuple[Group, ...], ...]

    def __call__(self, part: int) -> Iterator[pa.RecordBatch]:
        schema = self.table.schema
        more = [(ORDER, pa.int64())] if schema.keyed else []
        more += [(DIGEST, pa.int64())] + ([(BLOCK, pa.int32())] if self.table.layout is not None else [])
        arrow = pa.schema([*schema.arrow, *(pa.field(name, kind) for name, kind in more)])
        by = [*([BLOCK] if self.table.layout is not None else []), *schema.key, *([ORDER] if schema.keyed else [])]
        batches = (b for rows in self._fitted(part) for b in rows.select(arrow.names).cast(arrow).to_batches())
        yield from in_order(batches, arrow, by)

    def _fitted(self, part: int) -> Iterator[pa.Table]:
        first = part * _PART_ORDER
        for path, group in self.parts[part]:
            with pq.ParquetFile(path) as file:
                rows = plain_rows(file.read_row_group(group, use_threads=False), self.table.schema)
            fitted = fitted_here(rows, self.table.schema, self.table.name, rows.nbytes)
            if fitted is None:
                raise ValueError("only Spark can fit these rows")
            if ORDER in fitted.column_names:
                order = pa.array(np.arange(first, first + rows.num_rows))
                fitted = fitted.set_column(fitted.column_names.index(ORDER), ORDER, order)
            first += rows.num_rows
            yield in_blocks(fitted, self.table.layout)


def readable_in_parts(taken: object, table: TableState) -> bool:
    """Whether tasks can read the batch and fit it: plain Parquet files, and rows that need no Spark to be routed."""
    if (
        not isinstance(taken, Files)
        or not plain_parquet(taken)
        or any(is_nested(c.arrow) for c in table.schema.columns)
    ):
        return False
    return routes_here(table.layout) and not (table.layout is not None and table.layout.extra)


def write_in_parts(
    spark: SparkSession, store: Store, table: TableState, files: Files, delta_id: str, tasks: int | None
) -> Written | None:
    """The batch as one delta; None where Spark has to write it: the batch is small, or has rows that need Spark, or
    that no table can take, of which Spark tells more."""
    groups = [(path, g, size) for path in files.paths for g, size in enumerate(_group_sizes(path))]
    size = sum(s for *_, s in groups)
    if size < LEAST_BYTES:
        return None
    parts = _dealt(groups, tasks or max(spark.sparkContext.defaultParallelism, -(-size // TASK_BYTES)))
    reader = FittedParts(replace(table, deltas=()), parts)
    job = DeltaJob(table, delta_id, len(parts))
    try:
        made = write_files(RowsInParts(spark, len(parts), reader), store, job)
    except Exception:
        with suppress(Exception):
            store.delete_dir(job.directory)
        return None
    if _is_one_run(made.files, keyed=table.schema.keyed):
        return finish_delta(store, job, made.files, made.rows_in, made.digest)
    runs = [_as_delta(store, job, file) for file in made.files]
    merged = cut_runs(store, table, runs, len(parts))
    assert merged is not None, "they were routed alike"
    job = replace(job, expected_rows=sum(d.rows for d in runs))
    written = write_rows(RowsInParts(spark, len(merged.tasks), merged), store, job)
    return replace(written, rows_in=made.rows_in, digest=made.digest)


def _group_sizes(path: str) -> list[int]:
    footer = pq.read_metadata(path)
    groups = (footer.row_group(g) for g in range(footer.num_row_groups))
    return [sum(g.column(i).total_compressed_size for i in range(g.num_columns)) for g in groups]


def _dealt(groups: Sequence[tuple[str, int, int]], parts: int) -> tuple[tuple[Group, ...], ...]:
    """Row groups in their order, in so many parts of about the same size."""
    total, before = sum(size for *_, size in groups), 0
    found: list[list[Group]] = [[] for _ in range(parts)]
    for path, group, size in groups:
        found[min(parts - 1, (before + size // 2) * parts // max(1, total))].append((path, group))
        before += size
    return tuple(tuple(part) for part in found if part)


def _is_one_run(files: Sequence[KeptFile], *, keyed: bool) -> bool:
    """Whether the files, in some order, are one sorted run already: no two of them overlap."""
    ends = sorted((f.groups[0].starts[0], f.groups[-1].last) for f in files)
    return all(last < start or (last == start and not keyed) for (_, last), (start, _) in pairwise(ends))


def _as_delta(store: Store, job: DeltaJob, file: KeptFile) -> Delta:
    """A run that is to be merged, as the delta that it would be."""
    index = index_of(store, job, [file], f"{file.file.path}.pqx")
    table = job.table
    return Delta(
        file.file.path, table.table_id, 0, 0, 0, file.file.rows, file.file.bytes, table.schema_id, table.layout_id,
        index, (file.file,),
    )  # fmt: skip
