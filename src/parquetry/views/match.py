"""Whether a view can answer a query over its table, and what the query becomes over it (NA-46, 3.2-10).

A view matches when what the query groups and filters by is made of the view's groups, and every aggregate is one that
the view's own roll up to. The rewritten query names the stored columns; equal keys need not be merged below a roll-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sqlglot import exp

from parquetry.model.schema import TableSchema
from parquetry.model.state import TableState
from parquetry.model.view import ViewColumn, ViewSpec
from parquetry.views.define import AGGREGATES
from parquetry.views.imply import implied
from parquetry.views.normalize import conjuncts, expression, normal, quoted, text_of
from parquetry.views.project import average
from parquetry.workload.sql_text import SparkText

_READ_ARGS = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "kind"}


_SCALARS = (
    exp.AggFunc, exp.Connector, exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least,
    exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Sign, exp.Lower, exp.Upper, exp.Concat, exp.Substring, exp.Trim,
    exp.Length, exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear, exp.Hour,
    exp.TimestampTrunc, exp.DateTrunc, exp.TsOrDsToDate, exp.TsOrDsAdd, exp.AddMonths, exp.DateAdd, exp.DateSub,
    exp.DateDiff,
)  # fmt: skip
"""Functions of one row. Others may be aggregates that the parser does not know, which a view must not answer."""


_LEAVES = (exp.DataType, exp.Identifier, exp.Var, exp.Star)


class NoMatch(Exception):
    """The view cannot answer the query, for this reason."""


@dataclass(frozen=True)
class Rollup:
    """An aggregate over the view: ``function`` of the stored ``columns``.

    An average has a sum and a count; so has a sum from which rows were taken away, which is null without values.
    """

    function: str  # sum, count, min, max or avg
    columns: tuple[str, ...]
    type: str  # of the result, as Spark has it over the table

    def spark(self, schema: TableSchema) -> str:
        """Spark's text, of exactly the type that the aggregate has over the table."""
        first = quoted(self.columns[0])
        match self.function:
            case "count":
                return f"coalesce(sum({first}), 0L)"
            case "avg":
                return average(self.type, self._sum(schema), f"sum({quoted(self.columns[1])})", duck=False)
            case "sum" if len(self.columns) > 1:
                return f"CASE WHEN sum({quoted(self.columns[1])}) > 0 THEN {self._sum(schema)} END"
            case "sum":
                return self._sum(schema)
        return f"{self.function}({first})"

    def _sum(self, schema: TableSchema) -> str:
        name = self.columns[0]
        return f"CAST(sum({quoted(name)}) AS {schema.column(name).type})"


@dataclass(frozen=True)
class Asked:
    """A query over one table, taken apart once for all views. ``items`` are (alias, expression)."""

    query: exp.Select
    base: TableSchema
    qualifier: str
    items: tuple[tuple[str | None, exp.Expr], ...]
    groups: tuple[exp.Expr, ...]
    where: tuple[exp.Expr, ...]
    aggregated: bool
    aliases: dict[str, exp.Expr] = field(hash=False, compare=False)

    texts: dict[int, tuple[exp.Expr, str]] = field(default_factory=dict, hash=False, compare=False)
    """By node, since all views ask for the same ones. Nodes are kept: a new one could get the number of a freed one."""

    def normal(self, e: exp.Expr) -> exp.Expr:
        return normal(e, (self.qualifier,))

    def text(self, e: exp.Expr) -> str:
        """The normal text of a part of the query."""
        if id(e) not in self.texts:
            self.texts[id(e)] = (e, text_of(self.normal(e)))
        return self.texts[id(e)][1]


def take_apart(query: exp.Query, base: TableSchema) -> Asked:
    """The parts of a query that reads one table once; NoMatch says why no view can answer it."""
    if not isinstance(query, exp.Select):
        raise NoMatch("the query is not a plain SELECT")
    unread = sorted(k for k, v in query.args.items() if v and k not in _READ_ARGS)
    if unread:
        raise NoMatch(f"the query has {unread[0].strip('_').upper()}")
    source = query.args["from_"].this if query.args.get("from_") else None
    if not isinstance(source, exp.Table) or any(v for k, v in source.args.items() if k not in ("this", "alias")):
        raise NoMatch("the query reads something other than a plain table")
    if (source.args.get("alias") and source.args["alias"].args.get("columns")) or next(
        query.find_all(exp.Subquery, exp.Window, exp.Exists), None
    ):
        raise NoMatch("the query has a subquery, a window or renamed columns")
    items: list[tuple[str | None, exp.Expr]] = []
    for e in query.expressions:
        if isinstance(e.unalias(), exp.Star) or e.find(exp.Star) and not e.find(exp.Count):
            raise NoMatch("the query returns rows; a view holds groups")
        items.append((e.alias if isinstance(e, exp.Alias) else None, e.unalias()))
    aliases = {a.lower(): e for a, e in items if a is not None}
    known = {n.lower() for n in base.names}
    groups = _groups(query, items, aliases, known)
    aggregated = bool(groups) or query.args.get("having") is not None or any(e.find(exp.AggFunc) for _, e in items)
    distinct = query.args.get("distinct")
    if not aggregated and (distinct is None or distinct.args.get("on")):
        raise NoMatch("the query returns rows; a view holds groups")
    if distinct is not None and query.args.get("order") is not None:
        raise NoMatch("the query orders DISTINCT rows")
    where = query.args.get("where")
    asked = Asked(
        query=query,
        base=base,
        qualifier=(source.alias or source.name).lower(),
        items=tuple(items),
        groups=tuple(groups),
        where=tuple(conjuncts(where.this)) if where is not None else (),
        aggregated=aggregated,
        aliases=aliases,
    )
    for alias, e in aliases.items():
        for clause in ("having", "order"):
            used = query.args.get(clause)
            twofold = alias in known and asked.normal(e) != exp.column(alias)
            if twofold and used is not None and any(c.name.lower() == alias for c in used.find_all(exp.Column)):
                raise NoMatch(f"the name {alias} is both a column and an alias")
    return asked


def _groups(
    query: exp.Select, items: Sequence[tuple[str | None, exp.Expr]], aliases: dict[str, exp.Expr], known: set[str]
) -> list[exp.Expr]:
    group = query.args.get("group")
    if group is None:
        return []
    if any(v for k, v in group.args.items() if k != "expressions") or group.find(
        exp.Rollup, exp.Cube, exp.GroupingSets
    ):
        raise NoMatch("the query groups by ALL, ROLLUP, CUBE or GROUPING SETS")
    found = []
    for e in group.expressions:
        if isinstance(e, exp.Literal) and not e.is_string and e.this.isdigit():
            if not 1 <= int(e.this) <= len(items):
                raise NoMatch(f"position {e.this} is not in the SELECT list")
            e = items[int(e.this) - 1][1]
        elif isinstance(e, exp.Column) and not e.table and e.name.lower() not in known:
            e = aliases.get(e.name.lower(), e)
        if e.find(exp.AggFunc) or not e.find(exp.Column):
            raise NoMatch("the query groups by an aggregate or a constant")
        found.append(e)
    return found


@dataclass(frozen=True)
class Match:
    """How the parts of a query are read from a view."""

    asked: Asked
    view: TableState
    spec: ViewSpec
    residual: tuple[exp.Expr, ...]  # the conditions that the view's own filter does not imply

    def group_of(self, e: exp.Expr) -> ViewColumn | None:
        """The view's group that is this expression."""
        return _by_argument(self.spec).get(self.asked.text(e))

    def rollup(self, e: exp.AggFunc) -> Rollup | None:
        """The roll-up that is this aggregate; None for one over groups that is right as it stands."""
        function = AGGREGATES.get(type(e))
        if function is None or any(v for k, v in e.args.items() if k not in ("this", "big_int")):
            raise NoMatch(f"{text_of(e)[:60]} cannot be made from a view")
        if isinstance(e.this, exp.Distinct):
            for part in e.this.expressions:
                self.check(part)
            return None
        whole = function == "count" and isinstance(e.this, exp.Star | exp.Literal | exp.Boolean)
        argument = "*" if whole else self.asked.text(e.this)
        found = self._column(function, argument)
        if found is not None:
            return Rollup(function, self.spec.stored(found), found.type)
        made = self._made_of_others(function, argument)
        if made is not None:
            return made
        if function in ("min", "max"):
            try:
                self.check(e.this)
            except NoMatch:
                pass
            else:
                return None
        raise NoMatch(f"the view keeps no {function}({argument})")

    def _column(self, function: str, argument: str) -> ViewColumn | None:
        return next((c for c in self.spec.aggregates if (c.function, c.argument) == (function, argument)), None)

    def _made_of_others(self, function: str, argument: str) -> Rollup | None:
        """An average from a sum and a count, a count from an average's, and count(x) from count(*) of a key."""
        if function == "count":
            for c in self.spec.aggregates:
                stored = self.spec.stored(c)
                if c.argument == argument and len(stored) > 1:
                    return Rollup("count", (stored[1],), "bigint")
            key = {} if self.asked.base.null_keys else {k.lower() for k in self.asked.base.key}
            everything = self._column("count", "*")
            if argument in key and everything is not None:
                return Rollup("count", self.spec.stored(everything), "bigint")
        if function == "avg":
            total, count = self._column("sum", argument), self._count_of(argument)
            if total is not None and count is not None and total.type in ("bigint", "double"):
                return Rollup("avg", (self.spec.stored(total)[0], count), "double")
        return None

    def _count_of(self, argument: str) -> str | None:
        column = self._column("count", argument)
        if column is not None:
            return self.spec.stored(column)[0]
        made = self._made_of_others("count", argument)
        return made.columns[0] if made is not None else None

    def check(self, e: exp.Expr, *, aliases: bool = False) -> None:
        """Raises NoMatch when the view lacks something that the expression needs; see ``derive``."""
        if self.group_of(e) is not None or (isinstance(e, exp.AggFunc) and self.rollup(e) is not None):
            return
        if isinstance(e, exp.Column):
            self.check(self._aliased(e, aliases))
            return
        if isinstance(e, exp.Filter | exp.Query):
            raise NoMatch(f"{text_of(e)[:60]} cannot be made from a view")
        if isinstance(e, exp.Func) and not isinstance(e, _SCALARS):
            raise NoMatch(f"{text_of(e)[:60]} is not known to be a function of single values")
        for child in e.iter_expressions():
            if not isinstance(child, _LEAVES):
                self.check(child, aliases=aliases)

    def _aliased(self, e: exp.Column, aliases: bool) -> exp.Expr:
        """What a name of the SELECT list stands for."""
        alias = self.asked.aliases.get(e.name.lower()) if aliases and not e.table else None
        if alias is None or self.asked.text(alias) == self.asked.text(e):
            raise NoMatch(f"the view does not keep {e.name}")
        return alias

    def derive(self, e: exp.Expr, *, aliases: bool = False) -> exp.Expr:
        """The expression, checked before, over the view's stored columns.

        With ``aliases`` names of the SELECT list stand for what they name.
        """
        column = self.group_of(e)
        if column is not None:
            return exp.column(exp.to_identifier(column.name, quoted=True))
        if isinstance(e, exp.AggFunc):
            made = self.rollup(e)
            if made is not None:
                return exp.Paren(this=expression(made.spark(self.view.schema)))
        if isinstance(e, exp.Column):
            return exp.Paren(this=self.derive(self._aliased(e, aliases)))
        copy = e.copy()
        for child, own in zip(list(copy.iter_expressions()), e.iter_expressions(), strict=True):
            if not isinstance(own, _LEAVES):
                child.replace(self.derive(own, aliases=aliases))
        return copy

    def rewrite(self, names: Sequence[str]) -> str:
        """The query as Spark SQL over the view's stored columns, its outputs called ``names``."""
        query = self.asked.query
        made = exp.Select()
        items = [self.derive(e) for _, e in self.asked.items]
        made.set(
            "expressions",
            [exp.alias_(e, exp.to_identifier(n, quoted=True), copy=False) for e, n in zip(items, names, strict=True)],
        )
        made.set("from_", exp.From(this=exp.to_table(self.view.name)))
        if self.residual:
            made.set("where", exp.Where(this=exp.and_(*[self.derive(c) for c in self.residual])))
        if self.asked.groups:
            made.set("group", exp.Group(expressions=[self.derive(g) for g in self.asked.groups]))
        if query.args.get("having") is not None:
            made.set("having", exp.Having(this=self.derive(query.args["having"].this, aliases=True)))
        if query.args.get("order") is not None:
            made.set("order", self._order(query.args["order"]))
        for part in ("limit", "offset", "distinct"):
            if query.args.get(part) is not None:
                made.set(part, query.args[part].copy())
        return made.sql(dialect=SparkText)

    def _order(self, order: exp.Expr) -> exp.Expr:
        copy = order.copy()
        for o, own in zip(_ordered(copy), _ordered(order), strict=True):
            if not isinstance(own, exp.Literal):
                o.replace(self.derive(own, aliases=True))
        return copy


def match_view(asked: Asked, view: TableState) -> Match:
    """How ``view`` answers the query; NoMatch when it cannot."""
    assert view.view is not None
    spec = view.view.spec
    if len(spec.sources) > 1:
        raise NoMatch("the view joins several tables")
    kept = _conditions(spec)
    given = {asked.text(c) for c in asked.where}
    types = {c.name: c.type for c in asked.base.columns}
    for condition, tree in kept.items():
        if condition not in given and not implied(tree, asked.where, types):
            raise NoMatch(f"the view keeps only rows with {condition}")
    residual = tuple(c for c in asked.where if asked.text(c) not in kept)
    match = Match(asked, view, spec, residual)
    for part in (*(e for _, e in asked.items), *asked.groups, *residual):
        match.check(part)
    having, order = asked.query.args.get("having"), asked.query.args.get("order")
    if having is not None:
        match.check(having.this, aliases=True)
    for o in _ordered(order) if order is not None else ():
        if isinstance(o, exp.Var):
            raise NoMatch("the query orders by ALL")
        if not isinstance(o, exp.Literal):
            match.check(o, aliases=True)
    return match


def _ordered(order: exp.Expr) -> list[exp.Expr]:
    return [o.this if isinstance(o, exp.Ordered) else o for o in order.expressions]


@lru_cache(maxsize=1024)
def _conditions(spec: ViewSpec) -> dict[str, exp.Expr]:
    """The view's own conditions by their normal text."""
    if not spec.where:
        return {}
    parts = [normal(c, _qualifiers(spec)) for c in conjuncts(expression(spec.where))]
    return {text_of(p): p for p in parts}


@lru_cache(maxsize=1024)
def _by_argument(spec: ViewSpec) -> dict[str, ViewColumn]:
    return {c.argument: c for c in spec.groups}


def _qualifiers(spec: ViewSpec) -> tuple[str, ...]:
    return tuple(s.alias.lower() for s in spec.sources)
