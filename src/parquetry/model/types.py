"""Column types: Spark's own type names as text, and the Arrow types they are stored as. No JVM needed."""

from __future__ import annotations

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
        parsed = exp.DataType.build(name, dialect="spark")
    except sqlglot.errors.ParseError:
        raise SchemaError(
            f"unknown type '{name}'; use Spark's type names, such as int, decimal(15,2), string"
        ) from None
    return _arrow_of(parsed, name)


def _arrow_of(parsed: exp.DataType, name: str) -> pa.DataType:
    kind = parsed.this
    if kind == exp.DataType.Type.DECIMAL:
        args = [int(e.name) for e in parsed.expressions]
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
    except sqlglot.errors.ParseError as e:
        raise SchemaError(f"cannot read the schema '{ddl}'; write it as \"a int, b string\"") from e
    columns: list[tuple[str, str, bool]] = []
    for d in definitions:
        if not isinstance(d, exp.ColumnDef) or d.args.get("kind") is None:
            raise SchemaError(f"cannot read the schema '{ddl}'; write it as \"a int, b string\"")
        arrow = _arrow_of(d.args["kind"], d.args["kind"].sql("spark"))
        required = any(isinstance(c.kind, exp.NotNullColumnConstraint) for c in d.args.get("constraints") or [])
        columns.append((d.name, type_name(arrow), not required))
    return columns
