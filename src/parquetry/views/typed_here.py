"""The types of a view's definition without Spark, where the compiler of local queries knows them as Spark would say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.schema import TableSchema
from parquetry.model.types import type_name
from parquetry.model.view import StoredValue, ViewSpec
from parquetry.storage.spark_text import quote
from parquetry.views.changes import definition_text, rows_text
from parquetry.views.define import Definition, averages_integers, how_of
from parquetry.views.here import Compile


def typed_here(definition: Definition, compile_: Compile) -> tuple[ViewSpec, dict[str, str]] | None:
    """The definition with types, and those of its stored columns; None where Spark has to say.

    What our reading of the text made of it must mean the same: both compile to one text.
    """
    if any(c.function == DISTINCT for c in definition.columns):
        return None
    names = [t.name for t in definition.tables]
    tables = {t.name: t.readable for t in definition.tables}
    draft = ViewSpec(definition.sql, definition.sources, definition.columns, definition.where, "merge")
    asked = compile_(definition.sql, tables)
    understood = compile_(definition_text(draft, names, definition.bare), tables)
    if asked is None or understood is None:
        return None
    rows = {name: quote(name) for name in names}
    if asked.over(rows) != understood.over(rows):
        return None
    columns = tuple(replace(c, type=type_name(f.type)) for c, f in zip(definition.columns, asked.schema, strict=True))
    draft = replace(draft, columns=columns)
    aliased = {s.alias: t.readable for s, t in zip(definition.sources, definition.tables, strict=True)}
    below = _types(rows_text(draft), aliased, compile_)
    if below is None:
        return None
    spec = replace(draft, how=how_of(definition, averages_integers(draft, below)))
    groups = [quote(c.name) for c in spec.groups]
    told = {v.name: "bigint" if v.kind == "count" else v.type for v in spec.values if _is_told(v)}
    made = [f"{v.kind}({quote(v.row)}) AS {quote(v.name)}" for v in spec.values if not _is_told(v)]
    stored = f"SELECT {', '.join([*groups, *made])} FROM ({rows_text(spec)}) AS rows GROUP BY {', '.join(groups)}"
    types = _types(stored, aliased, compile_)
    return None if types is None else (spec, types | told)


def _is_told(v: StoredValue) -> bool:
    """Whether its kind tells the type: see ``changes.aggregated``."""
    return v.kind == "count" or (v.kind == "sum" and v.type in ("double", "bigint"))


def _types(text: str, tables: Mapping[str, TableSchema], compile_: Compile) -> dict[str, str] | None:
    found = compile_(text, tables)
    return None if found is None else {f.name: type_name(f.type) for f in pa.schema(found.schema)}
