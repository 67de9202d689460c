"""A small batch fitted to its table in the process: no Spark job, and no JVM if none is running.

Every rule is that of :mod:`parquetry.ingest.conform`, and what does not fit is told in the same words. What cannot be
told here is left to Spark.
"""

from __future__ import annotations

import os
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parquetry.ingest.digest import row_digests
from parquetry.ingest.fit import Way, columns_given, is_counted, is_required, null_in, way_into
from parquetry.ingest.plain_text import plain_csv, plain_json
from parquetry.ingest.sources import Files, in_sparks_types
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_float, is_nested, type_name
from parquetry.storage.explain_failure import in_python, row_here, unfit_here
from parquetry.storage.merge import ORDER
from parquetry.storage.pieces import DIGEST

_LEGACY = b"org.apache.spark.legacy"  # days and times of files with such a mark mean others


def fitted_here(taken: pa.Table | Files, schema: TableSchema, table: str, most_bytes: int) -> pa.Table | None:
    """The batch as :func:`~parquetry.ingest.conform.conform` makes it; None where Spark has to, or it is too large."""
    if any(is_nested(c.arrow) for c in schema.columns):
        return None
    rows = _read(taken, schema, table, most_bytes) if isinstance(taken, Files) else taken
    if rows is None or rows.nbytes > most_bytes:
        return None
    given = columns_given(rows.column_names, schema, table)
    columns = []
    for c in schema.columns:
        place = given.get(c.name.lower())
        column = _absent(c, schema, rows.num_rows) if place is None else _fitted(rows, place, c, schema, table)
        if column is None:
            return None
        columns.append(column)
    fitted = pa.table(columns, schema=schema.arrow)
    digests = row_digests(fitted, schema, given)
    if schema.keyed:
        fitted = fitted.append_column(ORDER, pa.array(np.arange(rows.num_rows)))
    return fitted.append_column(DIGEST, digests)


def digest_here(fitted: pa.Table) -> tuple[int, str]:
    """(rows, digest) of a fitted batch: the sum of its rows' digests, whatever their order."""
    total = pc.sum(fitted.column(DIGEST).cast(pa.decimal128(38, 0))).as_py() or 0
    return fitted.num_rows, f"{int(total) % (1 << 64):016x}"


def _read(files: Files, schema: TableSchema, table: str, most_bytes: int) -> pa.Table | None:
    if any("://" in path for path in files.paths) or sum(map(os.path.getsize, files.paths)) > most_bytes:
        return None
    if files.format == "csv":
        return plain_csv(files.paths, schema, table)
    if files.format == "json":
        return plain_json(files.paths, schema)
    if not plain_parquet(files):
        return None
    footers = [pq.read_metadata(path) for path in files.paths]
    encoded = sum(f.row_group(i).total_byte_size for f in footers for i in range(f.num_row_groups))
    values = sum(f.num_rows * f.num_columns for f in footers)
    if max(encoded, 4 * values) > most_bytes:  # equal values take next to nothing in a file
        return None
    try:
        parts = [pq.ParquetFile(path).read(use_threads=False) for path in files.paths]
        return plain_rows(pa.concat_tables([p.replace_schema_metadata() for p in parts]), schema)
    except (pa.ArrowException, OSError):
        return None


def plain_parquet(files: Files) -> bool:
    """Whether Arrow reads of these files what Spark does: local ones of plain columns, with today's days and times."""
    if files.format != "parquet" or files.shape is None or any("://" in path for path in files.paths):
        return False
    return not any(key.startswith(_LEGACY) for path in files.paths for key in pq.read_metadata(path).metadata or ())


def plain_rows(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Rows of such files in Spark's types."""
    return in_sparks_types(rows.replace_schema_metadata(), schema)


def _absent(column: Column, schema: TableSchema, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(1, column.arrow), rows) if is_counted(column, schema) else pa.nulls(rows, column.arrow)


def _fitted(rows: pa.Table, place: int, column: Column, schema: TableSchema, table: str) -> pa.ChunkedArray | None:
    values = rows.column(place)
    way = way_into(type_name(values.type), type_name(column.arrow), column, table)
    narrowed = _narrowed(values, way, column.arrow)
    if narrowed is None:
        wrong = _first_misfit(values, way, column.arrow)
        value = values[wrong].as_py()
        if way is Way.EXACT and not _surely_unfit(value, column.arrow):
            return None
        raise in_python(unfit_here(value, column.name, column.type, _row(rows, wrong)))
    if values.null_count and is_required(column, schema):
        wrong = pc.index(pc.is_null(values), value=True).as_py()
        raise in_python(null_in(column, schema) + row_here(_row(rows, wrong)))
    if not is_float(column.arrow) or column.name not in schema.key:
        return narrowed
    # Of keys that are equal only one is stored: one zero, one NaN.
    plain = narrowed.combine_chunks().to_numpy(zero_copy_only=False)
    plain = plain + plain.dtype.type(0)
    return pa.chunked_array([pa.array(np.where(np.isnan(plain), np.nan, plain).astype(plain.dtype))])


def _narrowed(values: pa.ChunkedArray, way: Way, to: pa.DataType) -> pa.ChunkedArray | None:
    """Every value in the column's type, or None where one does not fit or Arrow cannot tell."""
    if way is Way.SAME:
        return values
    if way is Way.UTC:
        return pc.assume_timezone(values, "UTC")
    if pa.types.is_decimal(values.type) and is_float(to):
        return None
    try:
        if way is Way.EXACT and pa.types.is_decimal(to):
            values = values.cast(pa.decimal128(38, to.scale))
        made = values.cast(to)
    except pa.ArrowInvalid:
        return None
    if way is Way.NEAREST and pc.any(pc.not_equal(pc.is_inf(made), pc.is_inf(values))).as_py():
        return None
    return made


def _first_misfit(values: pa.ChunkedArray, way: Way, to: pa.DataType) -> int:
    """Where the first value stands that :func:`_narrowed` refuses."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _narrowed(values.slice(low, middle - low), way, to) is None else (middle, high)
    return low


def _surely_unfit(value: Any, to: pa.DataType) -> bool:
    """Whether a number is none of the type's; of floats and of what Arrow refuses without need Spark knows."""
    if value is None or is_float(to):
        return False
    number = Decimal(value)
    scale = to.scale if pa.types.is_decimal(to) else 0
    most = Decimal(10) ** (to.precision - scale) if pa.types.is_decimal(to) else Decimal(2) ** (to.bit_width - 1)
    with localcontext(prec=100):
        return number.scaleb(scale) % 1 != 0 or not -most <= number < most or (scale > 0 and abs(number) == most)


def _row(rows: pa.Table, place: int) -> dict[str, Any]:
    row: dict[str, Any] = rows.slice(place, 1).to_pylist()[0]
    return row
