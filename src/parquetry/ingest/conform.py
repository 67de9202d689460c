"""Fits a source frame to a table's schema, value by value: nothing is rounded, cut or nulled silently.

The checks are part of the same pass that sorts and writes. A value that does not fit raises inside the task with a
message that names column, row and value; the driver turns it into one DataError.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from parquetry.ingest.digest import hashed_columns
from parquetry.ingest.fit import Way, columns_given, is_counted, is_required, null_in, way_into
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_nested
from parquetry.storage.explain_failure import in_task, shown_row, unfit
from parquetry.storage.merge import ORDER
from parquetry.storage.pieces import DIGEST
from parquetry.storage.scan.spark import spark_schema
from parquetry.storage.spark_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def conform(frame: DataFrame, schema: TableSchema, table: str) -> DataFrame:
    """The table's columns in order and type, with ``__digest`` and, for keyed tables, ``__order``."""
    fields = frame.schema.fields
    by_name = {name: fields[i] for name, i in columns_given(frame.columns, schema, table).items()}
    row = shown_row([quote(f.name) for f in fields])
    wanted = spark_schema(schema)
    parts = [
        f"{_fitted(c, by_name.get(c.name.lower()), schema, table, row, wanted[c.name].dataType)} AS {quote(c.name)}"
        for c in schema.columns
    ]
    fitted = frame.selectExpr(*parts, *([f"monotonically_increasing_id() AS {ORDER}"] if schema.keyed else []))
    return fitted.selectExpr("*", f"xxhash64({', '.join(_hashed(schema, by_name.keys()))}) AS {DIGEST}")


def digest_of(fitted: DataFrame) -> tuple[int, str]:
    """(rows, digest) of a conformed frame, without writing it: to compare a batch with one ingested before."""
    from pyspark.sql import functions as F

    total = F.sum(F.col(DIGEST).cast("decimal(20,0)").cast("decimal(38,0)"))
    found = fitted.agg(F.count(F.lit(1)).alias("n"), total.alias("d")).collect()[0]
    return int(found["n"]), f"{int(found['d'] or 0) % (1 << 64):016x}"


def _fitted(column: Column, source: Any, schema: TableSchema, table: str, row: str, want: Any) -> str:
    if source is None:
        return "1L" if is_counted(column, schema) else f"CAST(NULL AS {column.type})"
    value = quote(source.name)
    if source.dataType != want:
        have = source.dataType.simpleString()
        value = _narrowed(value, have, way_into(have, want.simpleString(), column, table), column, row)
    if column.name in schema.key and column.type in ("float", "double"):
        one_nan = f"CASE WHEN isnan({value}) THEN {literal(float('nan'))} ELSE {value} + 0.0D END"
        value = f"CAST({one_nan} AS {column.type})"
    if is_required(column, schema):
        message = f"concat({literal(null_in(column, schema))}, {row})"
        value = f"CASE WHEN {value} IS NULL THEN {in_task(message, column.type)} ELSE {value} END"
    return value


def _narrowed(value: str, have: str, way: Way, column: Column, row: str) -> str:
    """``value`` in the column's type, every value exactly; what does not fit stops the task."""
    to = column.type
    if way is Way.NULL:
        return f"CAST(NULL AS {to})"
    if way is Way.UTC:
        return f"CAST(concat(CAST({value} AS STRING), 'Z') AS TIMESTAMP)"
    if way in (Way.WIDER, Way.SAME):
        return f"CAST({value} AS {to})"
    narrow = f"try_cast({value} AS {to})"
    if way is Way.NEAREST:
        kept = f"abs({narrow}) != double('inf') OR abs({value}) = double('inf')"
    else:
        kept = f"try_cast({narrow} AS {have}) <=> {value}"
    otherwise = in_task(unfit(value, column.name, to, row), to)
    return f"CASE WHEN {value} IS NULL OR ({kept}) THEN {narrow} ELSE {otherwise} END"


def _hashed(schema: TableSchema, given: Collection[str]) -> list[str]:
    """What a row's digest is made of, see :func:`hashed_columns`."""
    columns, masks = hashed_columns(schema, given)
    bits = [[f"CAST({quote(c.name)} IS NOT NULL AS BIGINT) * {bit}L" for c, bit in mask] for mask in masks]
    return [_hashable(c) for c in columns] + [f"nullif({' + '.join(b)}, 0L)" for b in bits]


def _hashable(column: Column) -> str:
    value = quote(column.name)
    if not is_nested(column.arrow):
        return value
    # Nulls inside count too, and Spark does not hash maps.
    json = f"to_json(struct({value}), map('ignoreNullFields', 'false'))"
    return f"CASE WHEN {value} IS NOT NULL THEN {json} END"
