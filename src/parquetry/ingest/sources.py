"""Whatever a user hands in: paths (Parquet, CSV, JSON), rows, Spark, pandas, polars and Arrow frames."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from parquetry.errors import DataError
from parquetry.ingest.text import COMPRESSED, read_csv, read_json
from parquetry.model.schema import TableSchema
from parquetry.model.types import arrow_type, is_nested, type_name
from parquetry.spark import active_session_kept, exact_path, private_session
from parquetry.storage.spark_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
TASK_BYTES = 64 << 20  # compressed input that one write task takes on
_PLAIN = {
    ("BOOLEAN", "NONE", "NONE"): "boolean",
    ("INT32", "NONE", "NONE"): "int",
    ("INT64", "NONE", "NONE"): "bigint",
    ("INT32", "INT", "INT_32"): "int",
    ("INT64", "INT", "INT_64"): "bigint",
    ("INT32", "DATE", "DATE"): "date",
    ("FLOAT", "NONE", "NONE"): "float",
    ("DOUBLE", "NONE", "NONE"): "double",
    ("BYTE_ARRAY", "STRING", "UTF8"): "string",
}  # by physical, logical and converted type
_UNKNOWN_BYTES = 1 << 40  # Spark answers with a huge number when it does not know


def check_source(source: Any, table: str) -> None:
    """Raises DataError for what is no source at all, and for files that are missing, of unknown format or visibly
    broken: all that can be told before Spark starts."""
    if _kind_of(source, table) == "paths":
        for f in (f for p in _listed(source) for f in _expand(p)):
            if _format_of(f) == "parquet":
                _check_parquet(f)


@dataclass(frozen=True)
class Files:
    """The files of a batch, all of one format."""

    format: str
    paths: tuple[str, ...]
    shape: str | None = None
    """The columns of Parquet files, in Spark's SQL, where they are the same and plain to see."""


def taken_in(source: Any, schema: TableSchema, table: str) -> pa.Table | Files | DataFrame:
    """The source as one of three: Arrow rows in Spark's types, files, or a Spark frame.

    Of files only footers are read."""
    match _kind_of(source, table):
        case "paths":
            return _listed_files(_listed(source), table)
        case "rows":
            source = _from_rows(source, schema, table)
        case "spark":
            return source
        case "pandas":
            try:
                source = pa.Table.from_pandas(source, preserve_index=False)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
                raise DataError(f"this pandas frame has a column of mixed types: {str(e).splitlines()[0]}") from e
        case "polars":
            source = (source.collect() if hasattr(source, "collect") else source).to_arrow()
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.RecordBatchReader):
        source = source.read_all()
    return in_sparks_types(source, schema)


def as_frame(spark: SparkSession, taken: pa.Table | Files | DataFrame, schema: TableSchema, table: str) -> DataFrame:
    """What was taken in as a lazy Spark frame with its own column types; nothing is read yet but file footers."""
    if isinstance(taken, Files):
        return _read_files(private_session(spark), taken, schema, table)
    if not isinstance(taken, pa.Table):
        return taken
    from pyspark.sql.pandas.types import from_arrow_schema

    with active_session_kept():
        structure = from_arrow_schema(taken.schema, prefer_timestamp_ntz=True)
        return private_session(spark).createDataFrame(taken, structure)


def _kind_of(source: Any, table: str) -> str:
    """What a source is: paths, rows, or a frame of spark, pandas, polars or arrow; a DataError for anything else."""
    name = type(source).__name__
    if isinstance(source, list | tuple):
        if not source:
            raise DataError(f"nothing to ingest into '{table}': no path and no row was given", table=table)
        kinds = {"rows" if isinstance(one, Mapping) else "paths" if _is_path(one) else "" for one in source}
        if len(kinds) == 1 and (kind := kinds.pop()):
            return kind
        name = f"{name} of {type(source[0]).__name__}"
    if _is_path(source):
        return "paths"
    if isinstance(source, pa.RecordBatch | pa.RecordBatchReader | pa.Table):
        return "arrow"
    module = type(source).__module__.split(".")[0]
    if (module, name) in _FRAMES:
        return _FRAMES[module, name]
    raise DataError(
        f"cannot ingest a {name}; give paths, a list of rows as dicts, or a Spark, pandas, polars or Arrow frame",
        table=table,
    )


_FRAMES = {
    ("pyspark", "DataFrame"): "spark",
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
    ("polars", "LazyFrame"): "polars",
}


def _is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike) and isinstance(os.fspath(source), str)


def _listed(source: Any) -> list[str]:
    return [os.fspath(p) for p in (source if isinstance(source, list | tuple) else [source])]


def _from_rows(rows: Sequence[Mapping[str, Any]], schema: TableSchema, table: str) -> pa.Table:
    """Rows as dicts; a name that a row lacks is null there. Values have their own types, nested ones the table's."""
    nested = {c.name.lower(): c.arrow for c in schema.columns if is_nested(c.arrow)}
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"a row has the name {name!r}; columns have texts as names", table=table)
        try:
            columns.append(pa.array([row.get(name) for row in rows], nested.get(name.lower())))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            why = (str(e).splitlines() or [type(e).__name__])[0]
            raise DataError(
                f"the values of column '{name}' do not fit together: {why}", table=table, column=name
            ) from e
    return pa.table(columns, names=names)


def in_sparks_types(table: pa.Table, schema: TableSchema) -> pa.Table:
    """Each column in the Arrow type that is Spark's; what has none, or does not fit into it, is a DataError."""
    known = {c.name.lower(): c.arrow for c in schema.columns}
    fields = []
    for column, f in zip(table.columns, table.schema, strict=True):
        # A column of nulls only has no type of its own.
        target = known.get(f.name.lower(), pa.string()) if pa.types.is_null(f.type) else arrow_type(type_name(f.type))
        try:
            column.cast(target)
        except pa.ArrowInvalid as e:
            why = "nanoseconds, but Spark keeps microseconds: round it" if pa.types.is_timestamp(f.type) else str(e)
            raise DataError(f"column '{f.name}' holds {why.splitlines()[0]} before ingesting", column=f.name) from e
        fields.append(pa.field(f.name, target))
    return table.cast(pa.schema(fields))


def _listed_files(paths: Sequence[str], table: str) -> Files:
    files = tuple(f for p in paths for f in _expand(p))
    kinds = {_format_of(f) for f in files}
    if len(kinds) != 1:
        raise DataError(f"one ingest takes files of one format, not of {', '.join(sorted(kinds))}", table=table)
    kind = kinds.pop()
    shapes = {_check_parquet(f) for f in files} if kind == "parquet" else {None}
    return Files(kind, files, shapes.pop() if len(shapes) == 1 else None)


def _read_files(spark: SparkSession, files: Files, schema: TableSchema, table: str) -> DataFrame:
    if files.format == "csv":
        return read_csv(spark, files.paths, schema, table)
    if files.format == "json":
        return read_json(spark, files.paths, schema)
    reader = spark.read.option("mergeSchema", "true" if len(files.paths) > 1 else "false")
    if files.shape is not None:
        reader = reader.schema(files.shape)  # else Spark runs a job to find it
    return reader.parquet(*map(exact_path, files.paths))


def _expand(path: str) -> list[str]:
    if "://" in path:
        return [path]
    if os.path.isdir(path):
        found = sorted(
            os.path.join(folder, f) for folder, _, names in os.walk(path) for f in names if not f.startswith((".", "_"))
        )
    else:
        matched = sorted(glob.glob(path)) if glob.has_magic(path) and not os.path.exists(path) else [path]
        found = [f for m in matched for f in (_expand(m) if os.path.isdir(m) else [m])]
    if not found:
        raise DataError(f"no files at {path}; check the path")
    for f in found:
        if not os.path.exists(f):
            raise DataError(f"no such file: {f}; check the path")
    return [os.path.abspath(f) for f in found]


def _format_of(path: str) -> str:
    name = path.lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending) if not name.endswith(".snappy.parquet") else name
    kind = FORMATS.get(os.path.splitext(name)[1])
    if kind is None:
        raise DataError(f"cannot tell the format of {path}; name it .parquet, .csv or .json")
    return kind


def _check_parquet(path: str) -> str | None:
    """Raises DataError for a local file that is visibly broken; else its columns, see :func:`_shape`."""
    if "://" in path:
        return None
    try:
        return _shape(pq.read_metadata(path).schema)
    except (pa.ArrowInvalid, OSError) as e:
        reason = "is empty (0 bytes)" if os.path.getsize(path) == 0 else "is truncated or not Parquet"
        raise DataError(f"{path} {reason}; write it again, then ingest with the same label") from e


def _shape(schema: pq.ParquetSchema) -> str | None:
    """The columns as Spark would find them, in its SQL; None where that is not plain to see."""
    columns = [schema.column(i) for i in range(len(schema))]
    types = [_PLAIN.get((c.physical_type, c.logical_type.type, c.converted_type)) for c in columns]
    for i, c in enumerate(columns):
        if c.logical_type.type == "DECIMAL":
            types[i] = f"decimal({c.precision},{c.scale})"
    flat = all(c.max_repetition_level == 0 and c.max_definition_level <= 1 and c.path == c.name for c in columns)
    one_each = len({c.name.lower() for c in columns}) == len(columns)
    if not (flat and one_each and columns and all(types)):
        return None
    return ", ".join(f"{quote(c.name)} {t}" for c, t in zip(columns, types, strict=True))


def write_tasks(frame: DataFrame, wanted: int | None) -> int:
    """How many tasks sort and write: the caller's number, or by Spark's estimate of the input's size (NA-16)."""
    if wanted is not None:
        return max(1, wanted)
    estimate = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    cores = frame.sparkSession.sparkContext.defaultParallelism
    if estimate >= _UNKNOWN_BYTES:
        return 2 * cores
    tasks = -(-estimate // TASK_BYTES)
    return 1 if tasks <= 1 else max(tasks, cores)
