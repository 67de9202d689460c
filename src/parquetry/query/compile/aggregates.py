"""Aggregates on the whitelist, and expressions above GROUP BY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from parquetry.model.visible import MOST_AVERAGED_DIGITS, decimal_average
from parquetry.query.compile.plain_expressions import Expressions, RowSource
from parquetry.query.compile.typed import Refused, Typed, duck_type, signless_zero
from parquetry.workload.coercion import INTEGRAL, MAX_PRECISION, decimal, decimal_of, is_numeric


@dataclass(frozen=True)
class AggregateCall:
    """What lazy merging asks about an aggregate (3.2-5): ``column`` when it is over a bare column."""

    function: str
    column: str | None
    columns: frozenset[str]
    distinct: bool


class GroupedExpressions(Expressions):
    """Compiles expressions whose columns appear only inside aggregates or as grouping expressions."""

    def __init__(self, source: RowSource, groups: Sequence[exp.Expr]) -> None:
        super().__init__(source)
        self.rows = Expressions(source)
        self.calls: list[AggregateCall] = []
        self.groups = {normal(g) for g in groups}
        self.group_kinds = {type(g) for g in self.groups}

    def compile(self, e: exp.Expr | None) -> Typed:
        if isinstance(e, exp.AggFunc):
            return self._aggregate(e)
        if e is not None and type(e) in self.group_kinds and normal(e) in self.groups:
            t = self.rows.compile(e)
            return Typed(t.type, signless_zero(t), t.name, t.columns)
        return super().compile(e)

    def column(self, e: exp.Column) -> Typed:
        self.rows.column(e)  # an unknown column is an error whatever comes next
        raise Refused(f"column {e.name} is neither grouped nor aggregated")

    def _aggregate(self, e: exp.AggFunc) -> Typed:
        if any(v for k, v in e.args.items() if k not in ("this", "big_int")):
            raise Refused(f"{e.sql('spark')[:60]} is left to Spark")
        argument, distinct = e.this, isinstance(e.this, exp.Distinct)
        if distinct:
            if len(argument.expressions) != 1 or argument.args.get("on"):
                raise Refused("DISTINCT over several columns")
            argument = argument.expressions[0]
        if isinstance(e, exp.Count) and isinstance(argument, exp.Star) and not distinct:
            return self._made("count", "bigint", "count(*)", "count(1)", None, distinct)
        t = self.rows.compile(argument)
        if isinstance(argument, exp.AggFunc):
            raise Refused("an aggregate inside an aggregate")
        word = "DISTINCT " if distinct else ""
        match e:
            case exp.Count():
                made = "bigint", f"count({word}{signless_zero(t) if distinct else t.sql})"
                return self._made("count", *made, t.name and f"count({word}{t.name})", t, distinct)
            case exp.Sum():
                return self._made("sum", *sum_of(t, word), t.name and f"sum({word}{t.name})", t, distinct)
            case exp.Avg() if not distinct:
                return self._made("avg", *average_of(t), t.name and f"avg({t.name})", t, distinct)
            case exp.Min() | exp.Max() if not distinct and t.type != "void":
                function = "min" if isinstance(e, exp.Min) else "max"
                return self._made(
                    function, t.type, f"{function}({t.sql})", t.name and f"{function}({t.name})", t, distinct
                )
        raise Refused(f"{e.sql('spark')[:60]} is left to Spark")

    def _made(self, function: str, type_: str, sql: str, name: str | None, t: Typed | None, distinct: bool) -> Typed:
        columns = t.columns if t else frozenset()
        bare = next(iter(columns)) if t and t.sql == self.source.prefix + f'"{next(iter(columns), "")}"' else None
        self.calls.append(AggregateCall(function, bare, columns, distinct))
        return Typed(type_, sql, name, columns)


def normal(e: exp.Expr) -> exp.Expr:
    """The expression without what Spark ignores when it looks for it in GROUP BY: case, qualifier, parentheses."""
    e = e.unnest().copy()
    for c in list(e.find_all(exp.Column)):
        if len(c.parts) <= 2 and isinstance(c.this, exp.Identifier):
            c.set("table", None)
            c.this.set("this", c.name.lower())
            c.this.set("quoted", False)
    return e


def sum_of(t: Typed, word: str) -> tuple[str, str]:
    """The Spark type of a sum, and DuckDB text that computes it; ``word`` may be DISTINCT."""
    digits = decimal_of(t.type)
    if digits:
        type_ = decimal(min(MAX_PRECISION, digits[0] + 10), digits[1])
        return type_, f"CAST(sum({word}{t.sql}) AS {duck_type(type_)})"
    if t.type in INTEGRAL:
        return "bigint", f"CAST(sum({word}{t.sql}) AS BIGINT)"
    if t.type in ("float", "double") and not word:
        return "double", f"sum(CAST({t.sql} AS DOUBLE))"
    raise Refused(f"a sum of {word.lower()}{t.type}")


def average_of(t: Typed, window: str = "", most_digits: int = MOST_AVERAGED_DIGITS) -> tuple[str, str]:
    """The same of an average; ``window`` goes behind every call.

    Beyond ``MOST_AVERAGED_DIGITS`` a sum may need more digits than there are: then DuckDB stops at it.
    """
    count = f"count({t.sql}){window}"
    digits = decimal_of(t.type)
    if digits is None:
        if not is_numeric(t.type):
            raise Refused(f"an average of {t.type}")
        return "double", f"(sum(CAST({t.sql} AS DOUBLE)){window} / {count})"
    precision, scale = digits
    if precision > most_digits:
        raise Refused(f"an average of {t.type}: too many digits to be exact")
    type_ = decimal(precision + 4, scale + 4)
    return type_, decimal_average(type_, f"sum({t.sql}){window}", count)
