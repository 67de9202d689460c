"""What a logged query needs of a view, or why no view is made for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError

from parquetry.errors import ParquetryError
from parquetry.model.schema import TableSchema
from parquetry.storage.spark_text import quote
from parquetry.views.asked import Asked, NoMatch, owner_of, take_apart
from parquetry.views.define import NO_DISTINCT
from parquetry.views.match import kept_function
from parquetry.views.normalize import expression as tree_of
from parquetry.workload.plain_select import NotPlain
from parquetry.workload.sql_text import parse_query, words_of
from parquetry.workload.understood import escapes, not_bound, not_understood


@dataclass(frozen=True)
class Shape:
    """What a query needs of a view: grouping expressions, and aggregates as (function, argument)."""

    groups: frozenset[str]
    aggregates: frozenset[tuple[str, str]]
    fixed: frozenset[str] = frozenset()  # groups of which the query wants one value

    def covers(self, other: Shape) -> bool:
        """Whether a view of this shape answers queries of the other: what they group by is made of its groups."""
        return other.aggregates <= self.aggregates and all(
            g in self.groups or _columns(g) <= self.groups for g in other.groups
        )

    def __or__(self, other: Shape) -> Shape:
        return Shape(self.groups | other.groups, self.aggregates | other.aggregates, self.fixed | other.fixed)


def shape_of(sql: str, tables: Mapping[str, tuple[int, TableSchema]]) -> tuple[Asked, Shape] | NoMatch:
    """A query over one table and its shape, or why no view is made for it, as ``explain`` says it.

    ``tables`` as for ``take_apart``.
    """
    try:
        words = words_of(sql)
        if doubt := not_understood(words) or escapes(sql):
            return NoMatch(doubt)
        query = parse_query(sql, words)
        if doubt := not_bound(query, sql, words):
            return NoMatch(doubt)
        asked = take_apart(query, tables)
        return asked, _shape(asked)
    except (ParquetryError, NotPlain) as e:
        return NoMatch(str(e))


def _shape(asked: Asked) -> Shape:
    """Aggregates as a view would keep them, and every other column that the query touches as a group."""
    if len(asked.sources) > 1:
        raise NoMatch("it joins tables; views are suggested over one table")
    aggregates: set[tuple[str, str]] = set()
    having, order = asked.query.args.get("having"), asked.query.args.get("order")
    parts = [e for _, e in asked.items] + [x.this for x in (having,) if x is not None]
    parts += [o.this for o in order.expressions] if order is not None else []
    outside: list[exp.Expr] = list(asked.where)
    for part in parts:
        aggregates |= {_kept(asked, call) for call in part.find_all(exp.AggFunc)}
        outside.append(part.transform(lambda n: exp.Null() if isinstance(n, exp.AggFunc) else n))
    groups = {asked.text(g) for g in asked.groups}
    for part in outside:
        for c in part.find_all(exp.Column):
            inside = any(asked.text(p) in groups for p in _above(c))
            if owner_of(c) is not None and not inside:
                groups.add(asked.text(c))
    groups = {g for g in groups if not _columns(g) <= groups - {g}}
    if not groups:
        raise NoMatch("it groups and filters by no column; any view with its aggregates gives the total")
    return Shape(frozenset(groups), frozenset(aggregates), frozenset(_fixed(asked)) & groups)


@lru_cache(maxsize=4096)
def _columns(expression: str) -> frozenset[str]:
    """The columns that a grouping expression is made of; itself where that is not certain."""
    try:
        names = [c.name.lower() for c in tree_of(expression).find_all(exp.Column)]
    except SqlglotError:
        names = []
    return frozenset(n if n.isidentifier() else quote(n) for n in names) or frozenset([expression])


def _fixed(asked: Asked) -> set[str]:
    """The expressions that the query compares with one constant."""
    found = set()
    for c in asked.where:
        if isinstance(c, exp.EQ):
            sides = c.unnest_operands()
            constant = [not s.find(exp.Column) for s in sides]
            found |= {asked.text(s) for s, fixed in zip(sides, constant, strict=True) if not fixed and any(constant)}
    return found


def _above(c: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    node: exp.Expr | None = c
    while node is not None:
        found.append(node)
        node = node.parent
    return found


def _kept(asked: Asked, call: exp.AggFunc) -> tuple[str, str]:
    function = kept_function(asked, call)
    if isinstance(call.this, exp.Distinct):
        raise NoMatch(f"{asked.text(call)[:60]}: {NO_DISTINCT}")
    whole = function == "count" and isinstance(call.this, exp.Star | exp.Literal)
    return function, "*" if whole else asked.text(call.this)
