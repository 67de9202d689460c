"""Fits a source frame to a table's schema, value by value: nothing is rounded, cut or nulled silently.

The checks are part of the same pass that sorts and writes. A value that does not fit raises inside the task with a
message that names column, row and value; the driver turns it into one DataError.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from parquetry.errors import DataError, ParquetryError, StorageError
from parquetry.model.schema import Column, TableSchema
from parquetry.storage.frames import spark_schema
from parquetry.storage.merge import ORDER
from parquetry.storage.writer import DIGEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_MARK = "PARQUETRY-DATA:"


def conform(frame: DataFrame, schema: TableSchema, table: str) -> DataFrame:
    """The table's columns in order and type, with ``__digest`` and, for keyed tables, ``__order``."""
    from pyspark.sql import functions as F

    by_name = {f.name.lower(): f for f in frame.schema.fields}
    known = {n.lower() for n in schema.names}
    for name, f in by_name.items():
        if name not in known:
            columns = ", ".join(schema.names)
            raise DataError(
                f"column '{f.name}' is not in table '{table}'; columns: {columns}", table=table, column=f.name
            )
    row = F.to_json(F.struct(*[_col(f.name) for f in frame.schema.fields[:8]]))
    parts = [_fitted(c, by_name.get(c.name.lower()), schema, table, row).alias(c.name) for c in schema.columns]
    fitted = frame.select(*parts, *([F.monotonically_increasing_id().alias(ORDER)] if schema.keyed else []))
    hashed = [_hashable(c) for c in schema.columns]
    return fitted.withColumn(DIGEST, F.xxhash64(*hashed))


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
    have = source.dataType.simpleString()
    value = _col(source.name)
    want = spark_schema(schema)[column.name].dataType
    if source.dataType != want:
        value = _narrowed(value, have, column, table, row, want)
    if column.name in schema.key and column.type in ("float", "double"):
        value = F.when(F.isnan(value), F.lit(float("nan")).cast(column.type)).otherwise(value + F.lit(0.0))
        value = value.cast(column.type)
    if required:
        what = "key" if column.name in schema.key else "required"
        value = F.when(value.isNull(), _bad(column.type, f"null in {what} column '{column.name}'", row)).otherwise(value)
    return value


def _narrowed(value: Any, have: str, column: Column, table: str, row: Any, want: Any) -> Any:
    """``value`` as the column's type where every value that fits is kept exactly; else a DataError, now or in the task."""
    from pyspark.sql import functions as F

    to = column.type
    if have == "void":
        return F.lit(None).cast(want)
    if have == "float" and to == "double":
        return value.cast(want)
    if have == "double" and to == "float":  # the nearest float, as when the file had been written with this type
        return value.cast(want)
    decimal_like = (*_WHOLE, "decimal")
    if have.split("(")[0] in decimal_like and to.split("(")[0] in decimal_like:
        narrow = value.try_cast(want)
        kept = narrow.isNotNull() & (narrow.cast("decimal(38,18)") == value.cast("decimal(38,18)"))
        if have in _WHOLE and to in _WHOLE and _WHOLE.index(have) <= _WHOLE.index(to):
            return value.cast(want)
        if have.startswith("decimal") and to.startswith("decimal"):
            kept = narrow.isNotNull() & (narrow == value)
        elif have.startswith("decimal") or to.startswith("decimal"):
            kept = narrow.isNotNull() & (narrow == value)
        else:
            kept = narrow.isNotNull()
        message = F.concat(
            F.lit(f"value "), value.cast("string"), F.lit(f" does not fit column '{column.name}' of type {to}")
        )
        return F.when(value.isNull() | kept, narrow).otherwise(_bad(to, message, row))
    if _same_shape(have, want.simpleString()):
        return value.cast(want)
    raise DataError(
        f"column '{column.name}' is {have} but table '{table}' has {to}; cast it before ingesting",
        table=table,
        column=column.name,
    )


def _same_shape(have: str, want: str) -> bool:
    """Equal but for nullability, which is not part of the text, and char/varchar lengths."""
    return re.sub(r"(var)?char\(\d+\)", "string", have.lower()) == want.lower()


def _bad(to: str, message: Any, row: Any) -> Any:
    from pyspark.sql import functions as F

    text = F.lit(message) if isinstance(message, str) else message
    return F.raise_error(F.concat(F.lit(_MARK), text, F.lit("; row "), F.coalesce(row, F.lit("?")))).cast(to)


def _hashable(column: Column) -> Any:
    from pyspark.sql import functions as F

    value = _col(column.name)
    return F.to_json(F.struct(value)) if "map<" in column.type else value


def _col(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def explain_failure(error: Exception, table: str) -> ParquetryError:
    """The one-line error for what a Spark job raised while it read, checked or wrote a batch."""
    text = str(error)
    marked = re.search(_MARK + r"(.*?)(?:\s+SQLSTATE|\n|$)", text)
    if marked:
        return DataError(f"table '{table}': {marked.group(1)}; nothing was written", table=table)
    if "No space left on device" in text or "ENOSPC" in text or "Errno 28" in text:
        return StorageError(
            f"no space left on the device while writing '{table}'; nothing was committed. "
            "Free some space and run the same command again"
        )
    malformed = re.search(r"\[(?:MALFORMED_RECORD|FAILED_READ_FILE)[^\]]*\]\s*(.*?)(?:\n|$)", text)
    record = re.search(r"record parsing:\s*(.*?)\.?\s*Parse Mode", text, re.S)
    if record:
        return DataError(f"table '{table}': broken row {record.group(1).strip()!r}; nothing was written", table=table)
    if malformed:
        return DataError(f"table '{table}': cannot read the input: {malformed.group(1)}; nothing was written", table=table)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return ParquetryError(f"writing '{table}' failed: {first[:300]}; nothing was committed")
