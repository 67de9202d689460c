"""Fits a source frame to a table's schema, value by value: nothing is rounded, cut or nulled silently.

The checks are part of the same pass that sorts and writes. A value that does not fit raises inside the task with a
message that names column, row and value; the driver turns it into one DataError.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from parquetry.errors import DataError
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_nested
from parquetry.storage.failure import SHOWN_COLUMNS, in_task, shown
from parquetry.storage.frames import spark_schema
from parquetry.storage.merge import ORDER
from parquetry.storage.pieces import DIGEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXACT = ("tinyint", "smallint", "int", "bigint", "decimal")
_MASK_BITS = 62  # of a bigint, so that adding bits never overflows


def conform(frame: DataFrame, schema: TableSchema, table: str) -> DataFrame:
    """The table's columns in order and type, with ``__digest`` and, for keyed tables, ``__order``."""
    from pyspark.sql import functions as F

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
    first = F.struct(*[_col(f.name) for f in frame.schema.fields[:SHOWN_COLUMNS]])
    row = shown(F.to_json(first, {"ignoreNullFields": "false"}))
    parts = [_fitted(c, by_name.get(c.name.lower()), schema, table, row).alias(c.name) for c in schema.columns]
    fitted = frame.select(*parts, *([F.monotonically_increasing_id().alias(ORDER)] if schema.keyed else []))
    return fitted.withColumn(DIGEST, F.xxhash64(*_hashed(schema, by_name.keys())))


def digest_of(fitted: DataFrame) -> tuple[int, str]:
    """(rows, digest) of a conformed frame, without writing it: to compare a batch with one ingested before."""
    from pyspark.sql import functions as F

    total = F.sum(F.col(DIGEST).cast("decimal(20,0)").cast("decimal(38,0)"))
    found = fitted.agg(F.count(F.lit(1)).alias("n"), total.alias("d")).collect()[0]
    return int(found["n"]), f"{int(found['d'] or 0) % (1 << 64):016x}"


def _fitted(column: Column, source: Any, schema: TableSchema, table: str, row: Any) -> Any:
    from pyspark.sql import functions as F

    required = column.name in schema.key or not column.nullable
    if source is None:
        if schema.values.get(column.name) == "count":
            return F.lit(1).cast("bigint")  # every row counts one where the batch does not say otherwise
        if required:
            raise DataError(
                f"the batch has no column '{column.name}', which table '{table}' requires",
                table=table,
                column=column.name,
            )
        return F.lit(None).cast(column.type)
    value = _col(source.name)
    want = spark_schema(schema)[column.name].dataType
    if source.dataType != want:
        value = _narrowed(value, source.dataType, column, table, row, want)
    if column.name in schema.key and column.type in ("float", "double"):
        value = F.when(F.isnan(value), F.lit(float("nan")).cast(column.type)).otherwise(value + F.lit(0.0))
        value = value.cast(column.type)
    if required:
        what = "key" if column.name in schema.key else "required"
        message = F.concat(F.lit(f"null in {what} column '{column.name}'; row "), row)
        value = F.when(value.isNull(), in_task(message, column.type)).otherwise(value)
    return value


def _narrowed(value: Any, source: Any, column: Column, table: str, row: Any, want: Any) -> Any:
    """``value`` in the column's type, every value exactly; what does not fit is a DataError, now or in the task."""
    from pyspark.sql import functions as F

    have, to = source.simpleString(), column.type
    if have == "void":
        return F.lit(None).cast(want)
    if have == "float" and to == "double":
        return value.cast(want)
    if have == "timestamp_ntz" and to == "timestamp":
        return F.concat(value.cast("string"), F.lit("Z")).cast(want)  # a time without a zone is taken as UTC
    narrow = value.try_cast(want)
    kept: Any
    if have == "double" and to == "float":  # the nearest float, as if the file had been written with this type
        kept = (F.abs(narrow) != float("inf")) | (F.abs(value) == float("inf"))
    elif have.split("(")[0] in _EXACT and to.split("(")[0] in (*_EXACT, "float", "double"):
        kept = narrow.try_cast(source).eqNullSafe(value)
    elif _same_shape(have, want.simpleString()):
        return value.cast(want)
    else:
        raise DataError(
            f"column '{column.name}' is {have} but table '{table}' has {to}; cast it before ingesting",
            table=table,
            column=column.name,
        )
    message = F.concat(
        F.lit("value '"), shown(value), F.lit(f"' does not fit column '{column.name}' of type {to}; row "), row
    )
    return F.when(value.isNull() | kept, narrow).otherwise(in_task(message, to))


def _same_shape(have: str, want: str) -> bool:
    """Equal but for nullability, which is not part of the text, and char/varchar lengths."""
    return re.sub(r"(var)?char\(\d+\)", "string", have.lower()) == want.lower()


def _hashed(schema: TableSchema, given: Collection[str]) -> list[Any]:
    """What a row's digest is made of: the same for a batch that comes again after columns were added to the table."""
    from pyspark.sql import functions as F

    # A count that the batch left to be filled in is not part of its data.
    columns = [
        (i, c) for i, c in enumerate(schema.columns) if schema.values.get(c.name) != "count" or c.name.lower() in given
    ]
    # Spark's hash passes over nulls, which keeps it when columns are added, but (1, null) would be (null, 1).
    present: dict[int, Any] = {}
    for i, c in columns:
        if c.nullable and c.name not in schema.key:
            bit = _col(c.name).isNotNull().cast("bigint") * F.lit(1 << i % _MASK_BITS)
            word = i // _MASK_BITS
            present[word] = present[word] + bit if word in present else bit
    return [_hashable(c) for _, c in columns] + [F.nullif(bits, F.lit(0)) for bits in present.values()]


def _hashable(column: Column) -> Any:
    from pyspark.sql import functions as F

    value = _col(column.name)
    if not is_nested(column.arrow):
        return value
    # Nulls inside count too, and Spark does not hash maps.
    return F.when(value.isNotNull(), F.to_json(F.struct(value), {"ignoreNullFields": "false"}))


def _col(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")
