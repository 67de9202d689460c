"""A query taken apart once, for all views that may answer it.

Every column gets one name whatever the query calls its table: ``table id.column``. Views' definitions are read with the
same names, so equal texts mean equal values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlglot import exp

from parquetry.model.schema import Column, TableSchema
from parquetry.views.equal import Equal
from parquetry.views.normalize import conjuncts, key_of, normal, text_of
from parquetry.workload.plain_select import (
    NOT_A_TABLE,
    SELF_JOIN,
    NotPlain,
    as_select,
    groups_in,
    items_in,
    kind_of,
    not_a_column,
    tables_in,
    twofold,
)

_READ_ARGS = {
    "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "kind",
}  # fmt: skip
_NAMED = re.compile(r"(\d+)\.(.+)", re.S)
_NAMED_TEXT = re.compile(r"`\d+\.((?:[^`]|``)+)`")
_WRITTEN = "written"


class NoMatch(NotPlain):
    """No view, or not this one, can answer the query, for this reason."""


@dataclass(frozen=True)
class Source:
    """A table of FROM, under the name that the query uses."""

    table_id: int
    table: str
    alias: str
    schema: TableSchema

    @cached_property
    def names(self) -> set[str]:
        return {n.lower() for n in self.schema.names}


def name_of(table_id: int, column: str) -> str:
    return f"{table_id}.{column.lower()}"


def column_key(name: str) -> tuple[Any, ...]:
    """What a column of this one name is recognised by."""
    return (exp.Column, name)


def owner_of(e: exp.Column) -> int | None:
    """The table that a column belongs to; None for a name that is no column of any."""
    found = _NAMED.fullmatch(e.name)
    return int(found[1]) if found is not None else None


def written(e: exp.Column) -> str:
    """The column's name as the query spells it."""
    return str(e.meta.get(_WRITTEN, e.name))


def shown(text: str) -> str:
    """A text for people, and for SQL over the table itself: columns by their own names."""
    return _NAMED_TEXT.sub(lambda m: m[1] if m[1].isidentifier() else f"`{m[1]}`", text)


@dataclass(frozen=True)
class Asked:
    """The parts of a query. ``items`` are (alias, expression); ``equal`` the columns that its joins make equal."""

    query: exp.Select
    sources: tuple[Source, ...]
    items: tuple[tuple[str | None, exp.Expr], ...]
    groups: tuple[exp.Expr, ...]
    where: tuple[exp.Expr, ...]
    joins: tuple[tuple[exp.Column, exp.Column], ...]
    aggregated: bool
    aliases: dict[str, exp.Expr] = field(hash=False, compare=False)

    keys: dict[int, tuple[exp.Expr, tuple[Any, ...]]] = field(default_factory=dict, hash=False, compare=False)
    texts: dict[int, tuple[exp.Expr, str]] = field(default_factory=dict, hash=False, compare=False)
    """By node, since all views ask for the same ones. Nodes are kept: a new one could get the number of a freed one."""

    def key(self, e: exp.Expr) -> tuple[Any, ...]:
        """What a part of the query is recognised by."""
        if id(e) not in self.keys:
            self.keys[id(e)] = (e, key_of(e))
        return self.keys[id(e)][1]

    def text(self, e: exp.Expr) -> str:
        """A part of the query for people."""
        if id(e) not in self.texts:
            self.texts[id(e)] = (e, shown(text_of(normal(e))))
        return self.texts[id(e)][1]

    @cached_property
    def types(self) -> dict[str, str]:
        """The types of the columns that the query names."""
        found = {}
        for c in self.query.find_all(exp.Column):
            if (source := self.source(c)) is not None:
                own = c.name.partition(".")[2]
                found[c.name] = next(k.type for k in source.schema.columns if k.name.lower() == own)
        return found

    @cached_property
    def columns(self) -> TableSchema:
        """The columns that the query names, as if they were of one table."""
        columns = tuple(Column(n, t) for n, t in self.types.items()) or (Column("nothing", "int"),)
        return TableSchema(columns, (columns[0].name,))

    @cached_property
    def never_null(self) -> set[tuple[Any, ...]]:
        """The key columns, which have a value in every row."""
        keyed = [(s.table_id, k) for s in self.sources if not s.schema.null_keys for k in s.schema.key]
        return {column_key(name_of(table_id, k)) for table_id, k in keyed}

    @cached_property
    def equal(self) -> Equal:
        return Equal((a.name, b.name) for a, b in self.joins)

    def source(self, e: exp.Column) -> Source | None:
        owner = owner_of(e)
        return next((s for s in self.sources if s.table_id == owner), None)


def take_apart(query: exp.Query, tables: Mapping[str, tuple[int, TableSchema]]) -> Asked:
    """The parts of a query over plain tables, joined by equal columns; NoMatch says why no view can answer it.

    ``tables`` are number and columns by lowered name. The query itself is changed: its columns get their one names.
    """
    query = as_select(query, _READ_ARGS)
    for e in query.expressions:
        if isinstance(e.unalias(), exp.Star) or e.find(exp.Star) and not e.find(exp.Count):
            raise NoMatch("it returns rows; a view holds groups")
    sources = _sources(query, tables)
    outputs = _outputs_in_order(query)
    for c in list(query.find_all(exp.Column)):
        if id(c) not in outputs:
            _name(c, sources)
    items = items_in(query)
    aliases = {a.lower(): e for a, e in items if a is not None}
    groups = groups_in(query, items, lambda c: owner_of(c) is not None)
    aggregated = bool(groups) or query.args.get("having") is not None or any(e.find(exp.AggFunc) for _, e in items)
    distinct = query.args.get("distinct")
    if not aggregated and (distinct is None or distinct.args.get("on")):
        raise NoMatch("it returns rows; a view holds groups")
    if distinct is not None and query.args.get("order") is not None:
        raise NoMatch("it orders DISTINCT rows")
    where, joins = _conditions(query)
    asked = Asked(query, sources, tuple(items), tuple(groups), where, joins, aggregated, aliases)
    _check_aliases(asked)
    return asked


def _sources(query: exp.Select, tables: Mapping[str, tuple[int, TableSchema]]) -> tuple[Source, ...]:
    found: list[Source] = []
    for item, join in tables_in(query):
        kind = "" if join is None else kind_of(join)
        if join is not None and (kind not in ("", "INNER", "CROSS") or join.args.get("using")):
            raise NoMatch(f"it has {f'a {kind}' if kind not in ('', 'INNER') else 'a USING'} join")
        if item.name.lower() not in tables or item.db:
            raise NoMatch(NOT_A_TABLE)
        table_id, schema = tables[item.name.lower()]
        if any(s.table_id == table_id for s in found):
            raise NoMatch(SELF_JOIN)
        found.append(Source(table_id, item.name, item.alias or item.name, schema))
    return tuple(found)


def _outputs_in_order(query: exp.Select) -> set[int]:
    """The columns of ORDER BY that name an output: there Spark looks among outputs first."""
    order = query.args.get("order")
    aliases = {e.alias.lower() for e in query.expressions if isinstance(e, exp.Alias)}
    return {
        id(c)
        for c in (order.find_all(exp.Column) if order is not None else ())
        if not c.table and c.name.lower() in aliases and c.find_ancestor(exp.AggFunc, exp.Order) is order
    }


def _name(c: exp.Column, sources: Sequence[Source]) -> None:
    """Gives a column its one name; what no table has may be a name of the SELECT list and stays."""
    if len(c.parts) > 2 or isinstance(c.this, exp.Star):
        raise NoMatch(not_a_column(c))
    name, qualifier = c.name.lower(), c.table.lower()
    owners = [s for s in sources if name in s.names and (not qualifier or s.alias.lower() == qualifier)]
    if len(owners) > 1 or (qualifier and not owners):
        raise NoMatch(not_a_column(c))
    if owners:
        c.meta[_WRITTEN] = c.name
        c.set("this", exp.to_identifier(name_of(owners[0].table_id, name), quoted=True))
        c.set("table", None)


def _conditions(query: exp.Select) -> tuple[tuple[exp.Expr, ...], tuple[tuple[exp.Column, exp.Column], ...]]:
    """All conditions of ON and WHERE: those that make columns of two tables equal, and the others."""
    clauses = [j.args.get("on") for j in query.args.get("joins") or []]
    clauses.append(query.args["where"].this if query.args.get("where") is not None else None)
    where: list[exp.Expr] = []
    joins: list[tuple[exp.Column, exp.Column]] = []
    for part in (p for clause in clauses for p in conjuncts(clause)):
        a, b = part.unnest_operands() if isinstance(part, exp.EQ) else (part, part)
        if isinstance(a, exp.Column) and isinstance(b, exp.Column) and _of_two_tables(a, b):
            joins.append((a, b))
        else:
            where.append(part)
    return tuple(where), tuple(joins)


def _of_two_tables(a: exp.Column, b: exp.Column) -> bool:
    owners = {owner_of(a), owner_of(b)}
    return len(owners) == 2 and None not in owners


def _check_aliases(asked: Asked) -> None:
    """A name in HAVING or ORDER BY that is a column and an alias of something else may mean either."""
    for alias, e in asked.aliases.items():
        for clause in ("having", "order"):
            used = asked.query.args.get(clause)
            for c in used.find_all(exp.Column) if used is not None else ():
                if owner_of(c) is not None and written(c).lower() == alias and asked.key(e) != asked.key(c):
                    raise NoMatch(twofold(alias))
