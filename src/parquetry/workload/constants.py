"""Constant SQL expressions folded as Spark would fold them, to a Python value with Spark's type. No JVM needed."""

from __future__ import annotations

import math
import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from typing import Any

import numpy as np
from sqlglot import exp

from parquetry.workload.coercion import (
    INTEGRAL,
    INTEGRAL_BITS,
    arithmetic_type,
    decimal,
    decimal_of,
    is_exact,
    is_numeric,
)

EXACT = Context(prec=1200, traps=[InvalidOperation, Inexact])
_DATE = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})\s*")
_TIMESTAMP = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?\s*(Z|[+-]\d{2}:\d{2})?\s*"
)
_UNIT = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600}


@dataclass(frozen=True)
class Constant:
    """``value`` is None for NULL (type ``void`` or a typed null) and an Interval for intervals."""

    type: str
    value: Any


@dataclass(frozen=True)
class Interval:
    months: int
    days: int
    seconds: int

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.days, -self.seconds)


def fold(e: exp.Expr) -> Constant | None:
    """The constant that ``e`` is, or None when it is not one, or not surely the one Spark computes."""
    try:
        return _fold(e)
    except (ArithmeticError, ValueError):
        return None  # out of range: Spark raises or rounds, we do not guess


def _fold(e: exp.Expr) -> Constant | None:
    match e:
        case exp.Paren():
            return _fold(e.this)
        case exp.Literal():
            return Constant("string", e.this) if e.is_string else number(e.this)
        case exp.Boolean():
            return Constant("boolean", bool(e.this))
        case exp.Null():
            return Constant("void", None)
        case exp.HexString() if len(e.this) % 2 == 0:
            return Constant("binary", bytes.fromhex(e.this))
        case exp.Neg(this=exp.Literal(this="2147483648", is_string=False)):
            return Constant("int", -(2**31))  # Spark reads the sign as part of the literal
        case exp.Neg():
            inner = _fold(e.this)
            return _negate(inner) if inner else None
        case exp.Cast():
            inner = _fold(e.this)
            target = type_name_of(e.args["to"])
            return cast_constant(inner, target) if inner and target else None
        case exp.TsOrDsToDate() if not e.args.get("format"):
            inner = _fold(e.this)
            return cast_constant(inner, "date") if inner else None
        case exp.Interval():
            return _interval(e)
        case exp.TsOrDsAdd() if e.args.get("unit") is None or e.args["unit"].name.upper() == "DAY":
            start, days = _fold(e.this), _fold(e.expression)
            return _shift_days(start, days) if start and days else None
        case exp.AddMonths():
            start, months = _fold(e.this), _fold(e.expression)
            day = cast_constant(start, "date") if start else None
            if day is None or day.value is None or months is None or months.type != "int":
                return None
            return Constant("date", add_months(day.value, months.value))
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            left, right = _fold(e.this), _fold(e.expression)
            return _arithmetic(type(e), left, right) if left and right else None
    return None


def number(text: str) -> Constant | None:
    """A numeric literal typed as Spark types it: ``1`` int, ``0.05`` decimal(2,2), ``1e3`` double."""
    if re.fullmatch(r"\d+", text):
        value = int(text)
        if value < 2**31:
            return Constant("int", value)
        return Constant("bigint", value) if value < 2**63 else _decimal_constant(Decimal(value))
    if re.fullmatch(r"(\d+\.\d*|\.\d+)", text):
        return _decimal_constant(Decimal(text))
    if re.fullmatch(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text):
        return _ranged("double", float(text))
    return None


def decimal_digits(value: Decimal) -> tuple[int, int]:
    """Precision and scale of a decimal literal: ``0.05`` has (2, 2)."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    whole = len(digits) + int(exponent) if any(digits) else 1 - scale
    return max(whole + scale, scale, 1), scale


def _decimal_constant(value: Decimal) -> Constant | None:
    precision, scale = decimal_digits(value)
    return Constant(decimal(precision, scale), value) if precision <= 38 else None


def _negate(c: Constant) -> Constant | None:
    if isinstance(c.value, Interval):
        return Constant(c.type, -c.value)
    if c.value is None or not is_numeric(c.type):
        return None
    return _ranged(c.type, EXACT.minus(c.value) if isinstance(c.value, Decimal) else -c.value)


def _ranged(type_: str, value: Any) -> Constant | None:
    if type_ in INTEGRAL and not -(2 ** (INTEGRAL_BITS[type_] - 1)) <= value < 2 ** (INTEGRAL_BITS[type_] - 1):
        return None
    if type_ in ("float", "double") and not math.isfinite(value):
        return None
    return Constant(type_, value)


def cast_constant(c: Constant, target: str) -> Constant | None:
    """``cast(c as target)`` where the result is certain: no rounding, no overflow, no unusual text."""
    if c.value is None:
        return Constant(target, None)
    if c.type == target:
        return c
    if c.type == "string":
        return _parse(c.value, target)
    if isinstance(c.value, Interval):
        return None
    if target == "date" and isinstance(c.value, datetime):
        return Constant("date", c.value.date())
    if target in ("timestamp", "timestamp_ntz") and isinstance(c.value, date):
        zone = UTC if target == "timestamp" else None
        moment = c.value if isinstance(c.value, datetime) else datetime(c.value.year, c.value.month, c.value.day)
        return Constant(target, moment.replace(tzinfo=zone))
    if is_numeric(c.type) and is_numeric(target):
        return _cast_number(c, target)
    return None


def _cast_number(c: Constant, target: str) -> Constant | None:
    if target == "double":
        return _ranged(target, float(c.value))
    if target == "float":
        return _ranged(target, nearest_float32(c.value))
    if not is_exact(c.type):
        return None
    if target in INTEGRAL:
        return _ranged(target, int(c.value)) if c.value == int(c.value) else None
    precision, scale = decimal_of(target) or (0, 0)
    value = EXACT.quantize(Decimal(c.value), Decimal(1).scaleb(-scale))
    return Constant(target, value) if abs(value) < Decimal(10) ** (precision - scale) else None


def nearest_float32(value: float | int | Decimal) -> float:
    """The float nearest to ``value``, rounded once; raises ValueError where two are equally near."""
    exact, first = Decimal(value), np.float32(float(value))
    if not np.isfinite(first):
        return float(first)
    near = [float(first), *(float(np.nextafter(first, np.float32(side))) for side in (math.inf, -math.inf))]
    gaps = sorted((abs(EXACT.subtract(Decimal(n), exact)), n) for n in near if math.isfinite(n))
    if len(gaps) > 1 and gaps[0][0] == gaps[1][0]:
        raise ValueError(f"{value} lies between two floats")
    return gaps[0][1]


def _parse(text: str, target: str) -> Constant | None:
    if target == "date" and (m := _DATE.fullmatch(text)):
        return Constant(target, date(*(int(g) for g in m.groups())))
    if target in ("timestamp", "timestamp_ntz") and (m := _TIMESTAMP.fullmatch(text)):
        year, month, day, hour, minute, second = (int(g or 0) for g in m.groups()[:6])
        micros = int((m[7] or "0").ljust(6, "0"))
        moment = datetime(year, month, day, hour, minute, second, micros)
        if target == "timestamp_ntz":
            return None if m[8] else Constant(target, moment)
        if m[8] and m[8] != "Z":
            offset = timedelta(hours=int(m[8][1:3]), minutes=int(m[8][4:6]))
            moment -= offset if m[8][0] == "+" else -offset
        return Constant(target, moment.replace(tzinfo=UTC))
    if target in INTEGRAL and re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text):
        return _ranged(target, int(text))
    if target == "double" and re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", text):
        return _ranged(target, float(text))
    if decimal_of(target) and re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)\s*", text):
        return _cast_number(Constant("decimal(38,0)", Decimal(text.strip())), target)
    if target == "boolean" and text.strip().lower() in ("true", "false"):
        return Constant(target, text.strip().lower() == "true")
    return None


def type_name_of(to: exp.DataType) -> str | None:
    if isinstance(to.this, exp.DType) and not any(v for k, v in to.args.items() if k != "this"):
        return _plain_type_name(to.this)
    return _type_name_of(to)


@lru_cache
def _plain_type_name(kind: exp.DType) -> str | None:
    """Of a type without parts: writing it as text would take longer than anything else about a constant."""
    return _type_name_of(exp.DataType(this=kind))


def _type_name_of(to: exp.DataType) -> str | None:
    from parquetry.errors import SchemaError
    from parquetry.model.types import arrow_type, type_name

    try:
        return type_name(arrow_type(to.sql("spark")))
    except SchemaError:
        return None


def _interval(e: exp.Interval) -> Constant | None:
    unit = e.args.get("unit")
    if not isinstance(unit, exp.Var) or not isinstance(e.this, exp.Literal):
        return None
    text = e.this.this.strip()
    if not re.fullmatch(r"[+-]?\d{1,9}", text):
        return None
    n, name = int(text), unit.name.upper().removesuffix("S")
    if name in ("YEAR", "MONTH"):
        return Constant("interval", Interval(n * (12 if name == "YEAR" else 1), 0, 0))
    if name in ("WEEK", "DAY"):
        return Constant("interval", Interval(0, n * (7 if name == "WEEK" else 1), 0))
    return Constant("interval", Interval(0, 0, n * _UNIT[name])) if name in _UNIT else None


def add_months(day: date, months: int) -> date:
    """Spark's rule: the day of the month stays, cut to the length of the new month."""
    years, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return day.replace(year=years, month=month + 1, day=min(day.day, monthrange(years, month + 1)[1]))


def _shift_days(start: Constant, days: Constant) -> Constant | None:
    day = cast_constant(start, "date")
    if day is None or day.value is None or days.type not in ("tinyint", "smallint", "int") or days.value is None:
        return None
    return Constant("date", day.value + timedelta(days=days.value))


def _arithmetic(op: type[exp.Expr], a: Constant, b: Constant) -> Constant | None:
    if a.value is None or b.value is None:
        return None
    if isinstance(b.value, Interval) and isinstance(a.value, date) and op in (exp.Add, exp.Sub):
        return _shift(a, b.value if op is exp.Add else -b.value)
    if isinstance(a.value, Interval) and isinstance(b.value, date) and op is exp.Add:
        return _shift(b, a.value)
    if a.type == "date" and b.type == "int" and op in (exp.Add, exp.Sub):
        return _shift_days(a, b if op is exp.Add else Constant("int", -b.value))
    if not (is_numeric(a.type) and is_numeric(b.type)):
        return None
    if op is exp.Div:
        both_exact = is_exact(a.type) and is_exact(b.type)
        if (both_exact and not (a.type in INTEGRAL and b.type in INTEGRAL)) or b.value == 0:
            return None  # decimal division rounds by rules of its own
        return _ranged("double", float(a.value) / float(b.value))
    sign = "+" if op is exp.Add else "-" if op is exp.Sub else "*"
    left, right = (decimal(*decimal_digits(Decimal(c.value))) if c.type in INTEGRAL else c.type for c in (a, b))
    mixed = (a.type in INTEGRAL) != (b.type in INTEGRAL) and is_exact(a.type) and is_exact(b.type)
    type_ = arithmetic_type(sign, left, right) if mixed else arithmetic_type(sign, a.type, b.type)
    if type_ is None or type_ == "float":
        return None
    if type_ == "double":
        return _ranged(type_, _apply(sign, float(a.value), float(b.value)))
    if type_ in INTEGRAL:
        return _ranged(type_, _apply(sign, a.value, b.value))
    x, y = Decimal(a.value), Decimal(b.value)
    value = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[sign](x, y)
    return Constant(type_, value) if decimal_digits(value)[0] <= 38 else None


def _apply(sign: str, a: Any, b: Any) -> Any:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def _shift(c: Constant, by: Interval) -> Constant | None:
    moment = c.value
    if not isinstance(moment, datetime) and by.seconds:
        widened = cast_constant(c, "timestamp")
        return _shift(widened, by) if widened else None
    if by.months:
        shifted = add_months(moment.date() if isinstance(moment, datetime) else moment, by.months)
        moment = datetime.combine(shifted, moment.timetz()) if isinstance(moment, datetime) else shifted
    return Constant(c.type, moment + timedelta(days=by.days, seconds=by.seconds))
