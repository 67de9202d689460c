"""Which views a log of queries asks for: a lattice of group-by sets, chosen greedily by benefit per cost.

A candidate is what one query, or several together, group and filter by, with all their aggregates. Its size is
estimated from a sample of the table. Each step takes the candidate that saves the queries most rows beyond those that
have to be written to keep it up, given the views taken before (NA-02, NA-38).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from parquetry.errors import ParquetryError
from parquetry.model.schema import TableSchema
from parquetry.views.match import Asked, NoMatch, take_apart
from parquetry.views.normalize import text_of
from parquetry.workload.sql_text import parse_query

_MOST_SHAPES = 30  # the most frequent shapes of the log, which candidates are made from
_LEAST_REDUCTION = 10  # a joined candidate has at most a tenth of the table's rows


@dataclass(frozen=True)
class Shape:
    """What a query needs of a view: grouping expressions, and aggregates as (function, argument)."""

    groups: frozenset[str]
    aggregates: frozenset[tuple[str, str]]

    def covers(self, other: Shape) -> bool:
        return other.groups <= self.groups and other.aggregates <= self.aggregates

    def __or__(self, other: Shape) -> Shape:
        return Shape(self.groups | other.groups, self.aggregates | other.aggregates)


@dataclass(frozen=True)
class Suggestion:
    """A view worth having: the rows that it saves the logged queries, and the rows that it holds."""

    name: str
    sql: str
    shape: Shape
    rows: int
    queries: int
    rows_before: int  # that those queries read without it
    rows_after: int

    @property
    def factor(self) -> float:
        return self.rows_before / max(1, self.rows_after)


@dataclass(frozen=True)
class Suggested:
    """Views to make, the best first, and views that none of the logged ``queries`` used."""

    views: tuple[Suggestion, ...]
    drop: tuple[str, ...]
    queries: int


def shape_of(sql: str, schema: TableSchema) -> Shape | None:
    """The shape of a logged query; None when no view could answer it."""
    try:
        asked = take_apart(parse_query(sql), schema)
        return _shape(asked)
    except (ParquetryError, NoMatch):
        return None


def _shape(asked: Asked) -> Shape | None:
    """Aggregates as a view would keep them, and every other column that the query touches as a group."""
    aggregates: set[tuple[str, str]] = set()
    having, order = asked.query.args.get("having"), asked.query.args.get("order")
    parts = [e for _, e in asked.items] + [x.this for x in (having,) if x is not None]
    parts += [o.this for o in order.expressions] if order is not None else []
    outside: list[exp.Expr] = list(asked.where)
    for part in parts:
        for call in list(part.find_all(exp.AggFunc)):
            found = _kept(asked, call)
            if found is None:
                return None
            aggregates |= found
        outside.append(part.transform(lambda n: exp.Null() if isinstance(n, exp.AggFunc) else n))
    groups = {text_of(asked.normal(g)) for g in asked.groups}
    names = {n.lower() for n in asked.base.names}
    for part in outside:
        for c in part.find_all(exp.Column):
            name = c.name.lower()
            inside = any(text_of(asked.normal(p)) in groups for p in _above(c))
            if name in names and not inside and not (name in asked.aliases and not c.table):
                groups.add(name)
    return Shape(frozenset(groups), frozenset(aggregates)) if groups else None


def _above(c: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    node: exp.Expr | None = c
    while node is not None:
        found.append(node)
        node = node.parent
    return found


def _kept(asked: Asked, call: exp.AggFunc) -> set[tuple[str, str]] | None:
    function = {exp.Sum: "sum", exp.Count: "count", exp.Min: "min", exp.Max: "max", exp.Avg: "avg"}.get(type(call))
    if function is None or isinstance(call.this, exp.Distinct):
        return None
    whole = function == "count" and isinstance(call.this, exp.Star | exp.Literal)
    return {(function, "*" if whole else text_of(asked.normal(call.this)))}


def suggest(
    table: str,
    shapes: Sequence[Shape],
    rows: int,
    estimate: Callable[[frozenset[str]], float],
    most: int,
) -> list[Suggestion]:
    """At most ``most`` views for queries of these shapes over a table of ``rows`` rows.

    ``estimate`` gives the number of groups of a set of grouping expressions. A view that saves less than a
    fifth of what its queries read is not worth its keep.
    """
    asked = Counter(shapes)
    sizes: dict[frozenset[str], float] = {}

    def size(groups: frozenset[str]) -> float:
        if groups not in sizes:
            sizes[groups] = min(float(rows), max(1.0, estimate(groups)))
        return sizes[groups]

    candidates = _candidates(asked, size, rows)
    cost = {s: float(rows) for s in asked}  # rows that a query of this shape reads now
    chosen: list[Suggestion] = []
    while len(chosen) < most:
        best: tuple[float, Shape] | None = None
        for c in candidates:
            saved = sum(n * max(0.0, cost[s] - size(c.groups)) for s, n in asked.items() if c.covers(s))
            saved -= size(c.groups)
            if saved > 0 and (best is None or saved > best[0]):
                best = (saved, c)
        if best is None:
            break
        shape = best[1]
        mine = [s for s in asked if shape.covers(s) and cost[s] > size(shape.groups)]
        before = sum(int(cost[s]) * asked[s] for s in mine)
        after = sum(int(size(shape.groups)) * asked[s] for s in mine)
        if after > before * 0.8:
            break
        for s in mine:
            cost[s] = size(shape.groups)
        name = f"{table}_by_{'_'.join(sorted(_word(g) for g in shape.groups))}"[:100]
        name = name if name not in {c.name for c in chosen} else f"{name}_{len(chosen)}"
        count = sum(asked[s] for s in mine)
        chosen.append(Suggestion(name, _definition(table, shape), shape, int(size(shape.groups)), count, before, after))
    return chosen


def _candidates(asked: Counter[Shape], size: Callable[[frozenset[str]], float], rows: int) -> list[Shape]:
    """The shapes, and from each a chain of ever wider ones: joined with the shape that makes it grow least.

    A chain ends where the view would no longer be much smaller than the table.
    """
    usual = [s for s, _ in asked.most_common(_MOST_SHAPES)]
    made = list(usual)
    for start in usual:
        wide, left = start, [s for s in usual if not start.covers(s)]
        while left and size(wide.groups) < rows / _LEAST_REDUCTION:
            wide |= _nearest(wide, left, size)
            left = [s for s in left if not wide.covers(s)]
            made.append(wide)
    with_all_aggregates = []
    for c in made:
        for s in usual:
            if s.groups <= c.groups:
                c |= s
        with_all_aggregates.append(c)
    return list(dict.fromkeys(with_all_aggregates))


def _nearest(wide: Shape, left: Sequence[Shape], size: Callable[[frozenset[str]], float]) -> Shape:
    return min(left, key=lambda s: size((wide | s).groups))


def _definition(table: str, shape: Shape) -> str:
    groups = sorted(shape.groups)
    listed = [g if g.isidentifier() else f"{g} AS {_word(g)}" for g in groups]
    counted = shape.aggregates | {("count", "*")}
    listed += [f"{f}({a}) AS {f}_{'rows' if a == '*' else _word(a)}" for f, a in sorted(counted)]
    return f"SELECT {', '.join(listed)} FROM {table} GROUP BY {', '.join(groups)}"


def _word(text: str) -> str:
    """An expression as part of a name."""
    return "_".join("".join(c if c.isalnum() else " " for c in text.lower()).split())
