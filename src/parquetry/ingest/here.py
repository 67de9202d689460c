"""A small batch fitted to its table in the process: no Spark job, and no JVM if none is running.

Every rule is that of :mod:`parquetry.ingest.conform`. What does not fit plainly is left to Spark, which says why.
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parquetry.ingest.digest import row_digests
from parquetry.ingest.plain_text import plain_csv, plain_json
from parquetry.ingest.sources import Files, in_sparks_types
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_float, is_nested
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
    given = {name.lower(): i for i, name in enumerate(rows.column_names)}
    if len(given) < rows.num_columns or not given.keys() <= {n.lower() for n in schema.names}:
        return None
    columns = []
    for c in schema.columns:
        place = given.get(c.name.lower())
        column = _absent(c, schema, rows.num_rows) if place is None else _fitted(rows.column(place), c, schema)
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
    if files.shape is None:
        return None
    footers = [pq.read_metadata(path) for path in files.paths]
    encoded = sum(f.row_group(i).total_byte_size for f in footers for i in range(f.num_row_groups))
    values = sum(f.num_rows * f.num_columns for f in footers)
    if max(encoded, 4 * values) > most_bytes:  # equal values take next to nothing in a file
        return None
    if any(key.startswith(_LEGACY) for f in footers for key in f.metadata or ()):
        return None
    try:
        parts = [pq.ParquetFile(path).read(use_threads=False) for path in files.paths]
        return in_sparks_types(pa.concat_tables([p.replace_schema_metadata() for p in parts]), schema)
    except (pa.ArrowException, OSError):
        return None


def _absent(column: Column, schema: TableSchema, rows: int) -> pa.Array | None:
    if schema.values.get(column.name) == "count":
        return pa.repeat(pa.scalar(1, column.arrow), rows)
    return None if _required(column, schema) else pa.nulls(rows, column.arrow)


def _fitted(values: pa.ChunkedArray, column: Column, schema: TableSchema) -> pa.ChunkedArray | None:
    if _required(column, schema) and values.null_count:
        return None
    narrowed = _narrowed(values, column.arrow)
    if narrowed is None or not is_float(column.arrow) or column.name not in schema.key:
        return narrowed
    # Of keys that are equal only one is stored: one zero, one NaN.
    plain = narrowed.combine_chunks().to_numpy(zero_copy_only=False)
    plain = plain + plain.dtype.type(0)
    return pa.chunked_array([pa.array(np.where(np.isnan(plain), np.nan, plain).astype(plain.dtype))])


def _required(column: Column, schema: TableSchema) -> bool:
    return column.name in schema.key or not column.nullable


def _narrowed(values: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray | None:
    """Every value exactly in the column's type, or None."""
    have, t = values.type, pa.types
    if have == to:
        return values
    if t.is_timestamp(have) and t.is_timestamp(to):
        return pc.assume_timezone(values, "UTC") if have.tz is None and to.tz else None
    if t.is_float32(have) and t.is_float64(to):
        return values.cast(to)
    if t.is_float64(have) and t.is_float32(to):
        made = values.cast(to)
        return None if pc.any(pc.not_equal(pc.is_inf(made), pc.is_inf(values))).as_py() else made
    exact = t.is_integer(to) or t.is_decimal(to) or (is_float(to) and t.is_integer(have))
    if not exact or not (t.is_integer(have) or t.is_decimal(have)):
        return None
    try:
        widest = values.cast(pa.decimal128(38, to.scale)) if t.is_decimal(to) else values
        return widest.cast(to)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
