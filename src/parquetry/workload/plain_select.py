"""One SELECT over plain tables, taken apart: what the local compiler, scan workers, views and their matching read.

Why a query is no such thing is said here, so that everybody says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from sqlglot import exp

T = TypeVar("T")
Item = tuple[str | None, T]
"""Of a SELECT list: the alias, and the expression."""


NOT_A_TABLE = "it reads something other than a plain table"
SELF_JOIN = "it joins a table with itself"
NESTED_AGGREGATE = "an aggregate is inside an aggregate"


def not_a_column(e: exp.Column) -> str:
    return f"{e.sql('spark')[:60]} is not a plain column"


def twofold(name: str) -> str:
    return f"the name {name} is both a column and an alias"


def ungrouped(name: str) -> str:
    return f"column {name} is neither grouped nor aggregated"


class NotPlain(Exception):
    """The query is more than one part of Parquetry reads; the message is the reason."""


def as_select(query: exp.Expr, read: Collection[str]) -> exp.Select:
    """The query as one SELECT without others inside it, with the clauses ``read`` at the most."""
    if not isinstance(query, exp.Select):
        raise NotPlain("it is not a plain SELECT")
    unread = sorted(k for k, v in query.args.items() if v and k not in read)
    if unread:
        raise NotPlain(f"it has {'ORDER BY' if unread[0] == 'order' else unread[0].strip('_').upper()}")
    if next(query.find_all(exp.Subquery, exp.Exists), None) or len(list(query.find_all(exp.Select))) > 1:
        raise NotPlain("it has a subquery")
    if next(query.find_all(exp.Window), None):
        raise NotPlain("it has a window function")
    return query


def tables_in(query: exp.Select) -> list[tuple[exp.Table, exp.Join | None]]:
    """The plain tables of FROM, each with the join that brings it."""
    if not query.args.get("from_"):
        raise NotPlain("it reads no table")
    found = [(query.args["from_"].this, None), *((j.this, j) for j in query.args.get("joins") or [])]
    for table, _ in found:
        check_table(table)
        if table.args.get("alias") and table.args["alias"].args.get("columns"):
            raise NotPlain("a table's columns are renamed")
    return found


def check_table(table: exp.Expr) -> None:
    plain = ("this", "alias", "db", "catalog")
    if not isinstance(table, exp.Table) or any(v for k, v in table.args.items() if k not in plain):
        raise NotPlain(NOT_A_TABLE)


def kind_of(join: exp.Join) -> str:
    return " ".join(w for w in (join.method, join.side, join.kind) if w).upper()


def items_in(query: exp.Select) -> list[Item[exp.Expr]]:
    return [(e.alias if isinstance(e, exp.Alias) else None, e.unalias()) for e in query.expressions]


class SelectList(Generic[T]):
    """What positions and names of a SELECT list stand for."""

    def __init__(self, items: Sequence[Item[T]]) -> None:
        self._items = items

    def place(self, e: exp.Expr) -> int | None:
        """Of what a position or the name of an item means; None for anything else."""
        if isinstance(e, exp.Literal) and not e.is_string:
            if not (e.this.isdigit() and 1 <= int(e.this) <= len(self._items)):
                raise NotPlain(f"position {e.this} is not in the SELECT list")
            return int(e.this) - 1
        if isinstance(e, exp.Column) and not e.table:
            same = [i for i, (alias, _) in enumerate(self._items) if alias and alias.lower() == e.name.lower()]
            if len(same) > 1:
                raise NotPlain(f"the name {e.name} is ambiguous")
            return same[0] if same else None
        return None

    def meant_by(self, e: exp.Expr) -> T | None:
        at = self.place(e)
        return None if at is None else self._items[at][1]


def groups_in(
    query: exp.Select, items: Sequence[Item[exp.Expr]], is_column: Callable[[exp.Column], bool]
) -> list[exp.Expr]:
    """The expressions of GROUP BY, with positions and names of the SELECT list written out: a name that is a column of
    a table means that."""
    group = query.args.get("group")
    if group is None:
        return []
    special = group.find(exp.Rollup, exp.Cube, exp.GroupingSets)
    if special or any(v for k, v in group.args.items() if k != "expressions") or not group.expressions:
        raise NotPlain("it groups by ALL, ROLLUP, CUBE or GROUPING SETS")
    selected, found = SelectList(items), []
    for e in group.expressions:
        if not (isinstance(e, exp.Column) and is_column(e)):
            e = selected.meant_by(e) or e
        if e.find(exp.AggFunc):
            raise NotPlain("it groups by an aggregate")
        if not e.find(exp.Column):
            raise NotPlain("it groups by a constant")
        found.append(e)
    return found
