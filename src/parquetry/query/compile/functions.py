"""Functions that DuckDB computes as Spark does, or stops at: then Spark answers the query.

A function that agrees only on part of its arguments is guarded: where it might differ its text raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from parquetry.query.compile.plain_expressions import Expressions
from parquetry.query.compile.spark_names import listed, named
from parquetry.query.compile.typed import (
    Refused,
    Typed,
    computed,
    convert,
    duck_type,
    left_to_spark,
    literal,
    merged_type,
    widens,
)
from parquetry.workload.coercion import INTEGRAL, decimal, decimal_of, is_numeric
from parquetry.workload.constants import Constant, Interval, fold, type_name_of

Compile = Callable[[Expressions, Any], Typed]


def _only(e: exp.Expr, *args: str) -> None:
    if any(v for k, v in e.args.items() if k not in args):
        raise left_to_spark(e)


def _strings(x: Expressions, parts: list[exp.Expr]) -> list[Typed]:
    found = [x.compile(p) for p in parts]
    for t in found:
        if t.type != "string":
            raise Refused(f"a string function of {t.type}")
    return found


def _number(x: Expressions, e: exp.Expr | None, what: str) -> int:
    c = None if e is None else fold(e)
    if c is None or c.type not in INTEGRAL or c.value is None:
        raise Refused(f"{what} that is no plain number")
    return int(c.value)


def _substring(x: Expressions, e: exp.Substring) -> Typed:
    _only(e, "this", "start", "length")
    (t,) = _strings(x, [e.this])
    start = _number(x, e.args.get("start"), "a start of a substring")
    if start < 1:
        raise Refused("a substring that starts before the first character")
    if e.args.get("length") is None:
        return computed("string", f"substring({t.sql}, {start})", None, [t])
    length = _number(x, e.args["length"], "a length of a substring")
    word = "substr" if "substr(" in x.text else "substring"
    certain = not ("substr(" in x.text and "substring" in x.text)
    name = named(f"{word}({{}}, {start}, {length})", [t]) if certain else None
    return computed("string", f"substring({t.sql}, {start}, {max(0, length)})", name, [t])


def _concat(x: Expressions, e: exp.Expr) -> Typed:
    parts = list(e.flatten()) if isinstance(e, exp.DPipe) else e.expressions
    found = [x.compile(p) for p in parts]
    for t in found:
        if t.type not in ("string", *INTEGRAL, "date"):
            raise Refused(f"a concatenation of {t.type}")
    name = named("concat({})", [], listed(found)) if all(t.type == "string" for t in found) else None
    return computed("string", "(" + " || ".join(_text(t) for t in found) + ")", name, found)


def _text(t: Typed) -> str:
    return t.sql if t.type == "string" else f"CAST({t.sql} AS VARCHAR)"


def _case(word: str) -> Compile:
    def compiled(x: Expressions, e: exp.Expr) -> Typed:
        _only(e, "this")
        (t,) = _strings(x, [e.this])
        # Beyond ASCII the two follow different tables.
        text = f"CASE WHEN strlen({t.sql}) = length({t.sql}) THEN {word}({t.sql}) ELSE error('not ASCII') END"
        if t.constant is not None and str(t.constant.value).isascii():
            text = f"{word}({t.sql})"
        text = f"CASE WHEN {t.sql} IS NULL THEN NULL ELSE {text} END"
        return computed("string", text, named(f"{word}({{}})", [t]), [t])

    return compiled


def _trim(x: Expressions, e: exp.Trim) -> Typed:
    _only(e, "this", "position")
    word = {"": "trim", "LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}[str(e.args.get("position") or "")]
    (t,) = _strings(x, [e.this])
    return computed("string", f"{word}({t.sql}, ' ')", None, [t])


def _length(x: Expressions, e: exp.Length) -> Typed:
    _only(e, "this")
    (t,) = _strings(x, [e.this])
    certain = "char_length" not in x.text and "character_length" not in x.text and "len(" not in x.text
    return computed("int", f"CAST(length({t.sql}) AS INTEGER)", named("length({})", [t]) if certain else None, [t])


def _replace(x: Expressions, e: exp.Replace) -> Typed:
    _only(e, "this", "expression", "replacement")
    parts = [e.this, e.expression, *([e.args["replacement"]] if e.args.get("replacement") else [])]
    found = _strings(x, parts)
    if found[1].constant is None or not found[1].constant.value or len(found) != 3:
        raise Refused("a replacement of anything but a constant text")
    return computed("string", f"replace({', '.join(t.sql for t in found)})", None, found)


def _position(x: Expressions, e: exp.StrPosition) -> Typed:
    _only(e, "this", "substr")
    found = _strings(x, [e.this, e.args["substr"]])
    return computed("int", f"CAST(instr({found[0].sql}, {found[1].sql}) AS INTEGER)", None, found)


def _side(word: str) -> Compile:
    def compiled(x: Expressions, e: exp.Expr) -> Typed:
        _only(e, "this", "expression")
        (t,) = _strings(x, [e.this])
        count = _number(x, e.expression, "a length")
        return computed("string", f"{word}({t.sql}, {max(0, count)})", None, [t])

    return compiled


def _abs(x: Expressions, e: exp.Abs) -> Typed:
    _only(e, "this")
    t = x.compile(e.this)
    if not is_numeric(t.type):
        raise Refused(f"abs of {t.type}")
    return computed(t.type, f"CAST(abs({t.sql}) AS {duck_type(t.type)})", named("abs({})", [t]), [t])


def _round(x: Expressions, e: exp.Round) -> Typed:
    _only(e, "this", "decimals")
    t = x.compile(e.this)
    digits = decimal_of(t.type)
    places = 0 if e.args.get("decimals") is None else _number(x, e.args["decimals"], "a number of places")
    if digits is None or places < 0:
        raise Refused(f"round of {t.type} to {places} places")  # a float's rounding depends on its decimal spelling
    precision, scale = digits
    kept = min(scale, places)
    type_ = decimal(min(38, precision - scale + kept + 1), kept)
    name = named(f"round({{}}, {places})", [t])
    return computed(type_, f"CAST({t.sql} AS {duck_type(type_)})", name, [t])


def _whole(word: str) -> Compile:
    def compiled(x: Expressions, e: exp.Expr) -> Typed:
        _only(e, "this")
        t = x.compile(e.this)
        digits = decimal_of(t.type)
        if t.type in INTEGRAL:
            return computed("bigint", f"CAST({t.sql} AS BIGINT)", None, [t])
        if t.type in ("float", "double"):
            return computed("bigint", f"CAST({word}(CAST({t.sql} AS DOUBLE)) AS BIGINT)", None, [t])
        if digits is None:
            raise Refused(f"{word} of {t.type}")
        precision, scale = digits
        type_ = decimal(min(38, precision - scale + 1), 0)
        return computed(type_, f"CAST({word}({t.sql}) AS {duck_type(type_)})", None, [t])

    return compiled


def _nullif(x: Expressions, e: exp.Nullif) -> Typed:
    _only(e, "this", "expression")
    a, b = x.compile(e.this), x.compile(e.expression)
    same = x.comparison("=", a, b)
    return computed(a.type, f"CASE WHEN {same.sql} THEN NULL ELSE {a.sql} END", None, [a, b])


def _most(word: str) -> Compile:
    def compiled(x: Expressions, e: exp.Expr) -> Typed:
        found = [x.compile(p) for p in (e.this, *e.expressions)]
        type_ = merged_type(found)
        text = f"{word}({', '.join(convert(t, type_) for t in found)})"
        return computed(type_, text, named(f"{word}({{}})", [], listed(found)), found)

    return compiled


_FIELDS = {"YEAR": "year", "MONTH": "month", "DAY": "day", "QUARTER": "quarter", "WEEK": "week", "DOY": "dayofyear"}


def _date(x: Expressions, e: exp.Expr) -> Typed:
    inner = e.this if isinstance(e, exp.TsOrDsToDate) and not e.args.get("format") else e
    t = x.compile(inner)
    if t.type != "date":
        raise Refused(f"a {t.type} where a date is wanted")
    return t


def _extract(x: Expressions, e: exp.Extract) -> Typed:
    field = _FIELDS.get(e.this.name.upper())
    if field is None:
        raise left_to_spark(e)
    t = _date(x, e.expression)
    name = named(f"extract({e.this.name} FROM {{}})", [t]) if e.this.name.isupper() else None
    return computed("int", f"CAST({field}({t.sql}) AS INTEGER)", name, [t])


def _field(word: str) -> Compile:
    def compiled(x: Expressions, e: exp.Expr) -> Typed:
        _only(e, "this")
        t = _date(x, e.this)
        return computed("int", f"CAST({word}({t.sql}) AS INTEGER)", named(f"{word}({{}})", [t]), [t])

    return compiled


def _day_of_week(x: Expressions, e: exp.DayOfWeek) -> Typed:
    _only(e, "this")
    t = _date(x, e.this)
    return computed("int", f"(CAST(dayofweek({t.sql}) AS INTEGER) + 1)", named("dayofweek({})", [t]), [t])


def _days_between(x: Expressions, e: exp.DateDiff) -> Typed:
    _only(e, "this", "expression")
    a, b = _date(x, e.this), _date(x, e.expression)
    return computed("int", f"CAST(({a.sql} - {b.sql}) AS INTEGER)", None, [a, b])


def _days_later(x: Expressions, e: exp.TsOrDsAdd) -> Typed:
    c = fold(e)
    if c is not None:
        return Typed(c.type, literal(c), None, constant=c)
    if e.args.get("unit") is not None and e.args["unit"].name.upper() != "DAY":
        raise left_to_spark(e)
    t = _date(x, e.this)
    n = x.compile(e.expression)
    if n.type not in ("tinyint", "smallint", "int"):
        raise Refused(f"a date and {n.type} days")
    return computed("date", f"({t.sql} + CAST({n.sql} AS INTEGER))", None, [t, n])


def _plus(x: Expressions, e: exp.Expr) -> Typed:
    """A date plus or minus days or an interval; other sums are arithmetic."""
    c = fold(e)
    if c is not None and c.type in ("date", "timestamp", "timestamp_ntz"):
        return Typed(c.type, literal(c), None, constant=c)
    by: Constant | None = fold(e.expression)
    if by is not None and isinstance(by.value, Interval):
        t = x.compile(e.this)
        if t.type != "date" or by.value.seconds:
            raise Refused(f"{t.type} and an interval")
        sign = "+" if isinstance(e, exp.Add) else "-"
        parts = f"INTERVAL {by.value.months} MONTH" if by.value.months else f"INTERVAL {by.value.days} DAY"
        if by.value.months and by.value.days:
            raise Refused("an interval of months and days")
        return computed("date", f"CAST(({t.sql} {sign} {parts}) AS DATE)", None, [t])
    left = None if isinstance(e.this, exp.Interval) else x.compile(e.this)
    if left is not None and left.type == "date":
        right = x.compile(e.expression)
        if right.type not in ("tinyint", "smallint", "int"):
            raise Refused(f"a date and {right.type}")
        sign = "+" if isinstance(e, exp.Add) else "-"
        return computed("date", f"({left.sql} {sign} CAST({right.sql} AS INTEGER))", None, [left, right])
    return Expressions.compile(x, e)


def _cast(x: Expressions, e: exp.Cast) -> Typed:
    """Casts that may fail stop the query as in Spark; the parser forgets which were TRY_CAST."""
    target = type_name_of(e.args["to"])
    if target is None or fold(e) is not None:
        return Expressions.compile(x, e)
    t = x.compile(e.this)
    if t.type == target or t.constant is not None or widens(t.type, target):
        return Expressions.compile(x, e)
    if "try_cast" in x.text or "try_" in x.text:
        raise Refused(f"a cast from {t.type} to {target} beside one that may fail")
    name = t.name and f"CAST({t.name} AS {target.upper()})"
    if target == "string" and (t.type in INTEGRAL or t.type == "date"):
        return computed(target, f"CAST({t.sql} AS VARCHAR)", name, [t])
    exact, wanted = decimal_of(t.type), decimal_of(target)
    if wanted is not None and (exact is not None or t.type in INTEGRAL):
        return computed(target, f"CAST({t.sql} AS {duck_type(target)})", name, [t])
    if target in INTEGRAL and (exact is not None or t.type in ("float", "double")):
        return computed(target, f"CAST(trunc({t.sql}) AS {duck_type(target)})", name, [t])
    if target in INTEGRAL and t.type in INTEGRAL:
        return computed(target, f"CAST({t.sql} AS {duck_type(target)})", name, [t])
    if target == "double" and exact is not None:
        # The decimal's own spelling, read as the nearest double: what Java does.
        return computed(target, f"CAST(CAST({t.sql} AS VARCHAR) AS DOUBLE)", name, [t])
    raise Refused(f"a cast from {t.type} to {target}")


COMPILED: dict[type[exp.Expr], Compile] = {
    exp.Substring: _substring,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Upper: _case("upper"),
    exp.Lower: _case("lower"),
    exp.Trim: _trim,
    exp.Length: _length,
    exp.Replace: _replace,
    exp.StrPosition: _position,
    exp.Left: _side("left"),
    exp.Right: _side("right"),
    exp.Abs: _abs,
    exp.Round: _round,
    exp.Floor: _whole("floor"),
    exp.Ceil: _whole("ceil"),
    exp.Nullif: _nullif,
    exp.Greatest: _most("greatest"),
    exp.Least: _most("least"),
    exp.Extract: _extract,
    exp.Quarter: _field("quarter"),
    exp.DayOfWeek: _day_of_week,
    exp.DateDiff: _days_between,
    exp.TsOrDsAdd: _days_later,
    exp.Add: _plus,
    exp.Sub: _plus,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}
