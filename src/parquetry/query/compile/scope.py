"""Names inside one SELECT of a query that is compiled for DuckDB: which column of which relation a name means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from parquetry.query.compile.typed import Refused
from parquetry.workload.plain_select import not_a_column


@dataclass(frozen=True)
class Field:
    """A column of a relation: what Spark calls it (None: not certain), its Spark type, and how the text names it.

    ``base`` is set if it is a column of a base table: the number of that mention of the table, and its name there.
    """

    name: str | None
    type: str
    sql: str
    base: tuple[int, str] | None = None


@dataclass(frozen=True)
class Relation:
    """An item of FROM. ``visible`` are the columns that bare names and ``*`` mean, in order; ``named`` those of each
    alias. A column that USING joins is once among the former and in both aliases."""

    sql: str
    visible: tuple[Field, ...]
    named: tuple[tuple[str, tuple[Field, ...]], ...] = ()

    @classmethod
    def of(cls, sql: str, alias: str, fields: Sequence[Field]) -> Relation:
        return cls(sql, tuple(fields), ((alias, tuple(fields)),) if alias else ())

    def beside(self, other: Relation, sql: str) -> Relation:
        return Relation(sql, (*self.visible, *other.visible), (*self.named, *other.named))


@dataclass(eq=False)
class Scope:
    """The relation that a SELECT reads, and the SELECT around it, whose columns a correlated subquery may name."""

    relation: Relation
    parent: Scope | None = None
    aliases: frozenset[str] = frozenset()  # of the SELECT list, which Spark looks through where no column fits
    outer_allowed: bool = False
    correlated: bool = False

    def find(self, column: exp.Column) -> Field:
        """The column that is meant; raises Refused where that is not certain, or unknown: Spark will tell."""
        if len(column.parts) > 2 or isinstance(column.this, exp.Star):
            raise Refused(not_a_column(column))
        found = self._own(column.table.lower(), column.name.lower())
        if found is None and not column.table and column.name.lower() in self.aliases:
            raise Refused(f"{column.name} stands for another expression of the SELECT list")
        if found is None and self.parent is not None:
            found = self.parent._own(column.table.lower(), column.name.lower())
            if found is not None:
                if not self.outer_allowed:
                    raise Refused(f"the subquery names {column.name} of the query around it outside its WHERE")
                self.correlated = True
        if found is None:
            raise Refused(f"{column.sql('spark')[:60]} is not a column of what it reads")
        return found

    def owns(self, column: exp.Column) -> bool:
        return self._own(column.table.lower(), column.name.lower()) is not None

    def _own(self, qualifier: str, name: str) -> Field | None:
        if qualifier:
            parts = [fields for alias, fields in self.relation.named if alias.lower() == qualifier]
            candidates: Iterable[Field] = (f for fields in parts for f in fields)
        else:
            candidates = self.relation.visible
        found = [f for f in candidates if f.name is not None and f.name.lower() == name]
        if len(found) > 1:
            raise Refused(f"the name {name} is ambiguous")
        return found[0] if found else None

    def star(self, qualifier: str) -> list[Field]:
        if not qualifier:
            return list(self.relation.visible)
        parts = [fields for alias, fields in self.relation.named if alias.lower() == qualifier.lower()]
        if len(parts) != 1:
            raise Refused(f"{qualifier}.* is not certain")
        return list(parts[0])


def renamed(fields: Sequence[Field], names: Sequence[str]) -> list[Field]:
    """The fields under the column names of an alias, as in ``t(a, b)``."""
    if not names:
        return list(fields)
    if len(names) != len(fields):
        raise Refused("an alias has more or fewer columns than what it names")
    return [replace(f, name=n) for f, n in zip(fields, names, strict=True)]
