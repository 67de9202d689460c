"""Columns as a user writes them: understood, or refused with the column and the type by name."""

from __future__ import annotations

import pytest

from parquetry.errors import SchemaError, UnknownColumn
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import arrow_type, parse_columns


def test_columns_as_spark_writes_them() -> None:
    text = "a int not null, `b c` decimal(9,2), d map<string,array<int>> comment 'x, y', e timestamp null,"
    assert parse_columns(text) == [
        ("a", "int", False),
        ("b c", "decimal(9,2)", True),
        ("d", "map<string,array<int>>", True),
        ("e", "timestamp", True),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a int, b strng", ["column 'b'", "unknown type 'strng'", "did you mean string?"]),
        ("a timestampp not null, b int", ["column 'a'", "'timestampp'", "did you mean timestamp?"]),
        ("a int, `b c` varchr(10)", ["column 'b c'", "'varchr(10)'"]),
        ("a array<strng>", ["column 'a'", "'array<strng>'"]),
        ("a uuid", ["column 'a'", "'UUID'"]),
        ("a decimal(x,2)", ["column 'a'", "1 to 38 digits"]),
        ("a decimal(99,2)", ["column 'a'", "1 to 38 digits"]),
        ("a int default 5", ["column 'a'", "DEFAULT 5", "leave it out"]),
        ("a " + "array<" * 500 + "int" + ">" * 500, ["column 'a'", "nested too deeply"]),
        ("a", ["cannot read the schema 'a'"]),
        ("a int b", ["cannot read the schema"]),
    ],
)
def test_what_is_no_column_is_named(text: str, words: list[str]) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_columns(text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["", "decimal(x)", "array<", "array<" * 3000, "int; drop", "1"])
def test_what_is_no_type_is_refused(name: str) -> None:
    with pytest.raises(SchemaError):
        arrow_type(name)


@pytest.mark.parametrize("wrong", [{"key": ("nope",)}, {"sequence": "nope"}, {"values": {"nope": "sum"}}])
def test_an_unknown_column_of_a_new_table_speaks_of_no_table(wrong: dict[str, object]) -> None:
    given: dict[str, object] = {"key": ("k",), "model": "aggregate", "values": {"v": "sum"}} | wrong
    with pytest.raises(UnknownColumn) as caught:
        TableSchema((Column("k", "int"), Column("v", "bigint")), **given)  # type: ignore[arg-type]
    assert str(caught.value) == "unknown column 'nope'; columns: k, v"
