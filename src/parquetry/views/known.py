"""What a view keeps, under the names that queries are taken apart with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlglot import exp

from parquetry.model.view import ViewColumn, ViewSpec
from parquetry.views.asked import NoMatch, name_of, shown
from parquetry.views.equal import Equal
from parquetry.views.normalize import conjuncts, expression, key_of, normal, text_of

Key = tuple[Any, ...]
EVERYTHING: Key = ("*",)
"""The argument of ``count(*)``."""


@dataclass(frozen=True, eq=False)
class Known:
    """``groups`` by what they are recognised by, ``aggregates`` by function and argument as well.

    All its rows satisfy ``conditions``, given with their texts for people.
    """

    tables: frozenset[int]
    groups: dict[Key, ViewColumn]
    aggregates: dict[tuple[str, Key], ViewColumn]
    conditions: dict[Key, tuple[exp.Expr, str]]
    joins: tuple[tuple[str, str], ...]
    equal: Equal

    def column(self, function: str, argument: Key) -> ViewColumn | None:
        return self.aggregates.get((function, argument))


@lru_cache(maxsize=1024)
def known(spec: ViewSpec) -> Known:
    """The view's parts, read once per definition."""
    joins = []
    for part in (p for s in spec.sources if s.on for p in conjuncts(_named(s.on, spec))):
        a, b = part.unnest_operands()
        joins.append((a.name, b.name))
    conditions = list(conjuncts(_named(spec.where, spec))) if spec.where else []
    return Known(
        frozenset(s.table_id for s in spec.sources),
        {_key(c.argument, spec): c for c in spec.groups},
        {(c.function, _key(c.argument, spec)): c for c in spec.aggregates},
        {key_of(c): (c, shown(text_of(normal(c)))) for c in conditions},
        tuple(joins),
        Equal(joins),
    )


def _key(argument: str, spec: ViewSpec) -> Key:
    return EVERYTHING if argument == "*" else key_of(_named(argument, spec))


def _named(text: str, spec: ViewSpec) -> exp.Expr:
    e = expression(text)
    owners = {s.alias.lower(): s.table_id for s in spec.sources}
    for c in list(e.find_all(exp.Column)):
        if not c.table and len(spec.sources) > 1:
            raise NoMatch(f"its definition does not say which table has {c.name}")
        owner = owners[c.table.lower()] if c.table else spec.sources[0].table_id
        c.set("this", exp.to_identifier(name_of(owner, c.name), quoted=True))
        c.set("table", None)
    return e
