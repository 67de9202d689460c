"""The columns of an example file, read without a JVM."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, json

from parquetry.errors import SchemaError
from parquetry.ingest.sources import FORMATS

_FORMATS = "give a .parquet, .csv or .json file"


def schema_like(path: str) -> pa.Schema:
    """The columns of a Parquet file by its footer, of a CSV or JSON file by its first rows; of a folder by one file."""
    file = _example(path)
    kind = FORMATS.get(file.suffix.lower())
    try:
        if kind == "parquet":
            return pq.read_schema(file)
        if kind == "csv":
            return _guessed(_csv_schema(file))
        if kind == "json":
            return _guessed(_json_schema(file))
    except (pa.ArrowException, OSError) as e:
        reason = str(e).splitlines()[0].rstrip(".")
        raise SchemaError(f"cannot read the columns of '{file}': {reason}; check the file or name the columns") from e
    raise SchemaError(f"cannot tell the format of '{file}'; {_FORMATS}")


def _example(path: str) -> Path:
    given = Path(path)
    if not given.exists():
        raise SchemaError(f"no such file: {path}; check the path")
    if not given.is_dir():
        return given
    found = sorted(p for p in given.rglob("*") if p.suffix.lower() in FORMATS and not p.name.startswith((".", "_")))
    if not found:
        raise SchemaError(f"the folder '{path}' holds no data file; {_FORMATS}")
    return found[0]


def _csv_schema(file: Path) -> pa.Schema:
    with csv.open_csv(file) as reader:
        return reader.schema


# JSON has no streaming reader in Arrow; its first lines tell the columns as well.
_JSON_SAMPLE_BYTES = 4 << 20


def _json_schema(file: Path) -> pa.Schema:
    with open(file, "rb") as f:
        sample = f.read(_JSON_SAMPLE_BYTES)
    if len(sample) < os.path.getsize(file):
        sample = sample[: sample.rfind(b"\n") + 1]
    return json.read_json(io.BytesIO(sample)).schema


def _guessed(schema: pa.Schema) -> pa.Schema:
    """Types that a sample can only guess, as the table should have them: a column without any value is a string."""
    return pa.schema([pa.field(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in schema])
