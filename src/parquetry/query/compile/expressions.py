"""Expressions over the rows of any FROM: columns of several relations, subqueries, and functions on the whitelist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from parquetry.query.compile import functions
from parquetry.query.compile.decimals import (
    brought_to,
    divide,
    remainder,
    rounded_arithmetic,
    whole_quotient,
    wider_type,
)
from parquetry.query.compile.plain_expressions import Expressions
from parquetry.query.compile.scope import Field, Scope
from parquetry.query.compile.typed import Refused, Typed, computed, signless_zero
from parquetry.workload.coercion import arithmetic_type, common_type, is_exact


@dataclass(frozen=True)
class Rows:
    """A compiled query: its text, whose columns are called c0, c1 …, with what Spark calls them and their types."""

    sql: str
    fields: tuple[Field, ...]
    correlated: bool = False
    one_row: bool = False  # an aggregate without groups: exactly one row


class Context(Protocol):
    """What expressions ask of the query that they are part of."""

    text: str  # lowered; tells what the parser forgets
    named: bool  # whether the parsed text tells how Spark names expressions

    def rows(self, query: exp.Query, around: Scope) -> Rows:
        """Compiles a query inside an expression."""

    def use(self, field: Field) -> None:
        """The text names this column."""


class ScopedExpressions(Expressions):
    """Compiles expressions whose names a scope explains."""

    def __init__(self, scope: Scope, context: Context) -> None:
        self.scope, self.context, self.text = scope, context, context.text
        self.coalesce_named = "nvl" not in self.text and "ifnull" not in self.text

    def compile(self, e: exp.Expr | None) -> Typed:
        if e is None:
            raise Refused("something that is left out")
        made = functions.COMPILED.get(type(e))
        if made is not None:
            return made(self, e)
        match e:
            case exp.Subquery() | exp.Select():
                return self._scalar(e)
            case exp.Exists():
                return self._exists(e)
            case exp.In() if e.args.get("query") is not None:
                return self._in_query(e)
            case exp.Div():
                return divide(self.compile(e.this), self.compile(e.expression))
            case exp.IntDiv():
                return whole_quotient(self.compile(e.this), self.compile(e.expression))
            case exp.Mod():
                return remainder(self.compile(e.this), self.compile(e.expression))
        return super().compile(e)

    def column(self, e: exp.Column) -> Typed:
        field = self.scope.find(e)
        self.context.use(field)
        return Typed(field.type, field.sql, e.name, frozenset([field.sql]))

    def comparison(self, op: str, a: Typed, b: Typed) -> Typed:
        if a.type == b.type and a.type in ("float", "double") and op in ("=", "<>"):
            a, b = (replace(t, sql=signless_zero(t)) for t in (a, b))  # in a join they are hashed
        if is_exact(a.type) and is_exact(b.type) and common_type(a.type, b.type) is None:
            common = wider_type(a.type, b.type) or ""
            if a.constant is None and b.constant is None:
                text = f"({brought_to(a, common)} {op} {brought_to(b, common)})"
                return computed("boolean", text, None, [a, b])
        return super().comparison(op, a, b)

    def _arithmetic(self, op: str, a: Typed, b: Typed) -> Typed:
        if arithmetic_type(op, a.beside(b), b.beside(a)) is None:
            return rounded_arithmetic(op, a, b)
        return super()._arithmetic(op, a, b)

    # -- subqueries -------------------------------------------------------------------------------

    def _scalar(self, e: exp.Expr) -> Typed:
        rows = self._rows(e)
        if len(rows.fields) != 1:
            raise Refused("a subquery of several columns as a value")
        if rows.correlated and not rows.one_row:
            raise Refused("a correlated subquery that may give more than one row")
        (field,) = rows.fields
        return Typed(field.type, f"({rows.sql})", None)

    def _exists(self, e: exp.Exists) -> Typed:
        rows = self._rows(e.this)
        return Typed("boolean", f"EXISTS ({rows.sql})", None)

    def _in_query(self, e: exp.In) -> Typed:
        if isinstance(e.this, exp.Tuple):
            raise Refused("several columns IN a subquery")
        value, rows = self.compile(e.this), self._rows(e.args["query"])
        if len(rows.fields) != 1:
            raise Refused("IN a subquery of several columns")
        (field,) = rows.fields
        common = wider_type(value.type, field.type)
        if common is None or common == "void":
            raise Refused(f"{value.type} IN a subquery of {field.type}")
        inner = rows.sql
        if field.type != common or common in ("float", "double"):
            listed = Typed(common, brought_to(Typed(field.type, "c0", None), common), None)
            if rows.correlated:
                raise Refused("a correlated subquery of another type")
            inner = f"SELECT {signless_zero(listed)} FROM ({inner})"
        left = signless_zero(Typed(common, brought_to(value, common), None))
        return computed("boolean", f"({left} IN ({inner}))", None, [value])

    def _rows(self, e: exp.Expr) -> Rows:
        query = e.this if isinstance(e, exp.Subquery) else e
        if isinstance(e, exp.Subquery) and any(v for k, v in e.args.items() if k != "this"):
            raise Refused("a subquery with more than its query")
        if not isinstance(query, exp.Query):
            raise Refused("something in parentheses that is no query")
        return self.context.rows(query, self.scope)
