"""A view's definition as data: what it groups by, what it keeps of each group, and how far it is filled."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.distinct import SKETCH
from parquetry.model.schema import Column, TableSchema

ROWS = "group__rows"
"""The stored column that counts a group's rows where rows can go: a group without rows is gone."""


@dataclass(frozen=True)
class ViewSource:
    """A table of FROM under the name that the definition uses; ``on`` joins it with those before it."""

    table_id: int
    alias: str
    on: str = ""


@dataclass(frozen=True)
class ViewColumn:
    """One output column. ``argument`` is the group's or the aggregate's expression over the sources' columns.

    ``function`` is group, sum, count, min, max, avg or approx_count_distinct; the argument of ``count(*)`` is ``*``.
    """

    name: str
    type: str
    function: str
    argument: str


@dataclass(frozen=True)
class StoredValue:
    """What is stored of a group beside its key: ``kind`` (sum, count, min, max or approx_count_distinct) of its rows.

    ``row`` is the column of the rows below the aggregates, see ``ViewSpec.arguments``; empty where every row counts.
    """

    name: str
    kind: str
    row: str
    type: str  # of the view's column that it is for


@dataclass(frozen=True)
class ViewSpec:
    """``how`` says what a delta of the view holds of a group, and so what later deltas do to it.

    ``merge``: the aggregates of new rows, which add up with those before. ``retract``: the same less those of the rows
    that are gone, for sums and counts of exact values. ``replace``: the group's new aggregates, recomputed.
    """

    sql: str
    sources: tuple[ViewSource, ...]
    columns: tuple[ViewColumn, ...]
    where: str
    how: str

    @property
    def hides_rows(self) -> bool:
        """Whether stored groups may have no row left."""
        return self.how != "merge"

    def stored(self, column: ViewColumn) -> tuple[str, ...]:
        """The stored columns that a column is made of: values must merge, so an average is a sum and a count.

        So is a sum from which rows are taken away: one of no values left is null. Distinct values are a sketch.
        """
        if column.function == DISTINCT:
            return (f"{column.name}__sketch",)
        counted = column.function == "avg" or (column.function == "sum" and self.how == "retract")
        return (f"{column.name}__sum", f"{column.name}__count") if counted else (column.name,)

    @cached_property
    def arguments(self) -> Mapping[str, str]:
        """The aggregates' expressions, by what the columns with their values are called."""
        return {f"__a{i}": c.argument for i, c in enumerate(self.aggregates) if c.argument != "*"}

    @cached_property
    def values(self) -> tuple[StoredValue, ...]:
        """All that is stored of a group: each engine makes them in its own words."""
        found = []
        for i, c in enumerate(self.aggregates):
            stored, row = self.stored(c), f"__a{i}" if c.argument != "*" else ""
            if c.function != "count":
                found.append(StoredValue(stored[0], "sum" if c.function == "avg" else c.function, row, c.type))
            if c.function == "count" or len(stored) > 1:
                found.append(StoredValue(stored[-1], "count", row, c.type))
        return (*found, StoredValue(ROWS, "count", "", "bigint")) if self.hides_rows else tuple(found)

    @property
    def merges(self) -> dict[str, str]:
        """How each stored value of a group merges with the same group's in another delta."""
        return {v.name: {"count": "sum", DISTINCT: SKETCH}.get(v.kind, v.kind) for v in self.values}

    @cached_property
    def groups(self) -> tuple[ViewColumn, ...]:
        return tuple(c for c in self.columns if c.function == "group")

    @cached_property
    def aggregates(self) -> tuple[ViewColumn, ...]:
        return tuple(c for c in self.columns if c.function != "group")

    def stored_for(self, visible: Collection[str]) -> set[str]:
        """The stored columns that these visible ones are read from."""
        found = {s for c in self.columns if c.name in visible for s in self.stored(c)}
        return found | ({ROWS} if self.hides_rows else set())

    def readable(self, stored: TableSchema) -> TableSchema:
        """What a query sees: the definition's own columns."""
        return TableSchema(
            columns=tuple(Column(c.name, c.type) for c in self.columns), key=stored.key, model="append", null_keys=True
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "sql": self.sql,
            "sources": [{"table_id": s.table_id, "alias": s.alias, "on": s.on} for s in self.sources],
            "columns": [
                {"name": c.name, "type": c.type, "function": c.function, "argument": c.argument} for c in self.columns
            ],
            "where": self.where,
            "how": self.how,
        }

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> ViewSpec:
        return cls(
            sql=d["sql"],
            sources=tuple(ViewSource(**s) for s in d["sources"]),
            columns=tuple(ViewColumn(**c) for c in d["columns"]),
            where=d["where"],
            how=d["how"],
        )


@dataclass(frozen=True)
class ViewState:
    """``built``: the changes of all sources up to this timestamp are in the view."""

    spec: ViewSpec
    built: int
