"""A scan as a Spark frame, from plain Parquet files and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry.model.schema import TableSchema
from parquetry.model.visible import visible_columns, visible_rows
from parquetry.spark import exact_path
from parquetry.storage.merge import ORDER, merge_frame
from parquetry.storage.scan.scan import TableScan
from parquetry.storage.spark_text import quote
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


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
    # Else a flipped bit in a page becomes another value without a word.
    reader = spark.read.schema(structure).option("parquet.page.verify-checksum.enabled", "true")
    if store.local:
        # Vectored reads are for object stores; Spark's counters of bytes read do not see them.
        reader = reader.option("parquet.hadoop.vectored.io.enabled", "false")
    return reader.parquet(*[exact_path(store.url(task.file.path)) for task in scan.tasks])


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
