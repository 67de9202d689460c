"""Aggregates on the whitelist, and expressions above GROUP BY."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from parquetry.model.visible import MOST_AVERAGED_DIGITS, decimal_average
from parquetry.query.compile.plain_expressions import Expressions, RowSource
from parquetry.query.compile.typed import Refused, Typed, duck_type, left_to_spark, signless_zero
from parquetry.views.normalize import key_of
from parquetry.workload.coercion import INTEGRAL, MAX_PRECISION, decimal, decimal_of, is_numeric
from parquetry.workload.plain_select import ungrouped

_PLAIN = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)


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
        self.groups = {self._same(g) for g in groups}
        self.group_kinds = {type(g.unnest()) for g in groups}

    def compile(self, e: exp.Expr | None) -> Typed:
        if isinstance(e, exp.AggFunc):
            return self._aggregate(e)
        if e is not None and type(e) in self.group_kinds and self._same(e) in self.groups:
            t = self.rows.compile(e)
            return Typed(t.type, signless_zero(t), t.name, t.columns)
        return super().compile(e)

    def column(self, e: exp.Column) -> Typed:
        self.rows.column(e)  # an unknown column is an error whatever comes next
        raise Refused(ungrouped(e.name))

    def _same(self, e: exp.Expr) -> Hashable:
        """Equal for expressions that are one group."""
        return key_of(e, self.source.name.lower())

    def _aggregate(self, e: exp.AggFunc) -> Typed:
        argument, word = argument_of(e)
        if type(e) not in _PLAIN or (word and isinstance(e, exp.Min | exp.Max)):
            raise left_to_spark(e)
        t = None if argument is None else self.rows.compile(argument)
        type_, sql = aggregate_of(e, t, word)
        columns = t.columns if t else frozenset()
        bare = next(iter(columns)) if t and t.sql == self.source.prefix + f'"{next(iter(columns), "")}"' else None
        self.calls.append(AggregateCall(e.sql_name().lower(), bare, columns, bool(word)))
        return Typed(type_, sql, aggregate_name(e, t, word), columns)


def argument_of(e: exp.AggFunc) -> tuple[exp.Expr | None, str]:
    """What is aggregated (None: rows), and the word before it: DISTINCT, or nothing."""
    if any(v for k, v in e.args.items() if k not in ("this", "big_int")):
        raise left_to_spark(e)
    if isinstance(e, exp.Count) and isinstance(e.this, exp.Star):
        return None, ""
    if not isinstance(e.this, exp.Distinct):
        return e.this, ""
    if len(e.this.expressions) != 1 or e.this.args.get("on"):
        raise Refused("DISTINCT over several columns")
    return e.this.expressions[0], "DISTINCT "


def aggregate_of(
    e: exp.AggFunc, t: Typed | None, word: str, window: str = "", most_digits: int = MOST_AVERAGED_DIGITS
) -> tuple[str, str]:
    """The Spark type of an aggregate of ``t`` (None: of rows), and DuckDB text that computes it."""
    match e:
        case exp.Count() if t is None:
            return "bigint", f"count(*){window}"
        case exp.Count() if t is not None:
            return "bigint", f"count({word}{signless_zero(t) if word else t.sql}){window}"
        case exp.Sum() if t is not None:
            return sum_of(t, word, window)
        case exp.Avg() if t is not None and not word:
            return average_of(t, window, most_digits)
        case exp.Min() | exp.Max() if t is not None and t.type != "void":
            return t.type, f"{e.sql_name().lower()}({t.sql}){window}"
    raise left_to_spark(e)


def aggregate_name(e: exp.AggFunc, t: Typed | None, word: str) -> str | None:
    """What Spark calls the column."""
    if t is None:
        return "count(1)"
    return t.name and f"{e.sql_name().lower()}({word}{t.name})"


def sum_of(t: Typed, word: str, window: str = "") -> tuple[str, str]:
    """The same of a sum; ``window`` goes behind every call."""
    total = f"sum({word}{t.sql}){window}"
    digits = decimal_of(t.type)
    if digits:
        type_ = decimal(min(MAX_PRECISION, digits[0] + 10), digits[1])
        return type_, f"CAST({total} AS {duck_type(type_)})"
    if t.type in INTEGRAL:
        return "bigint", f"CAST({total} AS BIGINT)"
    if t.type in ("float", "double") and not word:
        return "double", f"sum(CAST({t.sql} AS DOUBLE)){window}"
    raise Refused(f"a sum of {word.lower()}{t.type}")


def average_of(t: Typed, window: str = "", most_digits: int = MOST_AVERAGED_DIGITS) -> tuple[str, str]:
    """The same of an average.

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
