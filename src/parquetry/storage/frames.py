"""A table's deltas as one Spark frame, from plain Parquet files and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from parquetry.model.delta import Delta
from parquetry.model.schema import TableSchema
from parquetry.spark import exact_path
from parquetry.storage.merge import ORDER, merge_frame
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


def scan(
    spark: SparkSession, store: Store, schema: TableSchema, deltas: Sequence[Delta], keep: Collection[str] | None = None
) -> DataFrame:
    """All stored rows of ``deltas``, unmerged; for keyed tables with ``__order``, the delta's place in time.

    ``keep`` limits the scan to these file paths; without it every row comes once, extra blocks left out.
    """
    paths = _paths(store, deltas, keep)
    structure = spark_schema(schema)
    if not paths:
        frame = spark.createDataFrame([], structure)
        return frame.selectExpr("*", f"0L AS {ORDER}") if schema.keyed else frame
    frame = _read(spark, store, structure, paths)
    if not schema.keyed:
        return frame
    if len(deltas) == 1:
        return frame.selectExpr("*", f"0L AS {ORDER}")
    from pyspark.sql import functions as F

    # A folder's files belong to one delta: the one it is named by, or the one that took them over.
    folder: Any = F.regexp_extract(F.col("_metadata.file_path"), "/([^/]+)/[^/]+$", 1)
    folders = {f.path.rsplit("/", 2)[-2]: i for i, d in enumerate(deltas) for f in d.files}
    places = ", ".join(f"'{folder}', {i}L" for folder, i in folders.items())
    return frame.withColumn("__delta", folder).selectExpr(
        *[f"`{n.replace('`', '``')}`" for n in schema.names], f"element_at(map({places}), __delta) AS {ORDER}"
    )


def snapshot_frame(
    spark: SparkSession, store: Store, schema: TableSchema, deltas: Sequence[Delta], keep: Collection[str] | None = None
) -> DataFrame:
    """The table's rows as a reader sees them: equal keys merged. A single delta is merged already."""
    if not schema.keyed or len(deltas) <= 1:
        paths = _paths(store, deltas, keep)
        structure = spark_schema(schema)
        if not paths:
            return spark.createDataFrame([], structure)
        return _read(spark, store, structure, paths)
    return merge_frame(scan(spark, store, schema, deltas, keep), schema)


def _read(spark: SparkSession, store: Store, structure: StructType, paths: Sequence[str]) -> DataFrame:
    # Else a flipped bit in a page becomes another value without a word.
    reader = spark.read.schema(structure).option("parquet.page.verify-checksum.enabled", "true")
    if store.local:
        # Vectored reads are for object stores; Spark's counters of bytes read do not see them.
        reader = reader.option("parquet.hadoop.vectored.io.enabled", "false")
    return reader.parquet(*map(exact_path, paths))


def _paths(store: Store, deltas: Sequence[Delta], keep: Collection[str] | None) -> list[str]:
    return [store.url(f.path) for d in deltas for f in d.files if (not f.extra if keep is None else f.path in keep)]
