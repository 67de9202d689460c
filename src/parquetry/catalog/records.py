"""What the catalog remembers for people: commits, labels, and the log of queries."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.database import Database
from parquetry.catalog.labels import LABEL
from parquetry.errors import CatalogError
from parquetry.model.state import Label


@dataclass(frozen=True)
class Change:
    """What one edit of a commit did; ``table_id`` 0 is the database."""

    table_id: int
    edit: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class VersionRecord:
    """One commit: when it happened, what it was for, and what it changed."""

    version: int
    at: float
    t: int
    kind: str
    detail: Mapping[str, Any]
    changes: tuple[Change, ...]


class QueryRow(NamedTuple):
    """A row of the query log as it is stored. ``at`` is in seconds since 1970, of the clock of who asked."""

    at: float
    sql: str
    tables: str
    executor: str | None
    qt: int | None
    elapsed_ms: float | None
    plan_ms: float | None
    rows_out: int | None
    bytes_read: int | None
    stats: str
    shape: str

    @classmethod
    def of(
        cls, at: float, text: str, tables: Iterable[str], shape: Sequence[Mapping[str, Any]], stats: Mapping[str, Any]
    ) -> QueryRow:
        """``tables`` and ``shape`` are what the query reads; ``stats`` what it took."""
        return cls(
            at,
            _storable(text),
            json.dumps([_storable(name).lower() for name in tables]),
            stats.get("executor"),
            stats.get("qt"),
            stats.get("elapsed_ms"),
            stats.get("plan_ms"),
            stats.get("rows_out"),
            stats.get("bytes_read"),
            _storable_json(stats),
            _storable_json(shape),
        )


def _storable(text: str) -> str:
    """What both databases can hold: no half a character, and PostgreSQL's text has no NUL."""
    return _NOT_STORABLE.sub("\ufffd", text)


def _storable_json(value: Any) -> str:
    return _storable(json.dumps(value, ensure_ascii=False))


_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")


def history(db: Database, table_id: int | None, limit: int) -> list[VersionRecord]:
    """The newest commits first; with ``table_id`` only those that changed it, and of them its own changes."""
    v, c = sql.versions, sql.changes
    of_table = () if table_id is None else (c.c.table_id == table_id,)
    wanted = sa.select(v.c.version, v.c.at, v.c.t, v.c.kind, v.c.detail).order_by(v.c.version.desc()).limit(limit)
    if table_id is not None:
        wanted = wanted.where(v.c.version.in_(sa.select(c.c.version).where(*of_table)))
    with db.read() as conn:
        rows = conn.execute(wanted).all()
        if not rows:
            return []
        changes: dict[int, list[Change]] = defaultdict(list)
        for row in conn.execute(sa.select(c).where(c.c.version >= rows[-1][0], *of_table)).all():
            changes[row.version].append(Change(row.table_id, row.edit, _object(row.detail, row.version)))
    return [
        VersionRecord(version, at, t, kind, _object(detail, version), tuple(changes[version]))
        for version, at, t, kind, detail in rows
    ]


def _object(detail: Any, version: int) -> Mapping[str, Any]:
    if detail is not None and not isinstance(detail, Mapping):
        raise CatalogError(f"the catalog is damaged: what it says of version {version} cannot be understood")
    return detail or {}


def hidden_since(db: Database, qt: int) -> float | None:
    """When the oldest batch beyond ``qt`` was committed."""
    t, batch = sql.tables, sql.labels
    first = sa.select(batch.c.at).where(batch.c.table_id == t.c.table_id, batch.c.t > qt).order_by(batch.c.t).limit(1)
    of_tables = sa.select(first.scalar_subquery().label("at")).where(t.c.removed_version.is_(None)).subquery()
    with db.read() as conn:
        return conn.execute(sa.select(sa.func.min(of_tables.c.at))).scalar()


def made_at(db: Database) -> dict[str, float]:
    """When each table and view was made."""
    t, v = sql.tables, sql.versions
    live = sa.select(t.c.name, v.c.at).join(v, v.c.version == t.c.added_version).where(t.c.removed_version.is_(None))
    with db.read() as conn:
        return {row.name: row.at for row in conn.execute(live).all()}


def labels(db: Database, table_id: int, up_to_t: int | None) -> list[Label]:
    """The labels of a table, oldest first; those up to a QT are what a query at that QT sees."""
    wanted = sa.select(*LABEL).where(sql.labels.c.table_id == table_id).order_by(sql.labels.c.t)
    if up_to_t is not None:
        wanted = wanted.where(sql.labels.c.t <= up_to_t)
    with db.read() as conn:
        return [Label(**row) for row in conn.execute(wanted).mappings()]


def log_queries(db: Database, rows: Sequence[QueryRow]) -> None:
    """Appends queries to the log; by the driver alone, for what SQLAlchemy does would hold up the queries meanwhile."""
    if rows:
        marks = ", ".join(["?" if db.sqlite else "%s"] * len(QueryRow._fields))
        text = f"INSERT INTO {sql.queries.name} ({', '.join(QueryRow._fields)}) VALUES ({marks})"
        with db.write(durable=False) as conn:
            conn.exec_driver_sql(text, list(rows))


def queries(db: Database, limit: int, table: str | None) -> list[dict[str, Any]]:
    """The newest logged queries first, of all tables or of those that read ``table``."""
    q = sql.queries
    wanted = sa.select(q).order_by(q.c.query_id.desc()).limit(limit)
    if table is not None:
        wanted = wanted.where(q.c.tables.contains(json.dumps(table.lower()), autoescape=True))
    with db.read() as conn:
        return [{**row, "tables": json.loads(row["tables"])} for row in conn.execute(wanted).mappings()]
