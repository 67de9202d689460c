"""The clauses of a SELECT as both compilers read them: the list, DISTINCT, aliases, ORDER BY, LIMIT and OFFSET.

Why one of them is left to Spark is said here, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pyarrow as pa
from sqlglot import exp

from parquetry.model.types import arrow_type
from parquetry.query.compile.typed import Refused
from parquetry.workload.plain_select import Item, twofold

T = TypeVar("T")


def is_distinct(select: exp.Select) -> bool:
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise Refused("it has DISTINCT ON")
    return distinct is not None


def items_of(select: exp.Select, star: Callable[[str], Iterable[Item[T]]]) -> list[Item[exp.Expr | T]]:
    """The SELECT list; ``star`` gives what * stands for, behind this qualifier."""
    items: list[Item[exp.Expr | T]] = []
    for e in select.expressions:
        inner = e.unalias()
        written = inner.this if isinstance(inner, exp.Column) else inner
        if isinstance(written, exp.Star):
            if any(written.args.values()):
                raise Refused("it has a star with exceptions")
            items += star(inner.table if isinstance(inner, exp.Column) else "")
        elif isinstance(e, exp.Aliases):
            raise Refused("it names several columns of one expression")
        else:
            items.append((e.alias if isinstance(e, exp.Alias) else None, inner))
    return items


# -- what Spark calls the columns -----------------------------------------------------------------


def tells_names(query: exp.Expr, text: str) -> bool:
    """Whether the tree tells how Spark names expressions: it keeps a plus sign before one, which the parser drops."""
    return "+" not in text or text.count("+") == len(list(query.find_all(exp.Add)))


def named_after(e: exp.Expr) -> exp.Column | None:
    """The column whose name Spark gives to the expression: itself, or the one that is cast."""
    e = e.unnest()
    while isinstance(e, exp.Cast):
        e = e.this.unnest()
    return e if isinstance(e, exp.Column) else None


def known_type(type_: str) -> str:
    if type_ == "void":
        raise Refused("a column of NULL without a type")
    return type_


def answer_schema(columns: Iterable[tuple[str | None, str]]) -> pa.Schema:
    """Of columns with these names and Spark types."""
    fields = []
    for i, (name, type_) in enumerate(columns, 1):
        arrow = arrow_type(known_type(type_))
        if name is None:
            raise Refused(f"Spark's name for column {i} is not certain; give it an alias")
        fields.append(pa.field(name, arrow))
    return pa.schema(fields)


# -- aliases --------------------------------------------------------------------------------------


def without_aliases(
    e: exp.Expr,
    meant_by: Callable[[exp.Expr], exp.Expr | None],
    is_column: Callable[[exp.Column], bool],
    *,
    prefer_output: bool,
) -> exp.Expr:
    """``e`` with names of the SELECT list replaced by what they stand for. A name that is a column, too, means the
    output in ORDER BY (``prefer_output``) and is not certain elsewhere."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table or node.find_ancestor(exp.Query):
            return node  # a query inside has names of its own
        meant = meant_by(node)
        if meant is None or meant == node:
            return node
        column = meant.unnest()
        same = isinstance(column, exp.Column) and column.name.lower() == node.name.lower()
        if not prefer_output and not same and is_column(node):
            raise Refused(twofold(node.name))
        return exp.Paren(this=meant.copy())

    return e.transform(replaced)


# -- order and number of rows ---------------------------------------------------------------------


def sort_key(o: exp.Expr) -> exp.Ordered:
    """One expression of ORDER BY, with its direction."""
    if not isinstance(o, exp.Ordered) or o.args.get("with_fill") or isinstance(o.this, exp.Var):
        raise Refused("it orders by ALL")
    return o


def not_constant(e: exp.Expr) -> exp.Expr:
    if not e.find(exp.Column, exp.AggFunc):
        raise Refused("it orders by a constant")
    return e


def sorts_selected(selected: bool, distinct: bool) -> None:
    """Behind DISTINCT there is nothing to sort by but what is selected."""
    if distinct and not selected:
        raise Refused("it orders DISTINCT rows by something that is not selected")


def direction(o: exp.Ordered) -> str:
    return f"{'DESC' if o.args.get('desc') else 'ASC'} NULLS {'FIRST' if o.args.get('nulls_first') else 'LAST'}"


def row_count(query: exp.Expr, clause: str) -> int | None:
    """The number behind LIMIT or OFFSET."""
    node = query.args.get(clause)
    if node is None:
        return None
    e = node.expression
    if not (isinstance(node, exp.Limit | exp.Offset) and isinstance(e, exp.Literal) and e.this.isdigit()):
        raise Refused(f"{clause.upper()} is not a plain number")
    if any(v for k, v in node.args.items() if k != "expression"):
        raise Refused(f"{clause.upper()} has options")
    return int(e.this)


def limits(query: exp.Expr) -> list[str]:
    """LIMIT and OFFSET as text, in DuckDB's words and in Spark's."""
    counts = {clause.upper(): row_count(query, clause) for clause in ("limit", "offset")}
    return [f"{word} {n}" for word, n in counts.items() if n is not None]
