"""A scan as a Spark frame, from plain Parquet files and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from parquetry.model.schema import TableSchema
from parquetry.model.visible import visible_columns, visible_rows
from parquetry.spark import exact_path
from parquetry.storage.merge import ORDER, merge_frame
from parquetry.storage.row_group_numbers import ROW_GROUP, row_group_number
from parquetry.storage.scan.scan import KeptGroups, TableScan
from parquetry.storage.spark_text import quote
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NEARLY_ALL = 0.95  # of the rows in the files: to read them all is sooner done than to pick
_MOST_RANGES = 128  # of numbers of row groups in a filter, which Spark asks of every row
_PAGE_ROWS = 20_000  # of a page: a row group with fewer is one page
_TASK_BYTES = 2 << 20  # read by a task, at least
_MOST_TASK_BYTES = 128 << 20  # Spark's default
_DEFAULTS = {"spark.sql.files.minPartitionNum": None, "spark.sql.files.maxPartitionBytes": "134217728b"}


def deal_out(session: SparkSession, scans: Sequence[TableScan]) -> None:
    """Sets for how many tasks Spark cuts files up: by what is read of them, since every task reads a file's footer.

    Only where the user has not said so.
    """
    kept = [scan.kept for scan in scans if scan.kept is not None and scan.tasks]
    read, stored = sum(k.bytes for k in kept), sum(t.file.bytes for scan in scans for t in scan.tasks)
    if len(kept) < len(scans) or not read or read > _NEARLY_ALL * stored:
        return
    cores = session.sparkContext.defaultParallelism
    for name, value in (
        ("spark.sql.files.minPartitionNum", max(1, min(cores, read // _TASK_BYTES))),
        ("spark.sql.files.maxPartitionBytes", stored * _MOST_TASK_BYTES // read),
    ):
        if session.conf.get(name, None) == _DEFAULTS[name]:
            session.conf.set(name, str(value))


def spark_schema(schema: TableSchema) -> StructType:
    """The table's columns as Spark's type, all nullable: old files may lack columns that came later."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    translated = from_arrow_schema(schema.arrow, prefer_timestamp_ntz=True)
    return StructType([StructField(f.name, f.dataType, True) for f in translated])


def stored_rows(spark: SparkSession, store: Store, scan: TableScan) -> DataFrame:
    """All stored rows, unmerged; for keyed tables with ``__order``, the delta's place in time."""
    frame = _read(spark, store, scan)
    return _with_order(frame, scan) if scan.table.schema.keyed else frame


def table_rows(
    spark: SparkSession, store: Store, scan: TableScan, only: Callable[[DataFrame], DataFrame] = lambda rows: rows
) -> DataFrame:
    """The rows as a query sees them: equal keys merged, of a view groups without rows left out and averages divided.

    ``only`` takes some of the stored rows, all versions of a key or none.
    """
    frame = _read(spark, store, scan)
    frame = merge_frame(only(_with_order(frame, scan)), scan.table.schema) if scan.merge else only(frame)
    if scan.table.view is None:
        return frame
    spec = scan.table.view.spec
    there = visible_rows(spec, quote)
    frame = frame.where(there) if there else frame
    return frame.selectExpr(*visible_columns(spec, quote, duck=False)) if scan.visible else frame


def sample_rows(
    spark: SparkSession,
    store: Store,
    scan: TableScan,
    columns: Sequence[str],
    *,
    rate: float,
    where: str = "",
    seed: int = 0,
) -> pa.Table:
    """About this share of the stored rows, drawn on the executors: all that the driver ever sees of the data."""
    frame = _read(spark, store, scan)
    frame = (frame.where(where) if where else frame).selectExpr(*map(quote, columns))
    frame = frame.sample(fraction=rate, seed=seed) if rate < 1 else frame
    schema = scan.table.schema
    return frame.toArrow().cast(pa.schema([pa.field(c, schema.column(c).arrow) for c in columns]))


def _read(spark: SparkSession, store: Store, scan: TableScan) -> DataFrame:
    structure = spark_schema(scan.table.schema)
    if not scan.tasks:
        return spark.createDataFrame([], structure)
    from pyspark.sql.types import LongType

    picked = _picked(scan)
    if picked:
        structure = structure.add(ROW_GROUP, LongType())
    # Else a flipped bit in a page becomes another value without a word.
    reader = spark.read.schema(structure).option("parquet.page.verify-checksum.enabled", "true")
    if store.local:
        # Vectored reads are for object stores; Spark's counters of bytes read do not see them.
        reader = reader.option("parquet.hadoop.vectored.io.enabled", "false")
    if picked:
        # The index has told what is needed: to ask every dictionary, and pages of small row groups, is to read more.
        reader = reader.option("parquet.filter.dictionary.enabled", "false")
        pages = scan.kept is not None and scan.kept.rows > _PAGE_ROWS * np.count_nonzero(scan.kept.keep)
        reader = reader.option("parquet.filter.columnindex.enabled", str(pages).lower())
    frame = reader.parquet(*[exact_path(store.url(task.file.path)) for task in scan.tasks])
    return frame.where(picked).drop(ROW_GROUP) if picked else frame


def rows_to_read(kept: KeptGroups | None, *, pick: bool) -> int:
    """The rows that Spark reads of the files, if these have numbers of row groups; ``pick``: it goes by them."""
    if kept is None:
        return 0
    return kept.rows if pick and _picks(kept) else kept.rows_in_files


def _picks(kept: KeptGroups) -> bool:
    return kept.rows <= _NEARLY_ALL * kept.rows_in_files and len(kept.row_groups()) <= _MOST_RANGES


def _picked(scan: TableScan) -> str:
    """The filter by which Spark's own reader skips the row groups that a proof has ruled out; empty where it would
    save little. A file of an earlier version has no numbers, and is read whole."""
    kept = scan.kept
    if kept is None or not _picks(kept):
        return ""
    numbers = sorted(row_group_number(path, g) for path, groups in kept.row_groups().items() for g in groups)
    ranges = [f"{ROW_GROUP} BETWEEN {a}L AND {b}L" for a, b in _ranges(numbers)]
    return _any_of([*ranges, f"{ROW_GROUP} IS NULL"])


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges with all of the numbers: not too many, so the smallest gaps are filled, which lie inside files."""
    at = np.array(numbers)
    gaps = np.diff(at)
    least = 1
    if np.count_nonzero(gaps > 1) >= _MOST_RANGES:
        least = int(np.sort(gaps)[-_MOST_RANGES])
    ends = np.flatnonzero(gaps > least)
    return list(zip(at[[0, *(ends + 1)]].tolist(), at[[*ends, len(at) - 1]].tolist(), strict=True))


def _any_of(conditions: Sequence[str]) -> str:
    """A chain of OR as a balanced tree: Spark and Parquet go through one by recursion."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return f"({_any_of(conditions[:half])}) OR ({_any_of(conditions[half:])})"


def _with_order(frame: DataFrame, scan: TableScan) -> DataFrame:
    # A folder's files belong to one delta: the one it is named by, or the one that took them over.
    places = {task.file.path.rsplit("/", 2)[-2]: task.place for task in scan.tasks}
    if len(set(places.values())) <= 1:
        return frame.selectExpr("*", f"0L AS {ORDER}")
    from pyspark.sql import functions as F

    folder: Any = F.regexp_extract(F.col("_metadata.file_path"), "/([^/]+)/[^/]+$", 1)
    listed = ", ".join(f"'{name}', {place}L" for name, place in places.items())
    return frame.withColumn("__delta", folder).selectExpr(
        *map(quote, scan.table.schema.names), f"element_at(map({listed}), __delta) AS {ORDER}"
    )
