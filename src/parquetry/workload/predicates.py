"""SQL conditions to predicates that skipping can use (PW-07, PP-13).

Every predicate made here is implied by its condition: a row for which the condition is TRUE satisfies the predicate.
What is not understood becomes Anything with a reason, so a mistake can cost speed but never a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from parquetry.model.predicate import ANYTHING, Anything, IsNull, Nothing, NotNull, OneOf, Predicate, Range
from parquetry.workload.bounds import Operand, compare, one_of
from parquetry.workload.coercion import INTEGRAL, as_decimal, decimal_of
from parquetry.workload.constants import fold, type_name_of
from parquetry.workload.simplify import both, either

Resolve = Callable[[exp.Column], str | None]
"""The table's own name of a column, or None when the column belongs to something else."""

COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_LAST_CODE_POINT = 0x10FFFF
_MAX_EXCLUDED = 20
"""NOT IN of a longer list only demands a value: so many holes skip nothing and cost time."""
_UNDERSTOOD = {"this", "expression", "expressions", "low", "high", "negate", "table", "quoted", "is_string"}
"""Arguments of a condition's syntax node that are read below; any other one may change its meaning."""


def predicate(condition: exp.Expr, types: Mapping[str, str], resolve: Resolve | None = None) -> Predicate:
    """What a row must satisfy where ``condition`` is TRUE, for columns with these Spark types."""
    if resolve is None:
        own = {name.lower(): name for name in types}

        def resolve(column: exp.Column) -> str | None:
            return own.get(column.name.lower()) if not column.args.get("db") else None

    return _Reader(types, resolve).where(condition, True)


class _Reader:
    def __init__(self, types: Mapping[str, str], resolve: Resolve) -> None:
        self.types, self.resolve = types, resolve

    def where(self, e: exp.Expr, truth: bool) -> Predicate:
        """The predicate of rows for which ``e`` is ``truth``: in SQL's logic NOT swaps TRUE and FALSE, not NULL."""
        if any(v for k, v in e.args.items() if k not in _UNDERSTOOD):
            return _unknown(e)
        match e:
            case exp.Paren():
                return self.where(e.this, truth)
            case exp.Not():
                return self.where(e.this, not truth)
            case exp.And() | exp.Or():
                parts = [self.where(x, truth) for x in e.flatten()]
                return both(parts) if isinstance(e, exp.And) == truth else either(parts)
            case exp.Between():
                return self._between(e, truth)
            case exp.In():
                return self._in(e, truth)
            case exp.Is():
                return self._is(e, truth)
            case exp.Like() | exp.StartsWith():
                return self._like(e, truth != bool(e.args.get("negate")))
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                return self._null_safe(e, truth == isinstance(e, exp.NullSafeEQ))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._comparison(e, truth)
            case exp.Column():
                return self._is_boolean(e, truth)
        constant = fold(e)
        if constant is not None and constant.type in ("boolean", "void"):
            return ANYTHING if constant.value is truth else Nothing()
        return _unknown(e)

    def operand(self, e: exp.Expr) -> Operand | None:
        """A column, seen through casts that lose nothing, as a date, or as a year."""
        match e:
            case exp.Paren():
                return self.operand(e.this)
            case exp.Column():
                name = self.resolve(e)
                type_ = self.types.get(name) if name else None
                return Operand(name, type_, type_) if name and type_ else None
            case exp.Cast():
                inner = self.operand(e.this)
                return _cast(inner, _target(e)) if inner and inner.view != "year" else None
            case exp.TsOrDsToDate() if not e.args.get("format"):
                inner = self.operand(e.this)
                return _cast(inner, "date") if inner and inner.view != "year" else None
            case exp.Year():
                inner = self.operand(e.this)
                if inner is None or inner.view == "year":
                    return None
                day = _cast(inner, "date")
                return Operand(day.column, day.base, "int", "year") if day else None
        return None

    def _comparison(self, e: exp.Expr, truth: bool) -> Predicate:
        op = COMPARISONS[type(e)]
        operand, constant = self.operand(e.this), fold(e.expression)
        if operand is None or constant is None:
            operand, constant, op = self.operand(e.expression), fold(e.this), MIRRORED[op]
        if operand is None or constant is None:
            return _unknown(e)
        return compare(operand, op if truth else _NEGATED[op], constant)

    def _between(self, e: exp.Between, truth: bool) -> Predicate:
        operand, low, high = self.operand(e.this), fold(e.args["low"]), fold(e.args["high"])
        if operand is None or (low is None and high is None):
            return _unknown(e)
        sides = [
            compare(operand, op if truth else _NEGATED[op], c) if c else _unknown(e)
            for op, c in ((">=", low), ("<=", high))
        ]
        return both(sides) if truth else either(sides)

    def _in(self, e: exp.In, truth: bool) -> Predicate:
        operand = self.operand(e.this)
        listed = [fold(x) for x in e.expressions]
        constants = [c for c in listed if c is not None]
        if operand is None or not constants or len(constants) < len(listed):
            return _unknown(e)
        if truth:
            return one_of(operand, constants)
        if any(c.value is None for c in constants):
            return Nothing()  # NOT IN a list with NULL is never TRUE
        if len(constants) > _MAX_EXCLUDED:
            return NotNull(operand.column)
        if isinstance(one_of(operand, constants), Anything) or len({c.type for c in constants}) > 1:
            return _unknown(e)
        return both([compare(operand, "<>", c) for c in constants])

    def _is(self, e: exp.Is, truth: bool) -> Predicate:
        if isinstance(e.expression, exp.Null):
            operand = self.operand(e.this)
            if operand is None:
                return _unknown(e)
            return IsNull(operand.column) if truth else NotNull(operand.column)
        if isinstance(e.expression, exp.Boolean):
            if truth:
                return self.where(e.this, bool(e.expression.this))
            operand = self.operand(e.this)
            if operand is not None and operand.type == "boolean":
                other = OneOf(operand.column, frozenset([not e.expression.this]))
                return either([IsNull(operand.column), other])
        return _unknown(e)

    def _null_safe(self, e: exp.Expr, truth: bool) -> Predicate:
        operand, constant = self.operand(e.this), fold(e.expression)
        if operand is None or constant is None:
            operand, constant = self.operand(e.expression), fold(e.this)
        if operand is None or constant is None:
            return _unknown(e)
        if constant.value is None:
            return IsNull(operand.column) if truth else NotNull(operand.column)
        if truth:
            return compare(operand, "=", constant)
        return either([IsNull(operand.column), compare(operand, "<>", constant)])

    def _like(self, e: exp.Expr, truth: bool) -> Predicate:
        operand, pattern = self.operand(e.this), fold(e.expression)
        if operand is None or operand.type != "string" or pattern is None or pattern.type != "string":
            return _unknown(e)
        if pattern.value is None:
            return Nothing()
        text, column = pattern.value, operand.column
        if not truth or "\\" in text:
            return NotNull(column)
        if isinstance(e, exp.StartsWith):
            return _starts_with(column, text)
        prefix = text.split("%")[0].split("_")[0]
        return OneOf(column, frozenset([text])) if prefix == text else _starts_with(column, prefix)

    def _is_boolean(self, e: exp.Column, truth: bool) -> Predicate:
        operand = self.operand(e)
        if operand is None or operand.type != "boolean":
            return _unknown(e)
        return OneOf(operand.column, frozenset([truth]))


def _starts_with(column: str, prefix: str) -> Predicate:
    if not prefix:
        return NotNull(column)
    stem = prefix.rstrip(chr(_LAST_CODE_POINT))
    if not stem:
        return Range(column, lo=prefix)
    successor = ord(stem[-1]) + 1
    if 0xD800 <= successor <= 0xDFFF:
        successor = 0xE000  # surrogates are no characters
    return Range(column, lo=prefix, hi=stem[:-1] + chr(successor), hi_open=True)


def _cast(inner: Operand, target: str | None) -> Operand | None:
    """The operand after a cast that keeps the order and never fails; None for other casts."""
    source = inner.type
    if target == source:
        return inner
    if target is None:
        return None
    if target == "date" and source in ("timestamp", "timestamp_ntz") and inner.base == source:
        return Operand(inner.column, inner.base, "date", "date")
    if inner.view != "value":
        return None
    lossless = (
        (source in INTEGRAL and target in INTEGRAL and INTEGRAL.index(source) < INTEGRAL.index(target))
        or (target == "double" and (source in INTEGRAL or source == "float" or decimal_of(source) is not None))
        or (source == "date" and target in ("timestamp", "timestamp_ntz"))
        or (source in ("timestamp", "timestamp_ntz") and target in ("timestamp", "timestamp_ntz"))
        or _fits(source, target)
    )
    return Operand(inner.column, inner.base, target) if lossless else None


def _fits(source: str, target: str) -> bool:
    narrow, wide = as_decimal(source), decimal_of(target)
    if narrow is None or wide is None:
        return False
    return wide[1] >= narrow[1] and wide[0] - wide[1] >= narrow[0] - narrow[1]


def _target(e: exp.Cast) -> str | None:
    return type_name_of(e.args["to"])


def _unknown(e: exp.Expr) -> Anything:
    if isinstance(e, exp.Binary) and isinstance(e.this, exp.Column) and isinstance(e.expression, exp.Column):
        return Anything("it compares two columns")
    return Anything("it is not a comparison of one column with a constant")
