"""Names inside one SELECT: its sources, and which base table's column a name comes from, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from parquetry.model.predicate import Opaque, Predicate
from parquetry.model.schema import TableSchema

BARE_FUNCTIONS = {"localtimestamp", "user", "current_time", "current_catalog", "current_database", "current_schema"}
"""Functions that Spark lets one write without parentheses and that look like columns to the parser."""


@dataclass(eq=False)
class Ref:
    """One reference to a base table while its query is being read."""

    table: str
    schema: TableSchema
    alias: str
    types: dict[str, str]
    used: set[str] = field(default_factory=set)
    found: list[Predicate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    opaque: list[Opaque] = field(default_factory=list)

    def own(self, name: str) -> str | None:
        lowered = name.lower()
        return next((c for c in self.types if c.lower() == lowered), None)


@dataclass(frozen=True)
class Origin:
    """A value passed on unchanged from a base column, or a null that an outer join put in its place."""

    ref: Ref
    column: str
    nullable: bool = False  # an outer join may replace it by null
    total: bool = True  # no other branch of a UNION feeds the same output

    @property
    def type(self) -> str:
        return self.ref.types[self.column]


Output = list[tuple[str, tuple[Origin, ...]]]


@dataclass(eq=False)
class Source:
    """One item of FROM. ``columns`` maps lowered names to origins; it is None when the names are not known."""

    alias: str
    columns: dict[str, tuple[Origin, ...]] | None
    refs: list[Ref]
    base: Ref | None = None
    nullable: bool = False
    visible: bool = True

    @classmethod
    def of_output(cls, alias: str, output: Output | None, refs: list[Ref], renamed: list[str]) -> Source:
        if output is None or (renamed and len(renamed) != len(output)):
            return cls(alias, None, refs)
        columns: dict[str, tuple[Origin, ...]] = {}
        for i, (name, origins) in enumerate(output):
            key = (renamed[i] if renamed else name).lower()
            columns[key] = () if key in columns else origins
        return cls(alias, columns, refs)

    def origins(self, name: str) -> tuple[Origin, ...]:
        found = (self.columns or {}).get(name.lower(), ())
        if not self.nullable:
            return found
        return tuple(Origin(o.ref, o.column, True, o.total) for o in found)


class Scope:
    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.sources: list[Source] = []
        self.aliases: set[str] = set()

    def resolve(self, column: exp.Column) -> tuple[Origin, ...]:
        """Where the column's values come from; empty when that is not certain."""
        if len(column.parts) > 2:
            return ()
        name, qualifier = column.name.lower(), column.table.lower()
        owners = [
            s
            for s in self.sources
            if s.visible
            and (not qualifier or s.alias.lower() == qualifier)
            and (s.columns is None or name in s.columns)
        ]
        return owners[0].origins(name) if len(owners) == 1 else ()

    def use(self, column: exp.Column) -> bool:
        """Marks every base column that the name may mean; False when no scope knows the name."""
        parts = [p.name.lower() for p in column.parts]
        hit = False
        for s in self.sources:
            hit = self._use_in(s, parts) or hit
        if hit:
            return True
        if self.parent is not None:
            return self.parent.use(column)
        return len(parts) == 1 and (parts[0] in self.aliases or parts[0] in BARE_FUNCTIONS)

    def _use_in(self, s: Source, parts: list[str]) -> bool:
        if s.columns is None:
            for ref in s.refs:
                ref.used.update(ref.types)
            return True
        qualified = next((i for i, p in enumerate(parts[:-1]) if p == s.alias.lower()), None)
        name = parts[0] if qualified is None else parts[qualified + 1]
        if name == "*" or name not in s.columns:
            return False
        for origin in s.columns[name]:
            origin.ref.used.add(origin.column)
        return True

    def use_all(self, alias: str = "") -> None:
        for s in self.sources:
            if not alias or s.alias.lower() == alias.lower():
                if s.columns is None:
                    for ref in s.refs:
                        ref.used.update(ref.types)
                for origins in (s.columns or {}).values():
                    for o in origins:
                        o.ref.used.add(o.column)


def parts_of(node: exp.Expr) -> Iterator[exp.Expr]:
    """The columns, stars and nested queries below ``node``, without going into nested queries."""
    stack: list[exp.Expr] = [node]
    while stack:
        e = stack.pop()
        if isinstance(e, exp.Query):
            yield e
            continue
        if isinstance(e, exp.Column | exp.Star):
            if not (isinstance(e, exp.Star) and isinstance(e.parent, exp.Count)):
                yield e
            continue
        stack.extend(e.iter_expressions())
