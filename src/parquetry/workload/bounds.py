"""``column op constant`` as bounds on the column, in Spark's comparison of the two types.

The bounds are values of the column's own type, rounded inwards where the comparison is exact (``int < 5.5`` is
``<= 5``) and outwards where Spark itself rounds the column to a double. So they never lose a row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np

from parquetry.model.predicate import Anything, Nothing, OneOf, Predicate
from parquetry.workload.coercion import INTEGRAL, INTEGRAL_BITS, common_type, decimal, decimal_of, is_exact, is_numeric
from parquetry.workload.constants import Constant, cast_constant, decimal_digits
from parquetry.workload.simplify import either, range_of

TEMPORAL = ("date", "timestamp", "timestamp_ntz")
_WIDE = Context(prec=400)
_FLOAT_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Operand:
    """A column as a comparison sees it: ``type`` after lossless casts, or its date, or its year."""

    column: str
    base: str
    type: str
    view: str = "value"  # value, date (of a timestamp) or year


@dataclass(frozen=True)
class _Bounds:
    lo: Any = None
    hi: Any = None
    lo_open: bool = False
    hi_open: bool = False


def compare(operand: Operand, op: str, constant: Constant) -> Predicate:
    """What ``operand op constant`` demands of the column; ``op`` is one of ``= <> < <= > >=``."""
    if constant.value is None:
        return Nothing()
    try:
        return _compare(operand, op, constant)
    except (ArithmeticError, ValueError):
        return Anything("the constant is out of the range of its type")


def one_of(operand: Operand, constants: list[Constant]) -> Predicate:
    """``operand IN (constants)``: Spark brings the whole list to one type first."""
    constants = [c for c in constants if c.value is not None]
    texts = [c.type == "string" for c in constants]
    if any(texts) and not all(texts):
        return Anything("a list that mixes strings with other types")
    if any(c.type in ("float", "double") for c in constants):
        widened = [cast_constant(c, "double") for c in constants]
        if None in widened:
            return Anything("a list that mixes types")
        constants = [c for c in widened if c is not None]
    alike = INTEGRAL[: INTEGRAL.index(operand.type) + 1] if operand.type in INTEGRAL else ("string",)
    if (
        operand.base == operand.type
        and operand.type in (*INTEGRAL, "string")
        and all(c.type in alike for c in constants)
    ):
        return OneOf(operand.column, frozenset(c.value for c in constants)) if constants else Nothing()
    return either([compare(operand, "=", c) for c in constants])


def _compare(operand: Operand, op: str, constant: Constant) -> Predicate:
    if op == "<>":
        return either([_compare(operand, "<", constant), _compare(operand, ">", constant)])
    met = _coerce(operand, constant)
    if met is None:
        return Anything(f"a {operand.type} compared with a {constant.type} constant")
    if op != "=" and operand.type in INTEGRAL and decimal_of(met.type) and beyond_bigint(met.value):
        always = (met.value > 0) == (op in ("<", "<="))
        return Anything("Spark takes it as true for every row, nulls included") if always else Nothing()
    bounds = _start(op, met.value)
    if is_numeric(operand.type):
        in_doubles = not (is_exact(operand.type) and is_exact(met.type))
        bounds = _snap(operand, bounds, in_doubles)
    elif operand.type in TEMPORAL:
        bounds = _snap_moment(operand, bounds)
    return range_of(operand.column, bounds.lo, bounds.lo_open, bounds.hi, bounds.hi_open)


def beyond_bigint(value: Decimal) -> bool:
    """Spark replaces an integer's comparison with such a decimal literal by TRUE or FALSE, also for null."""
    return not -(2**63) <= value < 2**63


def _start(op: str, value: Any) -> _Bounds:
    match op:
        case "=":
            return _Bounds(value, value)
        case "<" | "<=":
            return _Bounds(hi=value, hi_open=op == "<")
    return _Bounds(lo=value, lo_open=op == ">")


def _coerce(operand: Operand, c: Constant) -> Constant | None:
    """The constant in the type the two are compared in, as far as the operand's side loses nothing."""
    t = operand.type
    if c.type == "string" and t != "string":
        target = "bigint" if t in INTEGRAL else "double" if is_numeric(t) else t
        return cast_constant(c, target)
    if is_numeric(t) and is_numeric(c.type):
        if is_exact(t) and is_exact(c.type):
            digits = decimal(*decimal_digits(Decimal(c.value)))
            return c if common_type(t, digits if c.type in INTEGRAL else c.type) else None
        return cast_constant(c, "double")
    if t in TEMPORAL and c.type in TEMPORAL:
        wider = common_type(t, c.type)
        return cast_constant(c, wider) if wider else None
    return c if t == c.type and t in ("string", "binary", "boolean") else None


def _snap(operand: Operand, b: _Bounds, in_doubles: bool) -> _Bounds:
    base = operand.base
    if operand.view == "year":
        return _snap_moment(replace(operand, type="date", view="date"), _years(_whole(b, "int")))
    if in_doubles and base in ("double", "float"):
        return _to_float32(b) if base == "float" else _Bounds(_float(b.lo), _float(b.hi), b.lo_open, b.hi_open)
    if in_doubles and (base == "bigint" or decimal_of(base)):
        # Spark compares the column rounded to a double: its true value may lie half a step away.
        lo = None if b.lo is None else math.nextafter(float(b.lo), -math.inf)
        hi = None if b.hi is None else math.nextafter(float(b.hi), math.inf)
        b = _Bounds(lo, hi)
    return _whole(b, base) if base in INTEGRAL else _to_scale(b, base)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _whole(b: _Bounds, base: str) -> _Bounds:
    """Closed integer bounds inside the type's range."""
    limit = 2 ** (INTEGRAL_BITS[base] - 1)
    lo = hi = None
    if b.lo is not None:
        lo = math.ceil(b.lo)
        lo += 1 if b.lo_open and lo == b.lo else 0
        lo = None if lo <= -limit else lo
    if b.hi is not None:
        hi = math.floor(b.hi)
        hi -= 1 if b.hi_open and hi == b.hi else 0
        hi = None if hi >= limit - 1 else hi
    if (lo is not None and lo >= limit) or (hi is not None and hi < -limit):
        return _Bounds(0, 0, True, True)
    return _Bounds(lo, hi)


def _to_scale(b: _Bounds, base: str) -> _Bounds:
    """Bounds with the decimal's own scale."""
    precision, scale = decimal_of(base) or (38, 0)
    step, limit = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)
    lo, hi, lo_open, hi_open = b.lo, b.hi, b.lo_open, b.hi_open
    if lo is not None:
        exact = Decimal(lo)
        lo = exact.quantize(step, ROUND_CEILING, _WIDE)
        lo_open = lo_open and lo == exact
        if lo >= limit:
            return _Bounds(step, step, True, True)
        lo = None if lo <= -limit else lo
    if hi is not None:
        exact = Decimal(hi)
        hi = exact.quantize(step, ROUND_FLOOR, _WIDE)
        hi_open = hi_open and hi == exact
        if hi <= -limit:
            return _Bounds(step, step, True, True)
        hi = None if hi >= limit else hi
    return _Bounds(lo, hi, lo_open, hi_open)


def _to_float32(b: _Bounds) -> _Bounds:
    """Bounds that a float column can hold: the nearest ones inside."""
    lo, hi, lo_open, hi_open = _float(b.lo), _float(b.hi), b.lo_open, b.hi_open
    if lo is not None:
        near = _float32(lo)
        if near != lo:
            lo_open = False
            lo = near if near > lo else float(np.nextafter(np.float32(near), np.float32(math.inf)))
    if hi is not None:
        near = _float32(hi)
        if near != hi:
            hi_open = False
            hi = near if near < hi else float(np.nextafter(np.float32(near), np.float32(-math.inf)))
    return _Bounds(lo, hi, lo_open, hi_open)


def _float32(value: float) -> float:
    if abs(value) > _FLOAT_MAX:
        return math.copysign(math.inf, value) if abs(value) >= 2.0**128 else math.copysign(_FLOAT_MAX, value)
    return float(np.float32(value))


def _years(b: _Bounds) -> _Bounds:
    """Closed bounds on the year as bounds on the date."""
    if b.lo_open:
        return _Bounds(date(1, 1, 1), date(1, 1, 1), True, True)
    lo = None if b.lo is None or b.lo < 1 else date(b.lo, 1, 1)
    if b.hi is not None and b.hi < 1:
        raise ValueError("years before 1 are left to Spark")
    hi = None if b.hi is None or b.hi >= 9999 else date(b.hi + 1, 1, 1)
    return _Bounds(lo, hi, False, hi is not None)


def _snap_moment(operand: Operand, b: _Bounds) -> _Bounds:
    """Bounds on a date, a timestamp, or the date of a timestamp, as bounds on the stored column."""
    if operand.type == "date" or operand.base == "date":
        b = _to_dates(b)
    if operand.base == "date":
        return b
    zone = UTC if operand.base == "timestamp" else None
    if operand.type == "date":  # a day's end is the next day's start
        lo, hi = b.lo, b.hi
        if lo is not None and b.lo_open:
            lo += timedelta(days=1)
        if hi is not None and not b.hi_open:
            hi += timedelta(days=1)
        return _Bounds(_midnight(lo, zone), _midnight(hi, zone), False, hi is not None)
    return _Bounds(_in_zone(b.lo, zone), _in_zone(b.hi, zone), b.lo_open, b.hi_open)


def _to_dates(b: _Bounds) -> _Bounds:
    lo, hi, lo_open, hi_open = b.lo, b.hi, b.lo_open, b.hi_open
    if isinstance(lo, datetime):
        lo_open = lo_open or lo.time() != time()
        lo = lo.date()
    if isinstance(hi, datetime):
        hi_open = hi_open and hi.time() == time()
        hi = hi.date()
    return _Bounds(lo, hi, lo_open, hi_open)


def _midnight(day: date | None, zone: Any) -> datetime | None:
    return None if day is None else datetime.combine(day, time(), zone)


def _in_zone(moment: datetime | None, zone: Any) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=zone)
