"""A table's definition: columns, ordered key, model, and how values of equal keys merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from parquetry.errors import SchemaError, UnknownColumn
from parquetry.model.distinct import SKETCH, SKETCH_TYPE
from parquetry.model.types import arrow_type, is_nested, type_name

MODELS = ("append", "upsert", "aggregate")
MERGES = ("sum", "min", "max", "count", "replace")


@dataclass(frozen=True)
class Column:
    name: str
    type: str  # Spark's name of the type, e.g. "decimal(15,2)"
    nullable: bool = True

    @property
    def arrow(self) -> pa.DataType:
        return arrow_type(self.type)


@dataclass(frozen=True)
class TableSchema:
    """``key`` is ordered and, views aside, never null. ``values`` names a merge for every value of an aggregate table.

    ``sequence`` is the column that decides which of two rows is later (upsert tables and ``replace`` values);
    without it the later commit wins, and inside one batch the row that Spark reads last.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    model: str = "append"
    values: Mapping[str, str] = field(default_factory=dict)
    sequence: str | None = None
    null_keys: bool = False  # a view's groups may be null

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        lowered = [n.lower() for n in names]
        if not names:
            raise SchemaError("a table needs at least one column")
        for name in names:
            if lowered.count(name.lower()) > 1:
                raise SchemaError(f"column '{name}' appears twice (Spark compares names without case)")
            if not name.strip():
                raise SchemaError("a column needs a name")
            if name.startswith("__"):
                raise SchemaError(f"column name '{name}' is reserved; names may not start with two underscores")
        if self.model not in MODELS:
            raise SchemaError(f"unknown model '{self.model}'; choose one of {', '.join(MODELS)}")
        if not self.key:
            raise SchemaError("a table needs a key: the columns it is sorted by, most selective use first")
        if len(set(self.key)) != len(self.key):
            raise SchemaError("a key column appears twice")
        for k in self.key:
            if k not in names:
                raise UnknownColumn(k, None, names)
            if is_nested(self.column(k).arrow):
                raise SchemaError(f"key column '{k}' has the nested type {self.column(k).type}; keys are flat")
        if self.sequence is not None:
            if self.sequence not in names:
                raise UnknownColumn(self.sequence, None, names)
            if self.sequence in self.key or is_nested(self.column(self.sequence).arrow):
                raise SchemaError("the sequence is a flat value column, not part of the key")
            if self.model == "append":
                raise SchemaError("an append table keeps every row, so it takes no sequence")
        self._check_values(names)

    def _check_values(self, names: list[str]) -> None:
        if self.model != "aggregate":
            if self.values:
                raise SchemaError(f"only aggregate tables merge values; model is '{self.model}'")
            return
        for v in self.values:
            if v not in names:
                raise UnknownColumn(v, None, names)
            if v in self.key:
                raise SchemaError(f"'{v}' is a key column and cannot be merged")
        for c in self.columns:
            if c.name in self.key:
                continue
            merge = self.values.get(c.name)
            if merge == SKETCH and c.type == SKETCH_TYPE and self.null_keys:
                continue  # a view's
            if merge not in MERGES:
                raise SchemaError(f"value column '{c.name}' needs a merge, one of {', '.join(MERGES)}")
            if merge in ("sum", "count") and c.type not in ("bigint", "double") and not c.type.startswith("decimal"):
                raise SchemaError(f"'{c.name}' is {c.type}: {merge} needs bigint, double or decimal")
            if merge == "count" and c.type != "bigint":
                raise SchemaError(f"'{c.name}' is {c.type}: count needs bigint")
            if merge in ("min", "max") and is_nested(c.arrow):
                raise SchemaError(f"'{c.name}' has the nested type {c.type}, which has no {merge}")
        if self.sequence is not None and self.values[self.sequence] != "max":
            raise SchemaError(f"the sequence '{self.sequence}' of an aggregate table merges by max")

    @cached_property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def column(self, name: str) -> Column:
        for c in self.columns:
            if c.name == name:
                return c
        raise UnknownColumn(name, None, self.names)

    @property
    def keyed(self) -> bool:
        """Rows with equal keys merge into one."""
        return self.model != "append"

    @cached_property
    def arrow(self) -> pa.Schema:
        required = () if self.null_keys else self.key
        return pa.schema([pa.field(c.name, c.arrow, c.nullable and c.name not in required) for c in self.columns])

    def add_column(self, column: Column, merge: str | None = None) -> TableSchema:
        if not column.nullable:
            raise SchemaError(f"column '{column.name}' must be nullable: rows already stored have no value for it")
        values = {**self.values, column.name: merge} if merge else self.values
        return replace(self, columns=(*self.columns, column), values=values)

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": [{"name": c.name, "type": c.type, "nullable": c.nullable} for c in self.columns],
            "key": list(self.key),
            "model": self.model,
            "values": dict(self.values),
            "sequence": self.sequence,
            **({"null_keys": True} if self.null_keys else {}),
        }

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> TableSchema:
        return cls(
            columns=tuple(Column(c["name"], c["type"], c["nullable"]) for c in d["columns"]),
            key=tuple(d["key"]),
            model=d["model"],
            values=dict(d["values"]),
            sequence=d["sequence"],
            null_keys=d.get("null_keys", False),
        )

    @classmethod
    def from_arrow(
        cls,
        schema: pa.Schema,
        key: Sequence[str],
        model: str = "append",
        values: Mapping[str, str] | None = None,
        sequence: str | None = None,
    ) -> TableSchema:
        columns = tuple(Column(f.name, type_name(f.type), f.nullable) for f in schema)
        return cls(columns, tuple(key), model, dict(values or {}), sequence)
