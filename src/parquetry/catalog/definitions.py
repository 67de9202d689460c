"""Making, changing and dropping tables and views: each is one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from parquetry.catalog.catalog import Catalog
from parquetry.errors import SchemaError
from parquetry.model.profile import Profile
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import VIEW_GROUP_ROWS, Settings
from parquetry.model.state import ChangeSchema, ChangeSettings, CreateTable, DropTable
from parquetry.model.types import arrow_type, parse_columns, type_name


def schema_of(
    columns: TableSchema | pa.Schema | str,
    key: Sequence[str],
    model: str,
    values: Mapping[str, str] | None,
    sequence: str | None,
) -> TableSchema:
    """A table's schema from Spark's way to write columns, an Arrow schema, or a whole TableSchema."""
    if isinstance(columns, str):
        parsed = tuple(Column(n, t, nullable) for n, t, nullable in parse_columns(columns))
        return TableSchema(parsed, tuple(key), model, dict(values or {}), sequence)
    if isinstance(columns, pa.Schema):
        return TableSchema.from_arrow(columns, key, model, values, sequence)
    return columns


def settings_under(
    profile: Profile | None, given: Settings | Mapping[str, Any] | None, *, view: bool = False
) -> Settings:
    """Settings as given, where nothing is said as the database's profile has them."""
    if isinstance(given, Settings):
        said = (name for name in Settings.names() if getattr(given, name) != getattr(Settings(), name))
        return replace(given, given=tuple(sorted({*given.given, *said})))
    start = Settings(row_group_rows=VIEW_GROUP_ROWS) if view else Settings()
    start = start if profile is None else profile.compiled(start)
    return start.changed(given or {}, start)


def create_table(
    catalog: Catalog, name: str, schema: TableSchema, given: Settings | Mapping[str, Any] | None = None
) -> None:
    settings = settings_under(catalog.state().profile, given)
    catalog.commit([CreateTable(name, schema, settings)], kind="create table", detail={"table": name})


def drop_table(catalog: Catalog, name: str) -> None:
    """Removes a table or a view."""
    t = catalog.state().table(name)
    kind = "drop table" if t.view is None else "drop view"
    catalog.commit([DropTable(t.table_id)], kind=kind, detail={"table": t.name})


def drop_view(catalog: Catalog, name: str) -> None:
    t = catalog.state().table(name)
    if t.view is None:
        raise SchemaError(f"'{t.name}' is a table, not a view; use drop-table")
    drop_table(catalog, name)


def add_column(catalog: Catalog, table: str, name: str, type: str, merge: str | None) -> None:
    t = catalog.state().table(table)
    if t.view is not None:
        raise SchemaError(f"'{t.name}' is a view: its columns are those of its definition; make a new view instead")
    if t.schema.model == "aggregate" and merge is None:
        raise SchemaError(f"'{t.name}' is an aggregate table: say how '{name}' merges (sum, min, max, count, replace)")
    changed = t.schema.add_column(Column(name, type_name(arrow_type(type))), merge)
    edit = ChangeSchema(t.table_id, t.schema_id, changed)
    catalog.commit([edit], kind="add column", detail={"table": t.name, "column": name, "type": type})


def change_settings(catalog: Catalog, table: str, changes: Mapping[str, Any]) -> None:
    state = catalog.state()
    t = state.table(table)
    settings = t.settings.changed(changes, settings_under(state.profile, None, view=t.view is not None))
    edit = ChangeSettings(t.table_id, settings)
    catalog.commit([edit], kind="settings", detail={"table": t.name, **changes})
