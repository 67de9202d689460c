"""The columns of an example file."""

from __future__ import annotations

from pathlib import Path

import pytest

from parquetry import schema_like
from parquetry.errors import SchemaError


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f.csv", "k,price,note,empty\n1,2.5,x,\n2,3.5,y,\n"),
        ("f.json", '{"k":1,"price":2.5,"note":"x","empty":null}\n'),
    ],
)
def test_csv_and_json_are_guessed(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    schema = schema_like(str(tmp_path / name))
    assert dict(zip(schema.names, map(str, schema.types), strict=True)) == {
        "k": "int64",
        "price": "double",
        "note": "string",
        "empty": "string",
    }
    assert schema_like(str(tmp_path)) == schema


@pytest.mark.parametrize("name", ["f.parquet", "f.csv", "f.json", "f.txt"])
def test_an_empty_or_unknown_file_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(SchemaError):
        schema_like(str(tmp_path / name))
