"""Typed pieces of DuckDB SQL: a value's Spark type, the text that computes it, and the name Spark would give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from sqlglot import exp

from parquetry.workload.coercion import INTEGRAL, as_decimal, common_type, decimal, decimal_of, is_numeric
from parquetry.workload.constants import Constant, cast_constant, decimal_digits
from parquetry.workload.plain_select import NotPlain

_DUCK = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
NARROW_DIGITS = 18  # of a decimal that DuckDB holds in 64 bits
_EXACT_DOUBLE_DIGITS = 15
"""Up to here DuckDB's decimal to double (an integer divided by a power of ten) rounds as Java's does."""


class Refused(NotPlain):
    """This expression is left to Spark; the message is the reason."""


def left_to_spark(e: exp.Expr) -> Refused:
    return Refused(f"{e.sql('spark')[:60]} is left to Spark")


@dataclass(frozen=True)
class Typed:
    type: str
    sql: str
    name: str | None  # Spark's automatic column name; None when not certain
    columns: frozenset[str] = field(default_factory=frozenset)
    constant: Constant | None = None
    written: bool = False  # a literal, not a constant that is computed or cast

    def beside(self, other: Typed) -> str:
        """This side's type next to ``other``: an integer literal beside a decimal has only its own digits."""
        if self.constant is not None and self.type in INTEGRAL and decimal_of(other.type):
            if not self.written:  # 2L is a literal, CAST(2 AS bigint) is none, and our parser takes them for the same
                raise Refused(f"{self.sql} beside a decimal")
            return decimal(*decimal_digits(Decimal(self.constant.value)))
        return self.type


def duck_type(type_: str) -> str:
    return _DUCK.get(type_) or type_.upper()


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(c: Constant) -> str:
    """DuckDB text of a constant, with its type spelled out."""
    value, type_ = c.value, duck_type(c.type)
    if value is None:
        return "NULL" if c.type == "void" else f"CAST(NULL AS {type_})"
    match c.type:
        case "boolean":
            return "TRUE" if value else "FALSE"
        case "string":
            if "\0" in value:
                raise Refused("a string constant with a zero byte")
            return "'" + str(value).replace("'", "''") + "'"
        case "binary":
            return f"unhex('{value.hex()}')"
        case "date":
            assert isinstance(value, date)
            return f"DATE '{value.isoformat()}'"
        case "timestamp" | "timestamp_ntz":
            assert isinstance(value, datetime)
            text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
            return f"TIMESTAMPTZ '{text}+00'" if c.type == "timestamp" else f"TIMESTAMP '{text}'"
        case "float" | "double":
            return f"CAST('{value!r}' AS {type_})"
    if decimal_of(c.type):
        return f"CAST('{value:f}' AS {type_})"
    if c.type in INTEGRAL:
        return f"CAST({value} AS {type_})"
    raise Refused(f"a constant of type {c.type}")


def convert(t: Typed, target: str) -> str:
    """Text of ``t`` as ``target``, for casts that never fail and never round; others are refused."""
    if t.type == target:
        return t.sql
    if t.constant is not None:
        folded = cast_constant(t.constant, target)
        if folded is None:
            raise Refused(f"a constant of type {t.type} used as {target}")
        return literal(folded)
    if not widens(t.type, target):
        raise Refused(f"a conversion from {t.type} to {target}")
    return f"CAST({t.sql} AS {duck_type(target)})"


def widens(source: str, target: str) -> bool:
    """Every value of ``source`` becomes the same value of ``target`` in both engines."""
    if source in INTEGRAL and target in INTEGRAL:
        return INTEGRAL.index(source) <= INTEGRAL.index(target)
    narrow, wide = as_decimal(source), decimal_of(target)
    if narrow and wide:
        return wide[1] >= narrow[1] and wide[0] - wide[1] >= narrow[0] - narrow[1]
    if target == "double":
        digits = decimal_of(source)
        return source in INTEGRAL or source == "float" or (digits is not None and digits[0] <= _EXACT_DOUBLE_DIGITS)
    return source == target


def computed(type_: str, sql: str, name: str | None, parts: Sequence[Typed]) -> Typed:
    """A value computed from others."""
    return Typed(type_, sql, name, frozenset().union(*(p.columns for p in parts)))


def merged_type(parts: Sequence[Typed]) -> str:
    """The one type of values that stand for each other, as the branches of CASE."""
    type_: str | None = "void"
    for p in parts:
        type_ = common_type(type_, p.type) if type_ else None
    if type_ is None or type_ == "void":
        raise Refused("branches of mixed types")
    return type_


def retyped(t: Typed, target: str) -> Typed:
    """A string literal as a constant of another type."""
    parsed = cast_constant(t.constant, target) if t.constant else None
    if parsed is None:
        raise Refused(f"a string compared with {target}")
    return Typed(target, literal(parsed), t.name, constant=parsed)


def string_becomes(other: str) -> str:
    """What a string literal is read as beside a value of another type."""
    if other in INTEGRAL:
        return "bigint"
    return "double" if is_numeric(other) else other


def wide_factor(factor: str, product: str) -> str:
    """The factor's type, in 128 bits when the product needs them: DuckDB multiplies in the width of its operands."""
    precision, scale = as_decimal(factor) or (0, 0)
    narrow = (decimal_of(product) or (0, 0))[0] <= NARROW_DIGITS
    return decimal(precision if narrow else max(precision, NARROW_DIGITS + 1), scale)


def signless_zero(t: Typed) -> str:
    """Text in which -0.0 is 0.0: Spark groups and sorts them as one value."""
    return f"({t.sql} + CAST(0 AS {duck_type(t.type)}))" if t.type in ("float", "double") else t.sql
