"""CSV and JSON as typed frames: every text becomes exactly the value it spells, or stops the ingest.

Spark's own readers round decimals, ignore unknown fields and read a quoted line break as two rows. So they give text
here, and the texts are turned into values by casts that are checked.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquetry.errors import DataError
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_nested
from parquetry.spark import exact_path
from parquetry.storage.explain_failure import in_python, in_task, shown, shown_row, unfit
from parquetry.storage.spark_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
_SCAN_BYTES = 8 << 20
_BROKEN, FILE = "__broken", "__file"
_EMPTY = "\ue000empty"  # stands for a quoted empty text while Spark reads: it would make it null
_DAY = r"\d{4,}-\d{1,2}-\d{1,2}"
_TIME = rf"{_DAY}([ T]\d{{1,2}}:\d{{1,2}}(:\d{{1,2}}(\.\d{{0,6}}0*)?)?"
_ZONE = r"\s*(Z|UTC|[+-]\d{1,2}(:?\d{2})?|[A-Za-z]+/[A-Za-z_/]+)?"
# Spark's casts take more than is meant: they drop the time of a date, the zone of a zoneless time, and digits.
SPELLED = {"date": _DAY, "timestamp": rf"{_TIME}{_ZONE})?", "timestamp_ntz": rf"{_TIME})?"}


def csv_columns(files: Sequence[str], schema: TableSchema, table: str) -> list[Column]:
    """The columns that the files' header lines name."""
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
    return columns


def read_csv(spark: SparkSession, files: Sequence[str], schema: TableSchema, table: str) -> DataFrame:
    """CSV files with one header line each, quoted as in RFC 4180; an unquoted empty field is null."""
    columns = csv_columns(files, schema, table)
    quoted = [has_quotes(f) for f in files]
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
    frame = reader.csv([exact_path(f) for f in files]).selectExpr("*", f"_metadata.file_name AS {FILE}")
    empty = literal(_EMPTY)
    texts = [f"CASE WHEN {n} = {empty} THEN '' ELSE {n} END" for n in names]
    wrong = literal(f"broken row, {len(columns)} fields are expected; row ")
    message = f"concat({wrong}, {shown(_BROKEN)}, ' of ', {FILE})"
    texts[0] = f"CASE WHEN {_BROKEN} IS NOT NULL THEN {in_task(message, 'string')} ELSE {texts[0]} END"
    return _with_types(frame, texts, names, columns)


def read_json(spark: SparkSession, files: Sequence[str], schema: TableSchema) -> DataFrame:
    """Files with one JSON object per line."""
    lines = spark.read.text([exact_path(f) for f in files]).selectExpr("value", f"_metadata.file_name AS {FILE}")
    fields = _JsonFields([c.name for c in schema.columns])
    names = [f"c{i}" for i in range(len(schema.columns))]
    shape = ", ".join(f"{n} string" for n in names)
    frame = lines.mapInArrow(lambda batches: fields(batches), f"{FILE} string, {shape}")
    return _with_types(frame, names, names, schema.columns)


def json_lines(files: Sequence[str], schema: TableSchema) -> pa.Table | None:
    """The texts of the fields of every line of ``files`` and the line's file, read here; None where Spark has to."""
    fields = _JsonFields([c.name for c in schema.columns])
    batches: list[pa.RecordBatch] = []
    for file in files:
        with open(file, "rb") as f:
            data = f.read().replace(b"\r\n", b"\n")
        if b"\r" in data:
            return None  # which ends a line as well
        lines = [line for line in data.split(b"\n") if line.strip()]
        name = pa.repeat(os.path.basename(file), len(lines))
        batch = pa.record_batch([pa.array(lines, pa.binary()), name], names=["line", FILE])
        batches += fields(iter([batch]))
    return pa.Table.from_batches(batches, fields.schema)


class _JsonFields:
    """Takes lines apart into the texts of their fields; runs in a task."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._place = {name.lower(): i for i, name in enumerate(names)}
        shape = [pa.field(FILE, pa.string()), *(pa.field(f"c{i}", pa.string()) for i in range(len(names)))]
        self.schema = pa.schema(shape)

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
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

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


def _with_types(frame: DataFrame, texts: Sequence[str], names: Sequence[str], columns: Sequence[Column]) -> DataFrame:
    """The values that ``texts`` spell; ``names`` are those of the frame, for messages."""
    row = shown_row([f"{n} AS {quote(c.name)}" for n, c in zip(names, columns, strict=True)])
    typed = [f"{_typed(t, c, row)} AS {quote(c.name)}" for t, c in zip(texts, columns, strict=True)]
    return frame.selectExpr(*typed)


def _typed(text: str, column: Column, row: str) -> str:
    """The value that ``text`` spells in the column's type; another text stops the task."""
    to = column.type
    if is_nested(column.arrow):
        return f"from_json({text}, {literal(to)}, map('mode', 'FAILFAST'))"
    if to == "string":
        return text
    if to == "binary":
        return f"encode({text}, 'UTF-8')"
    message = f"concat({unfit(text, column.name, to, row)}, ' of ', {FILE})"
    return f"CASE WHEN {misspelt(text, column)} THEN {in_task(message, to)} ELSE try_cast({text} AS {to}) END"


def misspelt(text: str, column: Column) -> str:
    """SQL that is true where ``text`` spells no value of the column's type, which is flat and no text."""
    to = column.type
    value = f"try_cast({text} AS {to})"
    doubts = [f"{value} IS NULL"]
    spelled = SPELLED.get(to)
    if to.startswith("decimal"):
        spelled = rf"[+-]?\d*(\.\d{{0,{column.arrow.scale}}}0*)?"
    if spelled is not None:
        pattern = literal(rf"^\s*{spelled}\s*$")
        doubts.append(f"NOT {text} RLIKE {pattern}")
    if to in ("float", "double"):
        doubts.append(f"(abs({value}) = double('inf') AND NOT contains(lower({text}), 'inf'))")
    return f"{text} IS NOT NULL AND ({' OR '.join(doubts)})"


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


def has_quotes(path: str) -> bool:
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
