"""Spark's type rules (ANSI mode), over Spark's type names: what two operands are compared, combined or merged as."""

from __future__ import annotations

from functools import lru_cache

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
INTEGRAL_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
MAX_PRECISION = 38
_MIN_ADJUSTED_SCALE = 6  # what Spark keeps of the scale when a product has too many digits


@lru_cache(maxsize=1024)
def decimal_of(type_: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type name, None for other types."""
    if not type_.startswith("decimal("):
        return None
    precision, scale = type_[8:-1].split(",")
    return int(precision), int(scale)


def decimal(precision: int, scale: int) -> str:
    return f"decimal({precision},{scale})"


def is_numeric(type_: str) -> bool:
    return type_ in INTEGRAL or type_ in ("float", "double") or decimal_of(type_) is not None


def is_exact(type_: str) -> bool:
    """Integers and decimals: numbers that compare without rounding."""
    return type_ in INTEGRAL or decimal_of(type_) is not None


def as_decimal(type_: str) -> tuple[int, int] | None:
    """The decimal that holds every value of an exact type."""
    if type_ in _INTEGRAL_DIGITS:
        return _INTEGRAL_DIGITS[type_], 0
    return decimal_of(type_)


def common_type(a: str, b: str) -> str | None:
    """The type both sides of CASE, coalesce, IN or a comparison are brought to; None when it is not certain.

    >>> common_type("int", "decimal(2,1)")
    'decimal(11,1)'
    """
    if a == b:
        return a
    if a == "void" or b == "void":
        return b if a == "void" else a
    if a in INTEGRAL and b in INTEGRAL:
        return max(a, b, key=INTEGRAL.index)
    if is_exact(a) and is_exact(b):
        (p1, s1), (p2, s2) = as_decimal(a) or (0, 0), as_decimal(b) or (0, 0)
        whole, scale = max(p1 - s1, p2 - s2), max(s1, s2)
        return decimal(whole + scale, scale) if whole + scale <= MAX_PRECISION else None
    if is_numeric(a) and is_numeric(b):
        return "double"  # float with anything but float widens to double
    if {a, b} <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp" if "timestamp" in (a, b) else "timestamp_ntz"
    return None


def arithmetic_type(op: str, a: str, b: str) -> str | None:
    """The type of ``a op b`` for ``+ - *``; None when Spark would round or the rule is not certain.

    >>> arithmetic_type("*", "decimal(15,2)", "decimal(16,2)")
    'decimal(32,4)'
    """
    if not (is_numeric(a) and is_numeric(b)):
        return None
    if decimal_of(a) is None and decimal_of(b) is None or not (is_exact(a) and is_exact(b)):
        return common_type(a, b)
    (p1, s1), (p2, s2) = as_decimal(a) or (0, 0), as_decimal(b) or (0, 0)
    if op == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    return _bounded(precision, scale)


def _bounded(precision: int, scale: int) -> str | None:
    """The type when no digit of the scale is lost: beyond 38 digits Spark first gives up scale down to 6."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    kept = max(MAX_PRECISION - (precision - scale), min(scale, _MIN_ADJUSTED_SCALE))
    return decimal(MAX_PRECISION, scale) if kept == scale else None
