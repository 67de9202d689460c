"""Which columns and types a batch may have: the same answer for Spark's frames and for rows in the process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from parquetry.errors import DataError
from parquetry.model.schema import Column, TableSchema

_EXACT = ("tinyint", "smallint", "int", "bigint", "decimal")


class Way(Enum):
    """How values of one type become values of a column's type."""

    SAME = "nothing to do"
    NULL = "the batch has nulls only"
    WIDER = "every float is a double"
    UTC = "a time without a zone is taken as UTC"
    NEAREST = "the nearest float, as if the file had been written with this type"
    EXACT = "the same number, or none"


def columns_given(names: Sequence[str], schema: TableSchema, table: str) -> dict[str, int]:
    """The places of the batch's columns by their names in small letters; DataError for one that is not the table's."""
    places: dict[str, int] = {}
    for i, name in enumerate(names):
        if name.lower() in places:
            raise DataError(
                f"the batch has two columns '{names[places[name.lower()]]}' (names are compared without case)",
                table=table,
            )
        places[name.lower()] = i
    known = {n.lower() for n in schema.names}
    for name in names:
        if name.lower() not in known:
            columns = ", ".join(schema.names)
            raise DataError(f"column '{name}' is not in table '{table}'; columns: {columns}", table=table, column=name)
    for c in schema.columns:
        if c.name.lower() not in places and is_required(c, schema) and not is_counted(c, schema):
            raise DataError(
                f"the batch has no column '{c.name}', which table '{table}' requires", table=table, column=c.name
            )
    return places


def is_required(column: Column, schema: TableSchema) -> bool:
    return column.name in schema.key or not column.nullable


def is_counted(column: Column, schema: TableSchema) -> bool:
    """Whether every row counts one where the batch does not say otherwise."""
    return schema.values.get(column.name) == "count"


def null_in(column: Column, schema: TableSchema) -> str:
    """The beginning of the message for a null where none may be; the row follows."""
    what = "key" if column.name in schema.key else "required"
    return f"null in {what} column '{column.name}'; row "


def way_into(have: str, want: str, column: Column, table: str) -> Way:
    """How a type goes into a column of type ``want``, both as Spark writes them; DataError where it does not."""
    if _shape(have) == _shape(want):
        return Way.SAME
    if have == "void":
        return Way.NULL
    if (have, want) == ("float", "double"):
        return Way.WIDER
    if (have, want) == ("timestamp_ntz", "timestamp"):
        return Way.UTC
    if (have, want) == ("double", "float"):
        return Way.NEAREST
    if have.split("(")[0] in _EXACT and want.split("(")[0] in (*_EXACT, "float", "double"):
        return Way.EXACT
    raise DataError(
        f"column '{column.name}' is {have} but table '{table}' has {column.type}; cast it before ingesting",
        table=table,
        column=column.name,
    )


def _shape(type_: str) -> str:
    """A type without lengths of char and varchar; nullability is no part of the text."""
    return re.sub(r"(var)?char\(\d+\)", "string", type_.lower())
