"""What a query becomes over the view that answers it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from parquetry.model.distinct import estimate_text, merged_text
from parquetry.model.schema import TableSchema
from parquetry.model.visible import average
from parquetry.storage.spark_text import quote
from parquetry.views.asked import written
from parquetry.views.match import LEAVES, Match, Rollup, ordered
from parquetry.views.normalize import expression
from parquetry.workload.sql_text import SparkText

_VIEW = "__view"
"""The view's alias beside joined tables."""
_ESTIMATED = "parquetry_distinct"
"""Stands for a roll-up of sketches: a text of many figures, which nobody has to parse again."""


def as_text(rewritten: exp.Select) -> str:
    """A rewritten query as Spark takes it."""
    sql = rewritten.sql(dialect=SparkText)
    if _ESTIMATED not in sql.lower():
        return sql
    call = re.compile(rf"{_ESTIMATED}\(((?:`{_VIEW}`\.)?`(?:[^`]|``)*`)\)", re.I)
    # Over the table it is never null, and Spark would say so of its column.
    return call.sub(lambda m: f"coalesce({estimate_text(merged_text(m[1], duck=False), duck=False)}, 0L)", sql)


def derive(match: Match, e: exp.Expr, *, aliases: bool = False) -> exp.Expr:
    """The expression, checked before, over the view's stored columns and those of joined tables.

    With ``aliases`` names of the SELECT list stand for what they name.
    """
    column = match.group_of(e)
    if column is not None:
        return _stored(match, column.name)
    if isinstance(e, exp.AggFunc):
        made = match.rollup(e)
        if made is not None:
            return exp.Paren(this=_qualified(match, expression(rollup_text(made, match.view.schema))))
    if isinstance(e, exp.Column):
        if (other := match.asked.source(e)) is not None and match.of_another(e):
            return _column(written(e), other.alias)
        return exp.Paren(this=derive(match, match.aliased(e, aliases)))
    copy = e.copy()
    for child, own in zip(list(copy.iter_expressions()), e.iter_expressions(), strict=True):
        if not isinstance(own, LEAVES):
            child.replace(derive(match, own, aliases=aliases))
    return copy


def _stored(match: Match, name: str) -> exp.Column:
    return _column(name, _VIEW if match.others else None)


def _qualified(match: Match, e: exp.Expr) -> exp.Expr:
    for c in list(e.find_all(exp.Column)) if match.others else ():
        c.set("table", exp.to_identifier(_VIEW, quoted=True))
    return e


def conditions(match: Match) -> list[exp.Expr]:
    """The conditions on what the view stores, as far as they do not join it with other tables."""
    return [derive(match, c) for c in match.residual]


def source(match: Match) -> exp.Select:
    """The rows that the query needs: FROM and WHERE over the view and the other tables."""
    made = exp.Select()
    made.set("from_", exp.From(this=_table(match.view.name, _VIEW if match.others else None)))
    made.set("joins", [exp.Join(this=_table(s.table, s.alias)) for s in match.others])
    wanted = [*match.residual, *match.meeting]
    if wanted:
        made.set("where", exp.Where(this=exp.and_(*[derive(match, c) for c in wanted], copy=False)))
    return made


def rewrite(match: Match, names: Sequence[str]) -> exp.Select:
    """The query over the view's stored columns, its outputs called ``names``."""
    query = match.asked.query
    made = source(match)
    items = [derive(match, e) for _, e in match.asked.items]
    made.set(
        "expressions",
        [exp.alias_(e, exp.to_identifier(n, quoted=True), copy=False) for e, n in zip(items, names, strict=True)],
    )
    if match.asked.groups:
        made.set("group", exp.Group(expressions=[derive(match, g) for g in match.asked.groups]))
    if query.args.get("having") is not None:
        made.set("having", exp.Having(this=derive(match, query.args["having"].this, aliases=True)))
    if query.args.get("order") is not None:
        made.set("order", _order(match, query.args["order"]))
    for part in ("limit", "offset", "distinct"):
        if query.args.get(part) is not None:
            made.set(part, query.args[part].copy())
    return made


def _order(match: Match, order: exp.Expr) -> exp.Expr:
    copy = order.copy()
    for o, own in zip(ordered(copy), ordered(order), strict=True):
        if not isinstance(own, exp.Literal):
            o.replace(derive(match, own, aliases=True))
    return copy


def rollup_text(rollup: Rollup, schema: TableSchema) -> str:
    """Spark's text, of exactly the type that the aggregate has over the table."""
    first = quote(rollup.columns[0])
    match rollup.function:
        case "approx_count_distinct":
            return f"{_ESTIMATED}({first})"
        case "count":
            return f"coalesce(sum({first}), 0L)"
        case "avg":
            return average(rollup.type, _sum(rollup, schema), f"sum({quote(rollup.columns[1])})", duck=False)
        case "sum" if len(rollup.columns) > 1:
            return f"CASE WHEN sum({quote(rollup.columns[1])}) > 0 THEN {_sum(rollup, schema)} END"
        case "sum":
            return _sum(rollup, schema)
    return f"{rollup.function}({first})"


def _sum(rollup: Rollup, schema: TableSchema) -> str:
    name = rollup.columns[0]
    return f"CAST(sum({quote(name)}) AS {schema.column(name).type})"


def _column(name: str, table: str | None) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table and exp.to_identifier(table, quoted=True))


def _table(name: str, alias: str | None) -> exp.Table:
    made = exp.Table(this=exp.to_identifier(name, quoted=True))
    if alias is not None:
        made.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return made
