"""The catalog's SQL tables, named and shaped so that a person can query them.

Rows of a versioned table carry ``added_version`` and ``removed_version``: the catalog's version ``v`` consists of the
rows with ``added_version <= v`` and ``removed_version`` null or above ``v``. Times are seconds since 1970; ``t`` is a
logical timestamp, never a time.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import sqlalchemy as sa

from parquetry.errors import CatalogError

DATABASE = 0  # the table_id under which the database's own QT, profile and changes are kept
ADD_DELTA = "add delta"  # the change that a batch makes
INDEX_POSITION = -1  # of a delta's index among its files

metadata = sa.MetaData()


class _Whole(sa.types.TypeDecorator[int]):
    """A whole number. SQLite keeps whatever it is given, and a damaged file anything."""

    impl = sa.BigInteger
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Any) -> int | None:
        if value is not None and type(value) is not int:
            raise CatalogError(f"the catalog is damaged: {value!r} stands for a whole number; restore it from a copy")
        return value


class _Sealed(sa.types.TypeDecorator[Any]):
    """A JSON object that answers depend on, kept with its checksum: a document that was changed may still be one."""

    impl = sa.JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        if value is None:
            return None
        value = json.loads(json.dumps(value))  # as it will be read: keys are texts
        return {**value, _CHECK: _checksum(value)}

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return unsealed(value)


def unsealed(document: Any) -> Any:
    """The document without its checksum, which is right; those of older releases have none."""
    if not isinstance(document, dict) or _CHECK not in document:
        return document
    found = {k: v for k, v in document.items() if k != _CHECK}
    if document[_CHECK] != _checksum(found):
        raise CatalogError("the catalog is damaged: a definition has a wrong checksum; restore it from a copy")
    return found


def _checksum(document: Any) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


_CHECK = "check"
_BIG = _Whole()
_JSON = sa.JSON(none_as_null=True)
_DEFINITION = _Sealed(none_as_null=True)


def _table(name: str, *parts: Any) -> sa.Table:
    # The prefix keeps the catalog apart from other tables of a shared PostgreSQL database.
    return sa.Table(f"parquetry_{name}", metadata, *parts)


def _versioned(name: str, *parts: Any) -> sa.Table:
    """A table whose rows live from one version to another.

    The index serves a refresh, which asks for live rows added since and for rows removed since. Commits ask for live
    rows of a table by an index of live rows alone (:func:`_live_rows`): one of all rows would grow with history.
    """
    return _table(
        name,
        *parts,
        sa.Column("added_version", _BIG, nullable=False),
        sa.Column("removed_version", _BIG),
        sa.Index(f"parquetry_{name}_by_version", "removed_version", "added_version"),
    )


def _live_rows(table: sa.Table, *columns: str, unique: bool = True) -> sa.Index:
    """An index of the rows that are not removed; unique where a table has one such row."""
    live = table.c.removed_version.is_(None)
    indexed = [table.c[column] for column in columns]
    return sa.Index(f"{table.name}_live", *indexed, unique=unique, sqlite_where=live, postgresql_where=live)


meta = _table(
    "meta",
    # format: of these tables; horizon: the oldest readable version; trimmed: up to which version history was trimmed;
    # and what the retention policy was set to, under the names of its settings
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", _BIG, nullable=False),
)

# One row. Every commit locks it, so commits happen one after the other.
clock = _table(
    "clock",
    sa.Column("one", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", _BIG, nullable=False),
    sa.Column("t", _BIG, nullable=False),
    sa.Column("visible", _BIG, nullable=False),  # the newest version that showed readers something new
)

versions = _table(
    "versions",
    sa.Column("version", _BIG, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("t", _BIG, nullable=False),  # the clock after this commit
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("detail", _JSON),
)

# What each version changed, one row per edit and table; table_id 0 is the database.
changes = _table(
    "changes",
    sa.Column("version", _BIG, nullable=False, index=True),
    sa.Column("table_id", _BIG, nullable=False),
    sa.Column("edit", sa.Text, nullable=False),
    sa.Column("detail", _JSON),
    sa.Index("parquetry_changes_of_table", "table_id", "version"),
)

tables = _versioned(
    "tables",
    sa.Column("table_id", _BIG, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("lower_name", sa.Text, nullable=False),
)
_live = tables.c.removed_version.is_(None)
sa.Index("parquetry_tables_live_name", tables.c.lower_name, unique=True, sqlite_where=_live, postgresql_where=_live)

schemas = _versioned(
    "schemas",
    sa.Column("schema_id", _BIG, primary_key=True, autoincrement=False),
    sa.Column("table_id", _BIG, nullable=False),
    sa.Column("body", _DEFINITION, nullable=False),
)
schemas_of_table = sa.Index("parquetry_schemas_of_table", schemas.c.table_id, schemas.c.schema_id)

settings = _versioned(
    "settings",
    sa.Column("table_id", _BIG, nullable=False),  # 0 is the database: its profile
    sa.Column("body", _JSON, nullable=False),
)

layouts = _versioned(
    "layouts",
    sa.Column("layout_id", _BIG, primary_key=True, autoincrement=False),
    sa.Column("table_id", _BIG, nullable=False),
    sa.Column("spec", _DEFINITION),
)

queryable = _versioned(
    "queryable",
    sa.Column("table_id", _BIG, nullable=False),  # 0 is the database
    sa.Column("qt", _BIG, nullable=False),
)

views = _versioned(
    "views",
    sa.Column("table_id", _BIG, nullable=False),
    sa.Column("body", _DEFINITION, nullable=False),
)

# How far each view has taken in the changes of its sources.
built = _versioned(
    "built",
    sa.Column("table_id", _BIG, nullable=False),
    sa.Column("until", _BIG, nullable=False),
)
one_live_row = tuple(_live_rows(t, "table_id") for t in (settings, layouts, queryable, views, built))

labels = _table(
    "labels",
    sa.Column("table_id", _BIG, primary_key=True, autoincrement=False),
    sa.Column("label", sa.Text, primary_key=True),
    sa.Column("t", _BIG, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("rows_in", _BIG, nullable=False),
    sa.Column("version", _BIG, nullable=False),
    sa.Column("at", sa.Double),  # as of the version, whose row may go sooner
    # None by t alone: to find a table's last label PostgreSQL might go through those of all others by it.
    sa.Index("parquetry_labels_of_table", "table_id", "t", unique=True),
)

deltas = _versioned(
    "deltas",
    sa.Column("delta_id", sa.Text, primary_key=True),
    sa.Column("table_id", _BIG, nullable=False),
    sa.Column("t_lo", _BIG, nullable=False),
    sa.Column("t_hi", _BIG, nullable=False),
    sa.Column("level", sa.Integer, nullable=False),
    sa.Column("rows", _BIG, nullable=False),
    sa.Column("bytes", _BIG, nullable=False),
    sa.Column("schema_id", _BIG, nullable=False),
    sa.Column("layout_id", _BIG, nullable=False),
)
live_deltas = _live_rows(deltas, "table_id", "t_lo", unique=False)

files = _table(
    "files",
    sa.Column("delta_id", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),  # -1 is the index, data files from 0
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("bytes", _BIG, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
    sa.Column("rows", _BIG, nullable=False),
)

leases = _table(
    "leases",
    sa.Column("resource", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("token", _BIG, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)

pins = _table(
    "pins",
    sa.Column("pin_id", sa.Text, primary_key=True),
    sa.Column("version", _BIG, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("since", sa.Double),  # when it came to this version
    sa.Column("expires_at", sa.Double, nullable=False),
)

queries = _table(
    "queries",
    sa.Column("query_id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("sql", sa.Text, nullable=False),
    sa.Column("tables", sa.Text, nullable=False),  # a JSON list of lower-case names
    sa.Column("executor", sa.Text),
    sa.Column("qt", _BIG),
    sa.Column("elapsed_ms", sa.Double),
    sa.Column("plan_ms", sa.Double),
    sa.Column("rows_out", _BIG),
    sa.Column("bytes_read", _BIG),
    sa.Column("stats", _JSON),
    sa.Column("shape", _JSON),
)
