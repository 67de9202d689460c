"""A view's definition compiled for DuckDB, by the compiler of local queries: what that refuses, Spark computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from parquetry.errors import ParquetryError
from parquetry.model.schema import TableSchema
from parquetry.model.types import type_name
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.compile.typed import duck_type
from parquetry.query.compile.whole import WholeQuery, compile_query
from parquetry.query.planning.bind import bind


@dataclass(frozen=True)
class Definition:
    whole: WholeQuery

    @property
    def schema(self) -> pa.Schema:
        return self.whole.schema

    def over(self, rows: Mapping[str, str]) -> str:
        """The text over these relations, by the tables' names; each column in its type."""
        names = [f"c{i}" for i in range(len(self.schema))]
        cast = [f"CAST({n} AS {duck_type(type_name(f.type))})" for n, f in zip(names, self.schema, strict=True)]
        text = self.whole.sql({m.number: rows[m.table] for m in self.whole.mentions})
        return f"SELECT {', '.join(cast)} FROM ({text}) AS compiled({', '.join(names)})"


def compile_definition(text: str, tables: Mapping[str, TableSchema]) -> Definition | None:
    """``text`` over these tables; None where only Spark can compute it."""
    try:
        bound = bind(text, tables)
    except ParquetryError:
        return None
    if isinstance(bound.local, Refusal) or bound.tree is None:
        return None
    whole = compile_query(bound.tree, tables, text)
    return Definition(whole) if isinstance(whole, WholeQuery) else None
