"""Fits a source frame to a table's schema, value by value: nothing is rounded, cut or nulled silently.

The checks are part of the same pass that sorts and writes. A value that does not fit raises inside the task with a
message that names column, row and value; the driver turns it into one DataError.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from parquetry.errors import DataError
from parquetry.ingest.digest import hashed_columns
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_nested
from parquetry.storage.explain_failure import in_task, shown_row, unfit
from parquetry.storage.merge import ORDER
from parquetry.storage.pieces import DIGEST
from parquetry.storage.scan.spark import spark_schema
from parquetry.storage.spark_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXACT = ("tinyint", "smallint", "int", "bigint", "decimal")


def conform(frame: DataFrame, schema: TableSchema, table: str) -> DataFrame:
    """The table's columns in order and type, with ``__digest`` and, for keyed tables, ``__order``."""
    by_name = {f.name.lower(): f for f in frame.schema.fields}
    for f in frame.schema.fields:
        if by_name[f.name.lower()] is not f:
            raise DataError(f"the batch has two columns '{f.name}' (names are compared without case)", table=table)
    known = {n.lower() for n in schema.names}
    for name, f in by_name.items():
        if name not in known:
            columns = ", ".join(schema.names)
            raise DataError(
                f"column '{f.name}' is not in table '{table}'; columns: {columns}", table=table, column=f.name
            )
    row = shown_row([quote(f.name) for f in frame.schema.fields])
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
    required = column.name in schema.key or not column.nullable
    if source is None:
        if schema.values.get(column.name) == "count":
            return "1L"  # every row counts one where the batch does not say otherwise
        if required:
            raise DataError(
                f"the batch has no column '{column.name}', which table '{table}' requires",
                table=table,
                column=column.name,
            )
        return f"CAST(NULL AS {column.type})"
    value = quote(source.name)
    if source.dataType != want:
        value = _narrowed(value, source.dataType, column, table, row, want)
    if column.name in schema.key and column.type in ("float", "double"):
        one_nan = f"CASE WHEN isnan({value}) THEN {literal(float('nan'))} ELSE {value} + 0.0D END"
        value = f"CAST({one_nan} AS {column.type})"
    if required:
        what = "key" if column.name in schema.key else "required"
        missing = literal(f"null in {what} column '{column.name}'; row ")
        message = f"concat({missing}, {row})"
        value = f"CASE WHEN {value} IS NULL THEN {in_task(message, column.type)} ELSE {value} END"
    return value


def _narrowed(value: str, source: Any, column: Column, table: str, row: str, want: Any) -> str:
    """``value`` in the column's type, every value exactly; what does not fit is a DataError, now or in the task."""
    have, to = source.simpleString(), column.type
    if have == "void":
        return f"CAST(NULL AS {to})"
    if have == "float" and to == "double":
        return f"CAST({value} AS DOUBLE)"
    if have == "timestamp_ntz" and to == "timestamp":
        return f"CAST(concat(CAST({value} AS STRING), 'Z') AS TIMESTAMP)"  # a time without a zone is taken as UTC
    narrow = f"try_cast({value} AS {to})"
    if have == "double" and to == "float":  # the nearest float, as if the file had been written with this type
        kept = f"abs({narrow}) != double('inf') OR abs({value}) = double('inf')"
    elif have.split("(")[0] in _EXACT and to.split("(")[0] in (*_EXACT, "float", "double"):
        kept = f"try_cast({narrow} AS {have}) <=> {value}"
    elif _same_shape(have, want.simpleString()):
        return f"CAST({value} AS {to})"
    else:
        raise DataError(
            f"column '{column.name}' is {have} but table '{table}' has {to}; cast it before ingesting",
            table=table,
            column=column.name,
        )
    otherwise = in_task(unfit(value, column.name, to, row), to)
    return f"CASE WHEN {value} IS NULL OR ({kept}) THEN {narrow} ELSE {otherwise} END"


def _same_shape(have: str, want: str) -> bool:
    """Equal but for nullability, which is not part of the text, and char/varchar lengths."""
    return re.sub(r"(var)?char\(\d+\)", "string", have.lower()) == want.lower()


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
