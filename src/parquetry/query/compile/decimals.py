"""Arithmetic of decimals as Spark does it, in DuckDB's words: results rounded half up to the scale that Spark gives.

DuckDB computes in 38 digits and stops where they do not suffice; then Spark answers the query.
"""

from __future__ import annotations

from parquetry.query.compile.spark_names import named
from parquetry.query.compile.typed import NARROW_DIGITS, Refused, Typed, computed, convert, duck_type
from parquetry.workload.coercion import (
    INTEGRAL,
    MAX_PRECISION,
    as_decimal,
    common_type,
    decimal,
    decimal_of,
    is_exact,
    is_numeric,
)

_LEAST_SCALE = 6


def quotient_type(left: str, right: str) -> str:
    """The type of ``left / right`` of exact operands of which one is a decimal.

    >>> quotient_type("decimal(38,6)", "decimal(38,4)")
    'decimal(38,6)'
    >>> quotient_type("decimal(7,2)", "decimal(7,2)")
    'decimal(17,10)'
    """
    (p1, s1), (p2, s2) = as_decimal(left) or (0, 0), as_decimal(right) or (0, 0)
    scale = max(_LEAST_SCALE, s1 + p2 + 1)
    precision = p1 - s1 + s2 + scale
    if precision > MAX_PRECISION:
        whole = precision - scale
        precision, scale = MAX_PRECISION, max(MAX_PRECISION - whole, _LEAST_SCALE)
    return decimal(precision, scale)


def wider_type(a: str, b: str) -> str | None:
    """The type that two values are brought to, digits behind the point given up where 38 do not hold both.

    >>> wider_type("decimal(36,2)", "decimal(38,6)")
    'decimal(38,4)'
    """
    common = common_type(a, b)
    if common is not None or not (is_exact(a) and is_exact(b)):
        return common
    (p1, s1), (p2, s2) = as_decimal(a) or (0, 0), as_decimal(b) or (0, 0)
    whole = max(p1 - s1, p2 - s2)
    return decimal(MAX_PRECISION, max(0, MAX_PRECISION - whole))


def brought_to(t: Typed, type_: str) -> str:
    """Text of ``t`` as ``type_``, which may round a decimal."""
    if t.constant is None and decimal_of(type_) and is_exact(t.type):
        return t.sql if t.type == type_ else f"CAST({t.sql} AS {duck_type(type_)})"
    if t.type == "void":
        return f"CAST(NULL AS {duck_type(type_)})"
    return convert(t, type_)


def rounded_arithmetic(op: str, a: Typed, b: Typed) -> Typed:
    """``a op b`` of exact numbers, for ``+ - *``, where the result has more digits than a decimal holds."""
    left, right = a.beside(b), b.beside(a)
    if not (is_exact(left) and is_exact(right)):
        raise Refused(f"{a.type} {op} {b.type}")
    (p1, s1), (p2, s2) = as_decimal(left) or (0, 0), as_decimal(right) or (0, 0)
    scale = s1 + s2 if op == "*" else max(s1, s2)
    whole = p1 - s1 + p2 - s2 + 1 if op == "*" else max(p1 - s1, p2 - s2) + 1
    kept = max(MAX_PRECISION - whole, min(scale, _LEAST_SCALE))
    if scale > MAX_PRECISION:
        raise Refused(f"{a.type} {op} {b.type}")
    type_ = decimal(MAX_PRECISION, kept)
    scales = (s1, s2) if op == "*" else (scale, scale)
    # The product of a narrow and a wide decimal is computed in the wide one's width.
    widths = (MAX_PRECISION, min(MAX_PRECISION, p2)) if op == "*" else (MAX_PRECISION, MAX_PRECISION)
    sides = [brought_to(t, decimal(w, s)) for t, w, s in zip((a, b), widths, scales, strict=True)]
    name = named(f"({{}} {op} {{}})", [a, b])
    return computed(type_, f"CAST(({sides[0]} {op} {sides[1]}) AS {duck_type(type_)})", name, [a, b])


def divide(a: Typed, b: Typed) -> Typed:
    """``a / b``. A zero divisor, or numbers too long for 128 bits, stop the query, and Spark answers it."""
    if not (is_numeric(a.type) and is_numeric(b.type)):
        raise Refused(f"{a.type} / {b.type}")
    name = named("({} / {})", [a, b])
    if not (is_exact(a.type) and is_exact(b.type)) or (a.type in INTEGRAL and b.type in INTEGRAL):
        return computed("double", f"({convert(a, 'double')} / {not_zero(convert(b, 'double'))})", name, [a, b])
    left, right = a.beside(b), b.beside(a)
    type_ = quotient_type(left, right)
    (p1, s1), (p2, s2) = as_decimal(left) or (0, 0), as_decimal(right) or (0, 0)
    _, scale = as_decimal(type_) or (0, 0)
    more = scale + s2 - s1
    if more < 0:
        raise Refused(f"a division of {left} by {right}")
    if max(p1 + more, p1 + s1, p2 + s2) <= NARROW_DIGITS:  # twice the longest of them fits into 64 bits, too
        over, under = _narrow_units(a, left), _narrow_units(b, right)
        quotient = f"((abs({over}) * {2 * 10**more} + abs({under})) // (2 * abs({under})))"
        signed = f"CAST({quotient} * sign({over}) * sign({under}) AS DECIMAL({NARROW_DIGITS},0))"
        return computed(type_, f"CAST({signed} * {_last_digit(scale)} AS {duck_type(type_)})", name, [a, b])
    over, under = _units(a, left, s1), _units(b, right, s2)
    # Whole part and rest apart: their products stay short. Half away from zero, as Spark rounds.
    top, bottom, power = f"abs({over})", f"abs({under})", _power(more)
    rounded = f"(({top} % {bottom}) * {power} * 2 + {bottom}) // (2 * {bottom})"
    text = f"((({top} // {bottom}) * {power} + {rounded}) * sign({over}) * sign({under}))"
    scaled = f"CAST(CAST({text} AS DECIMAL(38,0)) * {_last_digit(scale)} AS {duck_type(type_)})"
    return computed(type_, scaled, name, [a, b])


def _units(t: Typed, type_: str, scale: int) -> str:
    """An exact number as a whole number of its last digit's units."""
    if t.type in INTEGRAL and scale == 0:
        return f"CAST({t.sql} AS HUGEINT)"
    wide = convert(t, type_)
    return f"CAST(CAST({wide} AS DECIMAL(38,{scale})) * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS HUGEINT)"


def _narrow_units(t: Typed, type_: str) -> str:
    """The same of a number that is so short that its units are a BIGINT."""
    _, scale = as_decimal(type_) or (0, 0)
    if t.type in INTEGRAL and scale == 0:
        return f"CAST({t.sql} AS BIGINT)"
    return f"CAST({convert(t, type_)} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS BIGINT)"


def _last_digit(scale: int) -> str:
    """One unit of the last digit behind the point; a quotient has at least six."""
    return f"CAST('{10**-scale:.{scale}f}' AS DECIMAL({scale},{scale}))"


def _power(digits: int) -> str:
    if digits > MAX_PRECISION:
        raise Refused("a division with more digits than 128 bits hold")
    return f"CAST({10**digits} AS HUGEINT)"


def not_zero(text: str) -> str:
    """A divisor: DuckDB gives infinity where Spark stops."""
    return f"CASE WHEN {text} = 0 THEN error('division by zero') ELSE {text} END"


def whole_quotient(a: Typed, b: Typed) -> Typed:
    """``a div b``: toward zero, a bigint."""
    if a.type not in INTEGRAL or b.type not in INTEGRAL:
        raise Refused(f"{a.type} div {b.type}")
    text = f"(CAST({a.sql} AS BIGINT) // CAST({b.sql} AS BIGINT))"
    return computed("bigint", text, named("({} div {})", [a, b]), [a, b])


def remainder(a: Typed, b: Typed) -> Typed:
    """``a % b``, with the sign of ``a``."""
    if a.type not in INTEGRAL or b.type not in INTEGRAL:
        raise Refused(f"{a.type} % {b.type}")
    type_ = common_type(a.type, b.type) or ""
    text = f"CAST(({convert(a, type_)} % {convert(b, type_)}) AS {duck_type(type_)})"
    return computed(type_, text, named("({} % {})", [a, b]), [a, b])
