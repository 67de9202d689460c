"""Expressions in a form in which equal texts mean equal values: without case, qualifiers and parentheses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import sqlglot
from sqlglot import exp

from parquetry.workload.sql_text import SparkText


def normal(e: exp.Expr, qualifiers: Collection[str] = ()) -> exp.Expr:
    """The expression as Spark compares it with those of GROUP BY; ``qualifiers`` that mean nothing new are dropped.

    >>> normal(expression("(T.Day)"), ["t"]).sql()
    '"day"'
    """
    e = e.unnest().copy()
    for paren in list(e.find_all(exp.Paren)):
        if isinstance(paren.this, exp.Column | exp.Literal | exp.Func):
            paren.replace(paren.this)
    for c in list(e.find_all(exp.Column)):
        if isinstance(c.this, exp.Identifier):
            c.this.set("this", c.name.lower())
            c.this.set("quoted", True)
            if c.args.get("table") is not None:
                table = c.table.lower()
                c.set("table", None if table in qualifiers else exp.to_identifier(table, quoted=True))
    return e


def key_of(e: exp.Expr, qualifier: str = "") -> tuple[Any, ...]:
    """A value that is the same for two expressions only if they mean the same; much sooner made than their texts.

    A ``qualifier`` that means nothing new is left out.

    >>> key_of(expression("(T.Day) + 1")) == key_of(expression("t.`day` + (1)"))
    True
    """
    while isinstance(e, exp.Paren):
        e = e.this
    if isinstance(e, exp.Column):
        parts = [p.name.lower() for p in e.parts]
        return (exp.Column, *(parts[1:] if len(parts) == 2 and parts[0] == qualifier else parts))
    if isinstance(e, exp.Literal):
        return (exp.Literal, e.is_string, e.this)
    found: list[Any] = [type(e)]
    for name in sorted(e.args):
        value = e.args[name]
        if isinstance(value, list):
            found += [(name, key_of(v, qualifier) if isinstance(v, exp.Expr) else v) for v in value]
        elif value is not None and value is not False:
            found.append((name, key_of(value, qualifier) if isinstance(value, exp.Expr) else value))
    return tuple(found)


def expression(text: str) -> exp.Expr:
    """A stored expression as a tree."""
    return sqlglot.parse_one(text, dialect=SparkText)


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts of a condition that must all hold."""
    if condition is None:
        return
    whole = condition.unnest()
    if isinstance(whole, exp.And):
        for part in whole.flatten():
            yield from conjuncts(part)
    else:
        yield whole


def text_of(e: exp.Expr) -> str:
    return e.sql(dialect=SparkText)
