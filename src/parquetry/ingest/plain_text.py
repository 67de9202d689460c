"""CSV and JSON files of plain spellings as Arrow rows, without Spark.

A text that no cast would take is refused here. Where one is spelled in another way than most programs do, nothing is
decided: the batch is left to Spark, whose casts are checked one by one (:mod:`parquetry.ingest.text`).
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from parquetry.ingest.text import COMPRESSED, FILE, SPELLED, csv_columns, has_quotes, json_lines
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import is_float, is_nested, type_name
from parquetry.storage.explain_failure import in_python, unfit_here, value_here

_DAY = r"[1-9]\d{3}-\d{2}-\d{2}"
_INTEGER, _DECIMAL, _FLOAT = r"-?\d+", r"-?\d+(\.\d+)?", r"-?\d+(\.\d+)?([eE][-+]?\d+)?"
_TIME = rf"{_DAY}[ T]\d{{2}}:\d{{2}}:\d{{2}}(\.\d{{1,6}})?"
_QUOTED = re.compile(rb'(?:(?<=[,\n])|\A)"[^"]*(?:""[^"]*)*"(?=[,\r\n]|\Z)')
_BOOLEANS = ("t", "true", "y", "yes", "1", "f", "false", "n", "no", "0")
_ODD_LINES = re.compile(rb"\r(?!\n)|(?m:^[ \t\r]+$)")


def plain_csv(files: Sequence[str], schema: TableSchema, table: str) -> pa.Table | None:
    """The rows of CSV files; None where Spark has to read them."""
    columns = csv_columns(files, schema, table)
    read = csv.ReadOptions(use_threads=False, column_names=[c.name for c in columns], skip_rows=1)
    convert = csv.ConvertOptions(
        column_types={c.name: pa.string() for c in columns},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parts = []
    for file in files:
        quoted = has_quotes(file)
        with open(file, "rb") as f:
            data = f.read()
        bare = _QUOTED.sub(b"", data) if quoted else data
        if b'"' in bare or _ODD_LINES.search(bare) or b'"' in data.split(b"\n", 1)[0]:
            return None
        broken: list[csv.InvalidRow] = []
        parse = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda r, b=broken: b.append(r) or "skip")
        try:
            rows = csv.read_csv(pa.BufferReader(data), read, parse, convert)
        except pa.ArrowInvalid:
            return None
        name = os.path.basename(file)
        if broken:
            shown = value_here(broken[0].text)
            raise in_python(f"broken row, {len(columns)} fields are expected; row {shown} of {name}")
        parts.append(rows.append_column(FILE, pa.repeat(name, rows.num_rows)))
    return _values(pa.concat_tables(parts), columns)


def plain_json(files: Sequence[str], schema: TableSchema) -> pa.Table | None:
    """The rows of files with a JSON object per line; None where Spark has to read them."""
    if any(is_nested(c.arrow) for c in schema.columns) or any(f.lower().endswith(COMPRESSED) for f in files):
        return None
    try:
        texts = json_lines(files, schema)
    except (OSError, RecursionError, UnicodeError, pa.ArrowException):
        return None
    if texts is None:
        return None
    return _values(
        texts.select([*range(1, texts.num_columns), 0]).rename_columns([*schema.names, FILE]), schema.columns
    )


def _values(texts: pa.Table, columns: Sequence[Column]) -> pa.Table | None:
    """What the texts spell, in the columns' types; None where that is not plain."""
    made = {}
    for c in columns:
        value = _value(texts.column(c.name), c.arrow)
        if value is None:
            _refuse(texts, c)
            return None
        made[c.name] = value
    return pa.table(made)


def _refuse(texts: pa.Table, column: Column) -> None:
    """Stops at the first text that is surely none of the column's values."""
    for i, text in enumerate(texts.column(column.name).to_pylist()):
        if text is not None and never_spells(text, column.arrow):
            row = texts.slice(i, 1).to_pylist()[0]
            file = row.pop(FILE)
            raise in_python(f"{unfit_here(text, column.name, column.type, row)} of {file}")


def _value(text: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray | None:
    t = pa.types
    if t.is_string(to):
        return text
    if t.is_binary(to):
        return text.cast(to)
    spelled = f"^({_plain_spelling(to)})$"
    if not pc.all(pc.match_substring_regex(text, spelled)).as_py() and text.null_count < len(text):
        return None
    try:
        if t.is_timestamp(to):
            made = text.cast(pa.timestamp("us"))
            return pc.assume_timezone(made, to.tz) if to.tz else made
        made = text.cast(to)
    except pa.ArrowInvalid:
        return None
    return None if is_float(to) and pc.any(pc.is_inf(made)).as_py() else made


def _plain_spelling(to: pa.DataType) -> str:
    t = pa.types
    if t.is_boolean(to):
        return "true|false"
    if t.is_integer(to):
        return _INTEGER
    if is_float(to):
        return _FLOAT
    return _DECIMAL if t.is_decimal(to) else _DAY if t.is_date(to) else _TIME


def never_spells(text: str, to: pa.DataType) -> bool:
    """Whether ``text`` is surely refused by Spark's checked casts (:func:`parquetry.ingest.text.misspelt`).

    >>> never_spells("1.5", pa.int32()), never_spells(" +15 ", pa.int32())
    (True, False)
    """
    t, bare = pa.types, text.strip(" \t\r\n")
    if not (bare.isascii() and bare.isprintable()):
        return False
    if t.is_boolean(to):
        return bare.lower() not in _BOOLEANS
    if t.is_integer(to):
        most = 1 << (to.bit_width - 1)
        return not re.fullmatch(r"[+-]?\d{1,4000}", bare) or not -most <= int(bare) < most
    if t.is_decimal(to):
        parts = re.fullmatch(r"[+-]?(\d*)(?:\.(\d*))?", bare)
        if parts is None:
            return True
        whole, fraction = parts[1].lstrip("0"), (parts[2] or "").rstrip("0")
        return bool(len(whole) > to.precision - to.scale or len(fraction) > to.scale)
    if is_float(to):
        if not re.fullmatch(r"[0-9a-fA-FxXpP.+\-iInNtTyY]*", bare):
            return True
        with np.errstate(over="ignore"):
            return re.fullmatch(_FLOAT, bare) is not None and bool(np.isinf(to.to_pandas_dtype()(float(bare))))
    if not re.fullmatch(SPELLED[type_name(to)], bare):
        return True
    return t.is_date(to) and re.fullmatch(_DAY, bare) is not None and not _is_day(bare)


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True
