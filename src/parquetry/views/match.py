"""Whether a view can answer a query (NA-46, 3.2-10).

A view matches when it joins its tables as the query does, what the query groups and filters by is made of the view's
groups, and every aggregate is one that the view's own roll up to. Tables of the query that the view does not cover are
joined with it: a group meets the same rows of them as each of its rows would. The rewritten query names the stored
columns; equal keys need not be merged below a roll-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.state import TableState
from parquetry.model.view import ViewColumn, ViewSpec
from parquetry.storage.spark_text import quote
from parquetry.views.asked import Asked, NoMatch, Source, column_key, owner_of, shown, written
from parquetry.views.define import AGGREGATES
from parquetry.views.imply import implied
from parquetry.views.known import EVERYTHING, Key, Known, known

_SCALARS = (
    exp.AggFunc, exp.Connector, exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least,
    exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Sign, exp.Lower, exp.Upper, exp.Concat, exp.Substring, exp.Trim,
    exp.Length, exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear, exp.Hour,
    exp.TimestampTrunc, exp.DateTrunc, exp.TsOrDsToDate, exp.TsOrDsAdd, exp.AddMonths, exp.DateAdd, exp.DateSub,
    exp.DateDiff,
)  # fmt: skip
"""Functions of one row. Others may be aggregates that the parser does not know, which a view must not answer."""


LEAVES = (exp.DataType, exp.Identifier, exp.Var, exp.Star)


@dataclass(frozen=True)
class Rollup:
    """An aggregate over the view: ``function`` of the stored ``columns``.

    An average has a sum and a count; so has a sum from which rows were taken away, which is null without values.
    """

    function: str  # sum, count, min, max, avg or approx_count_distinct
    columns: tuple[str, ...]
    type: str  # of the result, as Spark has it over the table


@dataclass(frozen=True)
class Match:
    """How the parts of a query are read from a view, joined with the tables that it does not cover."""

    asked: Asked
    view: TableState
    spec: ViewSpec
    known: Known
    residual: tuple[exp.Expr, ...]  # the conditions that the view's own filter and joins do not imply

    @cached_property
    def others(self) -> tuple[Source, ...]:
        """The query's tables that are joined with the view."""
        return tuple(s for s in self.asked.sources if s.table_id not in self.known.tables)

    def group_of(self, e: exp.Expr) -> ViewColumn | None:
        """The view's group that is this expression, or that the view's own joins make equal to this column."""
        found = self.known.groups.get(self.asked.key(e))
        if found is None and isinstance(e, exp.Column) and self.known.joins:
            for name in sorted(self.known.equal.of(e.name)):
                equal = self.known.groups.get(column_key(name))
                if equal is not None and equal.type == self.asked.types.get(e.name) not in ("float", "double"):
                    return equal
        return found

    def rollup(self, e: exp.AggFunc) -> Rollup | None:
        """The roll-up that is this aggregate; None for one over groups that is right as it stands."""
        function = kept_function(self.asked, e)
        if isinstance(e.this, exp.Distinct):
            for part in e.this.expressions:
                self.check(part)
            return None
        whole = function == "count" and isinstance(e.this, exp.Star | exp.Literal | exp.Boolean)
        argument = EVERYTHING if whole else self.asked.key(e.this)
        found = self.known.column(function, argument)
        if found is not None:
            return Rollup(function, self.spec.stored(found), found.type)
        made = self._made_of_others(function, argument)
        if made is not None:
            return made
        if function in ("min", "max", DISTINCT):
            try:
                self.check(e.this)
            except NoMatch:
                pass
            else:
                return None
        if any(self.of_another(c) for c in e.find_all(exp.Column)):
            raise NoMatch(f"{self._shown(e)} is of a joined table, which the view's groups meet once, not once per row")
        raise NoMatch(f"the view keeps no {function}({'*' if whole else self.asked.text(e.this)})")

    def _made_of_others(self, function: str, argument: Key) -> Rollup | None:
        """An average from a sum and a count, a count from an average's, and count(x) from count(*) of a key."""
        if function == "count":
            for c in self.spec.aggregates:
                stored = self.spec.stored(c)
                if len(stored) > 1 and self.known.column(c.function, argument) is c:
                    return Rollup("count", (stored[1],), "bigint")
            everything = self.known.column("count", EVERYTHING)
            if everything is not None and argument in self.asked.never_null:
                return Rollup("count", self.spec.stored(everything), "bigint")
        if function == "avg":
            total, count = self.known.column("sum", argument), self._count_of(argument)
            if total is not None and count is not None and total.type in ("bigint", "double"):
                return Rollup("avg", (self.spec.stored(total)[0], count), "double")
        return None

    def _count_of(self, argument: Key) -> str | None:
        column = self.known.column("count", argument)
        if column is not None:
            return self.spec.stored(column)[0]
        made = self._made_of_others("count", argument)
        return made.columns[0] if made is not None else None

    def check(self, e: exp.Expr, *, aliases: bool = False) -> None:
        """Raises NoMatch when the view lacks something that the expression needs; see ``rewrite.derive``."""
        if self.group_of(e) is not None or (isinstance(e, exp.AggFunc) and self.rollup(e) is not None):
            return
        if isinstance(e, exp.Column):
            if not self.of_another(e):
                self.check(self.aliased(e, aliases))
            return
        if isinstance(e, exp.Filter | exp.Query):
            raise NoMatch(f"{self._shown(e)} cannot be made from a view")
        if isinstance(e, exp.Func) and not isinstance(e, _SCALARS):
            raise NoMatch(f"{self._shown(e)} is not known to be a function of single values")
        for child in e.iter_expressions():
            if not isinstance(child, LEAVES):
                self.check(child, aliases=aliases)

    def of_another(self, e: exp.Column) -> bool:
        """Whether a column is of a table that is joined with the view."""
        owner = owner_of(e)
        return owner is not None and owner not in self.known.tables

    def _shown(self, e: exp.Expr) -> str:
        return self.asked.text(e)[:60]

    def aliased(self, e: exp.Column, aliases: bool) -> exp.Expr:
        """What a name of the SELECT list stands for."""
        alias = self.asked.aliases.get(e.name.lower()) if aliases and owner_of(e) is None else None
        if alias is None:
            raise NoMatch(f"the view does not keep {written(e)}")
        return alias

    @cached_property
    def meeting(self) -> tuple[exp.EQ, ...]:
        """The conditions that join the view with the other tables, and those with each other."""
        return tuple(_equation(a, b) for a, b in self.asked.joins if self.of_another(a) or self.of_another(b))


def kept_function(asked: Asked, e: exp.AggFunc) -> str:
    """What a view calls this aggregate; NoMatch when none keeps such a thing."""
    function = AGGREGATES.get(type(e))
    if function is None or any(v for k, v in e.args.items() if k not in ("this", "big_int")):
        kept = "; views keep its default precision" if function == DISTINCT else ""
        raise NoMatch(f"{asked.text(e)[:60]} cannot be made from a view{kept}")
    return function


def match_view(asked: Asked, view: TableState) -> Match:
    """How ``view`` answers the query; NoMatch when it cannot."""
    assert view.view is not None
    spec = view.view.spec
    kept = known(spec)
    if not kept.tables <= {s.table_id for s in asked.sources}:
        raise NoMatch("the view joins a table that the query does not read")
    for a, b in kept.joins:
        if not asked.equal.same(a, b):
            raise NoMatch(f"the view keeps only rows with {shown(quote(a))} = {shown(quote(b))}")
    given = {asked.key(c) for c in asked.where}
    for key, (condition, text) in kept.conditions.items():
        if key not in given and not implied(condition, asked.where, asked.types):
            raise NoMatch(f"the view keeps only rows with {text}")
    residual = [c for c in asked.where if asked.key(c) not in kept.conditions]
    for left, right in asked.joins:
        inside = {owner_of(left), owner_of(right)} <= kept.tables
        if inside and not kept.equal.same(left.name, right.name):
            residual.append(_equation(left, right))
    match = Match(asked, view, spec, kept, tuple(residual))
    for part in (*(e for _, e in asked.items), *asked.groups, *residual, *match.meeting):
        match.check(part)
    having, order = asked.query.args.get("having"), asked.query.args.get("order")
    if having is not None:
        match.check(having.this, aliases=True)
    for o in ordered(order) if order is not None else ():
        if isinstance(o, exp.Var):
            raise NoMatch("the query orders by ALL")
        if not isinstance(o, exp.Literal):
            match.check(o, aliases=True)
    return match


def ordered(order: exp.Expr) -> list[exp.Expr]:
    return [o.this if isinstance(o, exp.Ordered) else o for o in order.expressions]


def _equation(a: exp.Column, b: exp.Column) -> exp.EQ:
    return exp.EQ(this=a.copy(), expression=b.copy())
