"""Column types: Spark's own type names as text, and the Arrow types they are stored as. No JVM needed."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache

import pyarrow as pa
import sqlglot
from sqlglot import exp

from parquetry.errors import SchemaError

_FLAT = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES = {arrow: name for name, arrow in _FLAT.items()}

_FROM_SQLGLOT = {
    exp.DataType.Type.BOOLEAN: "boolean",
    exp.DataType.Type.TINYINT: "tinyint",
    exp.DataType.Type.SMALLINT: "smallint",
    exp.DataType.Type.INT: "int",
    exp.DataType.Type.BIGINT: "bigint",
    exp.DataType.Type.FLOAT: "float",
    exp.DataType.Type.DOUBLE: "double",
    exp.DataType.Type.TEXT: "string",
    exp.DataType.Type.VARCHAR: "string",
    exp.DataType.Type.CHAR: "string",
    exp.DataType.Type.BINARY: "binary",
    exp.DataType.Type.VARBINARY: "binary",
    exp.DataType.Type.DATE: "date",
    exp.DataType.Type.TIMESTAMPTZ: "timestamp",
    exp.DataType.Type.TIMESTAMPLTZ: "timestamp",
    exp.DataType.Type.TIMESTAMP: "timestamp",
    exp.DataType.Type.TIMESTAMPNTZ: "timestamp_ntz",
    exp.DataType.Type.DATETIME: "timestamp_ntz",
}


@lru_cache(maxsize=4096)
def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a Spark type name.

    >>> arrow_type("decimal(15,2)")
    Decimal128Type(decimal128(15, 2))
    """
    flat = _FLAT.get(name.strip().lower())
    if flat is not None:
        return flat
    try:
        return _arrow_of(exp.DataType.build(name, dialect="spark"), name)
    except sqlglot.errors.ParseError:
        raise SchemaError(f"unknown type '{name}'; {_near(name)}") from None
    except RecursionError:
        raise SchemaError(f"the type '{name[:40]}…' is nested too deeply; use a flatter one") from None


def _near(name: str) -> str:
    """What a misspelt type may have been meant to be."""
    known = [*_FLAT, "decimal(15,2)", "array<int>"]
    close = get_close_matches(name.strip().lower(), known, n=1)
    return f"did you mean {close[0]}?" if close else "use Spark's type names, such as int, decimal(15,2), string"


def _arrow_of(parsed: exp.DataType, name: str) -> pa.DataType:
    kind = parsed.this
    if kind == exp.DataType.Type.DECIMAL:
        args = [int(e.name) if e.name.isdecimal() else -1 for e in parsed.expressions]
        precision, scale = (args + [10, 0][len(args) :])[:2]
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise SchemaError(f"'{name}': a decimal has 1 to 38 digits and a scale of at most its digits")
        return pa.decimal128(precision, scale)
    if kind in _FROM_SQLGLOT:
        return _FLAT[_FROM_SQLGLOT[kind]]
    inner = parsed.expressions
    if kind == exp.DataType.Type.ARRAY and len(inner) == 1:
        return pa.list_(_arrow_of(inner[0], name))
    if kind == exp.DataType.Type.MAP and len(inner) == 2:
        return pa.map_(_arrow_of(inner[0], name), _arrow_of(inner[1], name))
    if kind == exp.DataType.Type.STRUCT and inner:
        return pa.struct([(field.name, _arrow_of(field.args["kind"], name)) for field in inner])
    raise SchemaError(f"type '{name}' is not supported; use Spark's flat types, or array, map and struct of them")


def type_name(arrow: pa.DataType) -> str:
    """The Spark type name of an Arrow type: the inverse of :func:`arrow_type`, widening what Spark lacks.

    >>> type_name(pa.uint32())
    'bigint'
    """
    if arrow in _NAMES:
        return _NAMES[arrow]
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_dictionary(arrow):
        return type_name(arrow.value_type)
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return "string"
    if pa.types.is_large_binary(arrow) or pa.types.is_fixed_size_binary(arrow) or pa.types.is_binary_view(arrow):
        return "binary"
    if pa.types.is_date64(arrow):
        return "date"
    if pa.types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    widened = {pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)"}
    if arrow in widened:
        return widened[arrow]
    if pa.types.is_float16(arrow):
        return "float"
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return f"array<{type_name(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"map<{type_name(arrow.key_type)},{type_name(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        fields = ",".join(f"{f.name}:{type_name(f.type)}" for f in arrow)
        return f"struct<{fields}>"
    raise SchemaError(f"Arrow type {arrow} has no Spark type; cast the column first")


def is_nested(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_nested(arrow))


def is_float(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_floating(arrow))


def parse_columns(ddl: str) -> list[tuple[str, str, bool]]:
    """``"a int, b string not null"`` as ``[(name, type name, nullable)]``."""
    try:
        create = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
        definitions = list(create.this.expressions)
        return [_parsed_column(d, ddl) for d in definitions]
    except (sqlglot.errors.SqlglotError, RecursionError) as e:
        raise _unreadable(ddl) from e


def _parsed_column(definition: exp.Expression, ddl: str) -> tuple[str, str, bool]:
    kind = definition.args.get("kind")
    if not isinstance(definition, exp.ColumnDef) or kind is None:
        raise _unreadable(ddl)
    nullable = True
    for constraint in definition.args.get("constraints") or []:
        if isinstance(constraint.kind, exp.NotNullColumnConstraint):
            nullable = bool(constraint.kind.args.get("allow_null"))
        elif not isinstance(constraint.kind, exp.CommentColumnConstraint):
            said = constraint.sql("spark")
            raise SchemaError(f"column '{definition.name}': '{said}' is not kept by tables; leave it out")
    try:
        return definition.name, type_name(_arrow_of(kind, kind.sql())), nullable
    except SchemaError as e:
        raise SchemaError(f"column '{definition.name}': {e}") from None


_COLUMN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s:]+)[\s:]+(\S.*?)\s*(?:\bnot\s+null|\bcomment\b.*)?\s*", re.I | re.S)


def _unreadable(ddl: str) -> SchemaError:
    """Why columns cannot be read: the first one whose type is none, by its name, or else the whole text."""
    for piece in _pieces(ddl):
        column = _COLUMN.fullmatch(piece)
        if column is None:
            break
        try:
            arrow_type(column[2])
        except SchemaError as e:
            return SchemaError(f"column '{column[1].strip('`')}': {e}")
    return SchemaError(f"cannot read the schema '{ddl}'; write it as \"a int, b string\"")


def _pieces(ddl: str) -> list[str]:
    """The text cut at commas outside of brackets.

    >>> _pieces("a int, b decimal(9,2), c map<int,int>")
    ['a int', ' b decimal(9,2)', ' c map<int,int>']
    """
    pieces, depth = [""], 0
    for sign in ddl:
        depth += (sign in "(<") - (sign in ")>")
        if sign == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += sign
    return pieces
