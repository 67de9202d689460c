"""Conditions that can be evaluated on a row but not turned into ranges, in a normal form (WP-02, WP-16).

Such a text is evaluated while data is written and trusted while data is skipped, so only what is known to give the same
result in both places is let through: no function of time, session or chance, no cast, no comparison across kinds of
type (its meaning depends on settings). Arithmetic, which may overflow, is evaluated by ``try_`` functions, and a row on
which it fails counts as satisfying the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from sqlglot import exp

from parquetry.model.predicate import Anything, NotNull, Opaque
from parquetry.storage.spark_text import literal, quote
from parquetry.workload.coercion import decimal_of, is_numeric
from parquetry.workload.constants import fold
from parquetry.workload.predicates import COMPARISONS, MIRRORED, Resolve, predicate

_COMPARISONS = {**COMPARISONS, exp.NullSafeEQ: "<=>"}
_MIRRORED = {**MIRRORED, "<=>": "<=>"}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "try_add",
    exp.Sub: "try_subtract",
    exp.Mul: "try_multiply",
    exp.Div: "try_divide",
}
_OF_STRING: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Lower: ("lower", "string"),
    exp.Upper: ("upper", "string"),
    exp.Length: ("length", "number"),
}
_OF_DATE: dict[type[exp.Expr], str] = {exp.Year: "year", exp.Month: "month", exp.Day: "day"}
_READ = {"this", "expression", "expressions", "low", "high", "negate", "start", "length", "table", "quoted"}
_HARMLESS = {"is_string", "typed", "safe", "coalesce", "binary", "encoding"}
_MOST_TEXT = 10_000  # characters; a longer condition is no use as a feature


class _Refused(Exception):
    pass


def opaque(condition: exp.Expr, types: Mapping[str, str], resolve: Resolve) -> Opaque | None:
    """The condition in normal form, or None when it is not certain what it means, whatever the settings are."""
    reader = _Reader(types, resolve)
    try:
        text = reader.condition(condition)
    except _Refused:
        return None
    if not reader.columns or len(text) > _MOST_TEXT:
        return None
    if reader.may_fail:
        text = f"coalesce({text}, TRUE)"
    return Opaque(text, tuple(sorted(reader.columns)))


def says_more(condition: exp.Expr, types: Mapping[str, str], resolve: Resolve) -> bool:
    """Whether some part of the condition demands more than the predicate made of it."""
    if isinstance(condition, exp.Paren | exp.Not | exp.And | exp.Or):
        return any(says_more(part, types, resolve) for part in condition.iter_expressions())
    if isinstance(condition, exp.Like | exp.StartsWith) and not condition.args.get("negate"):
        pattern = fold(condition.expression)
        if pattern is not None and isinstance(pattern.value, str):
            stem = pattern.value.removesuffix("%")
            return "%" in stem or "_" in stem
    made = predicate(condition, types, resolve)
    return isinstance(made, Anything) or (isinstance(made, NotNull) and not isinstance(condition, exp.Is))


class _Reader:
    def __init__(self, types: Mapping[str, str], resolve: Resolve) -> None:
        self.types, self.resolve = types, resolve
        self.columns: set[str] = set()
        self.may_fail = False

    def condition(self, e: exp.Expr) -> str:
        _check(e)
        match e:
            case exp.Paren():
                return self.condition(e.this)
            case exp.Not():
                return f"(NOT {self.condition(e.this)})"
            case exp.And() | exp.Or():
                word = " AND " if isinstance(e, exp.And) else " OR "
                # Sorted: both are commutative, and equal conditions shall have equal texts.
                return f"({word.join(sorted({self.condition(x) for x in e.flatten()}))})"
            case exp.Like() | exp.ILike():
                return self._like(e)
            case exp.Between():
                low, high = (self._pair(e.this, e.args[side]) for side in ("low", "high"))
                return f"({low[0]} BETWEEN {low[1]} AND {high[1]})"
            case exp.In():
                pairs = [self._pair(e.this, x) for x in e.expressions]
                if not pairs or any(not isinstance(x, exp.Literal) for x in e.expressions):
                    raise _Refused
                return f"({pairs[0][0]} IN ({', '.join(sorted({b for _, b in pairs}))}))"
            case exp.Is() if isinstance(e.expression, exp.Null):
                return f"({self._sure(lambda: self.value(e.this)[1])} IS NULL)"
            case exp.Column():
                kind, text = self.value(e)
                if kind == "boolean":
                    return text
                raise _Refused
        if type(e) not in _COMPARISONS:
            raise _Refused
        op = _COMPARISONS[type(e)]
        left, right = self._sure(lambda: self._pair(e.this, e.expression), refuse=op == "<=>")
        if ("`" not in right, right) < ("`" not in left, left):  # columns first, for people to read
            left, right, op = right, left, _MIRRORED[op]
        return f"({left} {op} {right})"

    def value(self, e: exp.Expr) -> tuple[str, str]:
        """The kind of a value and its text."""
        _check(e)
        match e:
            case exp.Paren():
                return self.value(e.this)
            case exp.Column():
                return self._column(e)
            case exp.Literal() if not e.is_string:
                return "number", str(e.this)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
                return self._arithmetic(e)
            case exp.Substring():
                return self._substring(e)
            case exp.Lower() | exp.Upper() | exp.Length():
                name, made = _OF_STRING[type(e)]
                return made, f"{name}({self._of('string', e)})"
            case exp.Year() | exp.Month() | exp.Day():
                return "number", f"{_OF_DATE[type(e)]}({self._of('date', e)})"
            case exp.TsOrDsToDate():
                return "date", self._of("date", e)
        return _constant(e)

    def _column(self, e: exp.Column) -> tuple[str, str]:
        name = self.resolve(e)
        if name is None:
            raise _Refused
        kind = self.types[name].lower()
        self.columns.add(name)
        # A comparison of float with another type is made in float or in double, as the session says.
        return "number" if is_numeric(kind) and kind != "float" else kind, quote(name)

    def _arithmetic(self, e: exp.Expr) -> tuple[str, str]:
        (a, left), (b, right) = self.value(e.this), self.value(e.expression)
        if a != "number" or b != "number" or not self._exact_decimals(e):
            raise _Refused
        self.may_fail = True
        if isinstance(e, exp.Add | exp.Mul):
            left, right = sorted((left, right))
        return "number", f"{_ARITHMETIC[type(e)]}({left}, {right})"

    def _exact_decimals(self, e: exp.Expr) -> bool:
        """No decimal result gets so long that a setting decides how it is rounded."""
        names = [self.resolve(c) for c in e.find_all(exp.Column)]
        sizes = [size for n in names if n is not None and (size := decimal_of(self.types[n])) is not None]
        return not sizes or (len(sizes) <= 2 and max(sizes)[0] <= 16 and e.find(exp.Div) is None)

    def _substring(self, e: exp.Substring) -> tuple[str, str]:
        numbers = [e.args.get("start"), e.args.get("length")]
        if not all(isinstance(n, exp.Literal) and not n.is_string and str(n.this).isdigit() for n in numbers):
            raise _Refused
        start, length = (int(n.this) for n in numbers if n is not None)
        if start < 1:
            raise _Refused
        return "string", f"substring({self._of('string', e)}, {start}, {length})"

    def _of(self, kind: str, e: exp.Expr) -> str:
        found, text = self.value(e.this)
        if found != kind:
            raise _Refused
        return text

    def _pair(self, a: exp.Expr, b: exp.Expr) -> tuple[str, str]:
        (kind, left), (other, right) = self.value(a), self.value(b)
        if kind != other:
            raise _Refused
        return left, right

    def _like(self, e: exp.Expr) -> str:
        text, pattern = self._of("string", e), e.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string or "\\" in pattern.this:
            raise _Refused
        word = "LIKE" if isinstance(e, exp.Like) else "ILIKE"
        made = f"({text} {word} {literal(pattern.this)})"
        return f"(NOT {made})" if e.args.get("negate") else made

    def _sure(self, read: Callable[[], Any], refuse: bool = True) -> Any:
        """What ``read`` gives; refused where a failure below it would look like a null and not like a failure."""
        before, self.may_fail = self.may_fail, False
        found = read()
        if refuse and self.may_fail:
            raise _Refused
        self.may_fail = self.may_fail or before
        return found


def _check(e: exp.Expr) -> None:
    """Refuses syntax with arguments that are not read here."""
    if any(v for k, v in e.args.items() if k not in _READ and k not in _HARMLESS):
        raise _Refused


def _constant(e: exp.Expr) -> tuple[str, str]:
    constant = fold(e)
    if constant is None or constant.value is None:
        raise _Refused
    if constant.type == "string" and isinstance(constant.value, str):
        return "string", literal(constant.value)
    if constant.type == "date" and isinstance(constant.value, date):
        return "date", literal(constant.value)
    raise _Refused
