"""Aggregates, windows, and expressions above GROUP BY."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from parquetry.query.compile.aggregates import aggregate_name, aggregate_of, argument_of
from parquetry.query.compile.clauses import direction, sort_key
from parquetry.query.compile.expressions import Context, ScopedExpressions
from parquetry.query.compile.scope import Scope
from parquetry.query.compile.typed import Refused, Typed, computed, convert, left_to_spark, literal, signless_zero
from parquetry.workload.coercion import is_numeric
from parquetry.workload.constants import fold
from parquetry.workload.plain_select import NESTED_AGGREGATE, ungrouped

_MOST_AVERAGED_DIGITS = 28  # up to here Spark's sum has ten digits more; what needs more than 38 stops the query
_RANKS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_SPREADS: dict[type[exp.Expr], str] = {
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
}


class RowExpressions(ScopedExpressions):
    """Expressions of a SELECT without groups: windows are allowed, aggregates are not."""

    def compile(self, e: exp.Expr | None) -> Typed:
        return window(e, self) if isinstance(e, exp.Window) else super().compile(e)


class GroupExpressions(ScopedExpressions):
    """Expressions whose columns appear only inside aggregates or as grouping expressions.

    ``groups`` are the compiled grouping expressions. Two expressions are the same group if they compile to the same
    text: then they name the same columns, however they are spelled.
    """

    def __init__(self, scope: Scope, context: Context, groups: Mapping[str, Typed], kinds: set[type[exp.Expr]]) -> None:
        super().__init__(scope, context)
        self.rows = ScopedExpressions(scope, context)
        self.groups, self.kinds = groups, kinds

    def compile(self, e: exp.Expr | None) -> Typed:
        if isinstance(e, exp.Window):
            return window(e, self)
        if isinstance(e, exp.Grouping | exp.GroupingId):
            return self._grouping(e)
        if isinstance(e, exp.AggFunc | exp.Filter):
            return aggregate(e, self.rows, "")
        if type(e) in self.kinds:
            try:
                own = self.rows.compile(e)
            except Refused:
                own = None
            if own is not None and own.sql in self.groups:
                return computed(own.type, signless_zero(own), own.name, [own])
        return super().compile(e)

    def column(self, e: exp.Column) -> Typed:
        found = self.rows.column(e)
        if found.sql in self.groups:
            return computed(found.type, signless_zero(found), found.name, [found])
        if not self.scope.owns(e):
            return found
        raise Refused(ungrouped(e.name))

    def _grouping(self, e: exp.Expr) -> Typed:
        found = [self.rows.compile(x) for x in e.expressions] or list(self.groups.values())
        if any(t.sql not in self.groups for t in found) or (isinstance(e, exp.Grouping) and len(found) != 1):
            raise left_to_spark(e)
        type_, kind = ("tinyint", "TINYINT") if isinstance(e, exp.Grouping) else ("bigint", "BIGINT")
        return computed(type_, f"CAST(grouping({', '.join(signless_zero(t) for t in found)}) AS {kind})", None, found)


def has_aggregate(e: exp.Expr) -> bool:
    """Whether the SELECT that ``e`` belongs to is aggregated because of it; what windows compute does not count."""
    if isinstance(e, exp.Query):
        return False
    if isinstance(e, exp.Window):
        inner = e.this.this if isinstance(e.this, exp.IgnoreNulls | exp.RespectNulls | exp.Filter) else e.this
        beside = [v for k in ("partition_by", "order") for v in _listed(e.args.get(k))]
        return any(has_aggregate(x) for x in (*inner.iter_expressions(), *beside))
    if isinstance(e, exp.AggFunc | exp.Grouping | exp.GroupingId):
        return True
    return any(has_aggregate(x) for x in e.iter_expressions())


def _listed(value: object) -> list[exp.Expr]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, exp.Expr)]


def aggregate(e: exp.Expr, rows: ScopedExpressions, over: str) -> Typed:
    """An aggregate of ``rows``; ``over`` is the text of its window."""
    suffix = over
    if isinstance(e, exp.Filter):
        condition = rows.boolean(e.expression.this)
        e, suffix = e.this, f" FILTER (WHERE {condition.sql}){over}"
    if not isinstance(e, exp.AggFunc):
        raise left_to_spark(e)
    if over and isinstance(e.this, exp.Distinct):
        raise Refused("a window over DISTINCT values")
    if isinstance(e, exp.Count) and isinstance(e.this, exp.Distinct) and len(e.this.expressions) > 1:
        return _count_tuples([rows.compile(x) for x in e.this.expressions], suffix)
    argument, word = argument_of(e)
    if argument is not None and has_aggregate(argument) and not over:
        raise Refused(NESTED_AGGREGATE)
    t = None if argument is None else rows.compile(argument)
    if t is not None and type(e) in _SPREADS:
        if word or not is_numeric(t.type):
            raise left_to_spark(e)
        return computed("double", f"{_SPREADS[type(e)]}({convert(t, 'double')}){suffix}", None, [t])
    made = aggregate_of(e, t, word, suffix, _MOST_AVERAGED_DIGITS)
    return computed(*made, None if suffix else aggregate_name(e, t, word), [t] if t else [])


def _count_tuples(found: list[Typed], suffix: str) -> Typed:
    there = " AND ".join(f"{t.sql} IS NOT NULL" for t in found)
    values = ", ".join(signless_zero(t) for t in found)
    return computed("bigint", f"count(DISTINCT CASE WHEN {there} THEN ({values}) END){suffix}", None, found)


# -- windows --------------------------------------------------------------------------------------


def window(e: exp.Window, inner: ScopedExpressions) -> Typed:
    """A function over a window; ``inner`` compiles its arguments, which may be groups or aggregates."""
    if any(v for k, v in e.args.items() if k not in ("this", "partition_by", "order", "spec", "over")):
        raise Refused("a named window, or one with exceptions")
    parts = []
    if partition := e.args.get("partition_by"):
        parts.append("PARTITION BY " + ", ".join(signless_zero(inner.compile(p)) for p in partition))
    order = e.args.get("order")
    if order is not None:
        parts.append("ORDER BY " + ", ".join(ordered(o, inner.compile) for o in order.expressions))
    spec = e.args.get("spec")
    function = e.this
    if type(function) in _RANKS:
        if order is None or spec is not None:
            raise Refused("a rank without an order, or within a frame")
        return Typed("int", f"CAST({_RANKS[type(function)]}() OVER ({' '.join(parts)}) AS INTEGER)", None)
    if isinstance(function, exp.Lag | exp.Lead):
        if order is None or spec is not None:
            raise Refused("LAG or LEAD without an order, or within a frame")
        return _shifted(function, inner, f" OVER ({' '.join(parts)})")
    if spec is not None:
        if order is None:
            raise Refused("a frame without an order")
        parts.append(_frame(spec))
    return aggregate(function, inner, f" OVER ({' '.join(parts)})")


def ordered(o: exp.Expr, compile_: Callable[[exp.Expr], Typed]) -> str:
    o = sort_key(o)
    return f"{signless_zero(compile_(o.this))} {direction(o)}"


def _shifted(e: exp.Expr, inner: ScopedExpressions, over: str) -> Typed:
    if any(v for k, v in e.args.items() if k not in ("this", "offset", "default")):
        raise left_to_spark(e)
    t = inner.compile(e.this)
    by = fold(e.args["offset"]) if e.args.get("offset") is not None else None
    if e.args.get("default") is not None or (by is not None and (by.type != "int" or by.value is None)):
        raise left_to_spark(e)
    word = "lag" if isinstance(e, exp.Lag) else "lead"
    return computed(t.type, f"{word}({t.sql}, {1 if by is None else int(by.value)}){over}", None, [t])


def _frame(spec: exp.Expr) -> str:
    kind = str(spec.args.get("kind") or "").upper()
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        raise Refused("a frame that is left to Spark")
    start = _bound(spec.args.get("start"), spec.args.get("start_side"), kind)
    end = _bound(spec.args.get("end") or "CURRENT ROW", spec.args.get("end_side"), kind)
    return f"{kind} BETWEEN {start} AND {end}"


def _bound(value: object, side: object, kind: str) -> str:
    word = str(side or "").upper()
    if value in ("UNBOUNDED", "CURRENT ROW"):
        return f"{value} {word}".strip()
    c = fold(value) if isinstance(value, exp.Expr) else None
    if kind != "ROWS" or c is None or c.type != "int" or c.value is None or c.value < 0:
        raise Refused("a frame whose bounds are left to Spark")
    return f"{literal(c)} {word}"
