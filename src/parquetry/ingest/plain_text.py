"""CSV and JSON files of plain spellings as Arrow rows, without Spark.

Where a text is spelled in another way than most programs do, nothing is decided here: the batch is left to Spark,
whose casts are checked one by one (:mod:`parquetry.ingest.text`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from parquetry.ingest.text import COMPRESSED, csv_columns, json_lines
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_float, is_nested

_DAY = r"[1-9]\d{3}-\d{2}-\d{2}"
_INTEGER, _DECIMAL, _FLOAT = r"-?\d+", r"-?\d+(\.\d+)?", r"-?\d+(\.\d+)?([eE][-+]?\d+)?"
_TIME = rf"{_DAY}[ T]\d{{2}}:\d{{2}}:\d{{2}}(\.\d{{1,6}})?"
_QUOTED = re.compile(rb'(?:(?<=[,\n])|\A)"[^"]*(?:""[^"]*)*"(?=[,\r\n]|\Z)')
_ODD_LINES = re.compile(rb"\r(?!\n)|(?m:^[ \t\r]+$)")


def plain_csv(files: Sequence[str], schema: TableSchema, table: str) -> pa.Table | None:
    """The rows of CSV files; None where Spark has to read them."""
    columns = csv_columns(files, schema, table)
    read = csv.ReadOptions(use_threads=False, column_names=[c.name for c in columns], skip_rows=1)
    parse = csv.ParseOptions(newlines_in_values=True)
    convert = csv.ConvertOptions(
        column_types={c.name: pa.string() for c in columns},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parts = []
    for file in files:
        with open(file, "rb") as f:
            data = f.read()
        bare = _QUOTED.sub(b"", data) if b'"' in data else data
        if b'"' in bare or _ODD_LINES.search(bare) or b'"' in data.split(b"\n", 1)[0]:
            return None
        try:
            parts.append(csv.read_csv(pa.BufferReader(data), read, parse, convert))
        except pa.ArrowInvalid:
            return None
    return _values(pa.concat_tables(parts), columns)


def plain_json(files: Sequence[str], schema: TableSchema) -> pa.Table | None:
    """The rows of files with a JSON object per line; None where Spark has to read them."""
    if any(is_nested(c.arrow) for c in schema.columns) or any(f.lower().endswith(COMPRESSED) for f in files):
        return None
    try:
        return _values(json_lines(files, schema), schema.columns)
    except (OSError, ValueError, RecursionError):
        return None


def _values(texts: pa.Table, columns: Iterable[Column]) -> pa.Table | None:
    """What the texts spell, in the columns' types; None where that is not plain."""
    made = {}
    for c, text in zip(columns, texts.columns, strict=True):
        value = _value(text, c.arrow)
        if value is None:
            return None
        made[c.name] = value
    return pa.table(made)


def _value(text: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray | None:
    t = pa.types
    if t.is_string(to):
        return text
    if t.is_binary(to):
        return text.cast(to)
    spelled = (
        "true|false"
        if t.is_boolean(to)
        else _INTEGER
        if t.is_integer(to)
        else _FLOAT
        if is_float(to)
        else _DECIMAL
        if t.is_decimal(to)
        else _DAY
        if t.is_date(to)
        else _TIME
    )
    if not pc.all(pc.match_substring_regex(text, f"^({spelled})$")).as_py() and text.null_count < len(text):
        return None
    try:
        if t.is_timestamp(to):
            made = text.cast(pa.timestamp("us"))
            return pc.assume_timezone(made, to.tz) if to.tz else made
        made = text.cast(to)
    except pa.ArrowInvalid:
        return None
    return None if is_float(to) and pc.any(pc.is_inf(made)).as_py() else made
