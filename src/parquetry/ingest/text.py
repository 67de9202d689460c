"""CSV and JSON as typed frames: every text becomes exactly the value it spells, or stops the ingest.

Spark's own readers round decimals, ignore unknown fields and read a quoted line break as two rows. So they give text
here, and the texts are turned into values by casts that are checked.
"""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry.errors import DataError
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_nested
from parquetry.spark import exact_path
from parquetry.storage.failure import SHOWN_COLUMNS, in_python, in_task, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
_SCAN_BYTES = 8 << 20
_BROKEN, _FILE = "__broken", "__file"
_EMPTY = "\ue000empty"  # stands for a quoted empty text while Spark reads: it would make it null
_DAY = r"\d{4,}-\d{1,2}-\d{1,2}"
_TIME = rf"{_DAY}([ T]\d{{1,2}}:\d{{1,2}}(:\d{{1,2}}(\.\d{{0,6}}0*)?)?"
_ZONE = r"\s*(Z|UTC|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/]+)?"
# Spark's casts take more than is meant: they drop the time of a date, the zone of a zoneless time, and digits.
_SPELLED = {"date": _DAY, "timestamp": rf"{_TIME}{_ZONE})?", "timestamp_ntz": rf"{_TIME})?"}


def read_csv(spark: SparkSession, files: Sequence[str], schema: TableSchema, table: str) -> DataFrame:
    """CSV files with one header line each, quoted as in RFC 4180; an unquoted empty field is null."""
    from pyspark.sql import functions as F

    header = _csv_header(files[0])
    columns = [_known_column(name, f"of {files[0]}", schema, table) for name in header]
    for column in columns:
        if columns.count(column) > 1:
            raise DataError(f"column '{column.name}' appears twice in {files[0]}", table=table, column=column.name)
        if is_nested(column.arrow):
            raise DataError(
                f"column '{column.name}' is {column.type}, which CSV cannot hold; use JSON or Parquet",
                table=table,
                column=column.name,
            )
    for other in files[1:]:
        if _csv_header(other) != header:
            raise DataError(f"{other} has another header line than {files[0]}; ingest it by itself", table=table)
    quoted = [_has_quotes(f) for f in files]
    names = [f"c{i}" for i in range(len(columns))]
    reader = (
        spark.read.schema(", ".join(f"{n} string" for n in [*names, _BROKEN]))
        .option("header", True)
        .option("columnNameOfCorruptRecord", _BROKEN)
        .option("escape", '"')
        .option("emptyValue", _EMPTY)
        # A quoted text may hold line breaks, so such a file cannot be cut into parts. Without quotes it can.
        .option("multiLine", any(quoted))
    )
    frame = reader.csv([exact_path(f) for f in files]).withColumn(_FILE, F.col("_metadata.file_name"))
    broken = F.col(_BROKEN).isNotNull()
    expected = f"{len(columns)} fields are expected"
    texts = [F.when(F.col(n) == _EMPTY, "").otherwise(F.col(n)) for n in names]
    message = F.concat(F.lit(f"broken row, {expected}; row "), shown(F.col(_BROKEN)), F.lit(" of "), F.col(_FILE))
    texts[0] = F.when(broken, in_task(message, "string")).otherwise(texts[0])
    row = _row(names, columns)
    return frame.select(*[_typed(t, c, row).alias(c.name) for t, c in zip(texts, columns, strict=True)])


def read_json(spark: SparkSession, files: Sequence[str], schema: TableSchema) -> DataFrame:
    """Files with one JSON object per line."""
    from pyspark.sql import functions as F

    lines = spark.read.text([exact_path(f) for f in files]).select("value", F.col("_metadata.file_name").alias(_FILE))
    fields = _JsonFields([c.name for c in schema.columns])
    shape = ", ".join(f"c{i} string" for i in range(len(schema.columns)))
    frame = lines.mapInArrow(lambda batches: fields(batches), f"{_FILE} string, {shape}")
    row = _row([f"c{i}" for i in range(len(schema.columns))], schema.columns)
    return frame.select(*[_typed(F.col(f"c{i}"), c, row).alias(c.name) for i, c in enumerate(schema.columns)])


class _JsonFields:
    """Takes lines apart into the texts of their fields; runs in a task."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._place = {name.lower(): i for i, name in enumerate(names)}
        shape = [pa.field(_FILE, pa.string()), *(pa.field(f"c{i}", pa.string()) for i in range(len(names)))]
        self._schema = pa.schema(shape)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = []
            # As bytes: Spark hands on what is no UTF-8 as it is.
            lines, files = batch.column(0).cast(pa.binary()).to_pylist(), batch.column(1).to_pylist()
            for line, file in zip(lines, files, strict=True):
                if line.strip():
                    rows.append((file, *self._fields(line, file)))
            if rows:
                arrays = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fields(self, line: bytes, file: str) -> list[str | None]:
        try:
            record = json.loads(line.decode(), parse_float=_Number, parse_int=_Number, parse_constant=_Number)
        except UnicodeDecodeError:
            raise in_python(f"broken row, it is not UTF-8; row {line[:200]!r} of {file}") from None
        except ValueError as e:
            reason = str(e).split(":")[0].lower()
            raise in_python(f"broken row, no JSON ({reason}); row {line.decode()[:200]} of {file}") from None
        if not isinstance(record, dict):
            raise in_python(f"broken row, each line is one JSON object; row {line.decode()[:200]} of {file}")
        found: list[str | None] = [None] * len(self._names)
        for name, value in record.items():
            place = self._place.get(name.lower())
            if place is None:
                known = ", ".join(self._names)
                raise in_python(f"unknown field '{name}', columns: {known}; row {line.decode()[:200]} of {file}")
            found[place] = None if value is None else value if isinstance(value, str) else _json_text(value)
        return found


class _Number(str):
    """A number as it was spelled, so that no digit is lost."""


def _json_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value)


def _typed(text: Any, column: Column, row: Any) -> Any:
    """The value that ``text`` spells in the column's type; another text stops the task."""
    from pyspark.sql import functions as F

    to = column.type
    if is_nested(column.arrow):
        return F.from_json(text, to, {"mode": "FAILFAST"})
    if to == "string":
        return text
    if to == "binary":
        return F.encode(text, "UTF-8")
    value = text.try_cast(to)
    doubts = [value.isNull()]
    spelled = _SPELLED.get(to)
    if to.startswith("decimal"):
        spelled = rf"[+-]?\d*(\.\d{{0,{column.arrow.scale}}}0*)?"
    if spelled is not None:
        doubts.append(~text.rlike(rf"^\s*{spelled}\s*$"))
    if to in ("float", "double"):
        doubts.append((F.abs(value) == float("inf")) & ~F.lower(text).contains("inf"))
    wrong = F.lit(f"' does not fit column '{column.name}' of type {to}; row ")
    message = F.concat(F.lit("value '"), shown(text), wrong, row, F.lit(" of "), F.col(_FILE))
    return F.when(text.isNotNull() & reduce(or_, doubts), in_task(message, to)).otherwise(value)


def _row(names: Sequence[str], columns: Sequence[Column]) -> Any:
    """The texts of a row as messages show them."""
    from pyspark.sql import functions as F

    fields = [F.col(n).alias(c.name) for n, c in zip(names, columns, strict=True)]
    return shown(F.to_json(F.struct(*fields[:SHOWN_COLUMNS]), {"ignoreNullFields": "false"}))


def _known_column(name: str, where: str, schema: TableSchema, table: str) -> Column:
    for c in schema.columns:
        if c.name.lower() == name.lower():
            return c
    known = ", ".join(schema.names)
    raise DataError(f"column '{name}' {where} is not in table '{table}'; columns: {known}", table=table, column=name)


def _csv_header(path: str) -> list[str]:
    if "://" in path or path.lower().endswith(COMPRESSED):
        raise DataError(f"{path}: CSV files are read uncompressed from a local path; unpack or copy it first")
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as f:
        header = next(csv.reader(f), None)
    if not header:
        raise DataError(f"{path} is empty; a CSV file starts with a line of column names")
    return header


def _has_quotes(path: str) -> bool:
    """Whether the file quotes anything. Refuses what Spark would read without complaint and wrongly."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    quotes = done = 0
    with open(path, "rb") as f:
        while piece := f.read(_SCAN_BYTES):
            try:
                decoder.decode(piece, final=len(piece) < _SCAN_BYTES)
            except UnicodeDecodeError as e:
                raise DataError(f"{path} is not UTF-8 at about byte {done + e.start}; convert it first") from None
            quotes += piece.count(b'"')
            done += len(piece)
    if quotes % 2:
        raise DataError(f"{path} has a quote that is never closed; double the quotes inside of quoted texts")
    return quotes > 0
