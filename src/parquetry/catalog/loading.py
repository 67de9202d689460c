"""Reads the catalog's state: all of it once, and afterwards only the rows that changed since (NA-49)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.tables import ADD_DELTA, DATABASE, INDEX_POSITION, unsealed
from parquetry.errors import CatalogError
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.layout import LayoutSpec, layout_from_json
from parquetry.model.profile import Profile
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import State, TableState
from parquetry.model.view import ViewSpec, ViewState


@dataclass
class _Draft:
    """A table's state while rows are laid over it."""

    table_id: int
    name: str
    qt: int = 0
    last_t: int = 0
    layout_id: int = 0
    layout: LayoutSpec | None = None
    layouts: dict[int, LayoutSpec | None] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    schemas: dict[int, TableSchema] = field(default_factory=dict)
    deltas: dict[str, Delta] = field(default_factory=dict)
    spec: ViewSpec | None = None
    built: int = 0

    @classmethod
    def of(cls, table: TableState) -> _Draft:
        return cls(
            table_id=table.table_id,
            name=table.name,
            qt=table.qt,
            last_t=table.last_t,
            layout_id=table.layout_id,
            layout=table.layout,
            layouts={**table.layouts, table.layout_id: table.layout},
            settings=table.settings,
            schemas=dict(table.schemas),
            deltas={d.delta_id: d for d in table.deltas},
            spec=table.view.spec if table.view else None,
            built=table.view.built if table.view else 0,
        )

    @property
    def older_layouts(self) -> set[int]:
        """The layouts of live deltas that are not the current one."""
        return {d.layout_id for d in self.deltas.values()} - {0, self.layout_id}

    def freeze(self) -> TableState:
        schema_id = max(self.schemas)
        if unknown := {d.schema_id for d in self.deltas.values()} - self.schemas.keys():
            raise ValueError(f"deltas of '{self.name}' have a schema {min(unknown)} that is not there")
        specs = {i: self.layouts[i] for i in sorted(self.older_layouts)}
        return TableState(
            table_id=self.table_id,
            name=self.name,
            schema=self.schemas[schema_id],
            schema_id=schema_id,
            deltas=tuple(sorted(self.deltas.values(), key=lambda d: d.t_lo)),
            qt=self.qt,
            settings=self.settings,
            layout_id=self.layout_id,
            layout=self.layout,
            schemas=self.schemas,
            last_t=self.last_t,
            layouts={i: spec for i, spec in specs.items() if spec is not None},
            view=None if self.spec is None else ViewState(self.spec, self.built),
        )


_HORIZON = sa.select(sql.meta.c.value).where(sql.meta.c.name == "horizon")
_NOW = sa.select(sql.clock.c.version, sql.clock.c.t, _HORIZON.scalar_subquery())
_VERSIONED = (sql.tables, sql.schemas, sql.settings, sql.layouts, sql.views, sql.built, sql.queryable, sql.deltas)
# Most commits change one or two of them: asking which is one statement, reading all would be ten.
_CHANGED = sa.select(
    *(
        sa.or_(
            sa.exists().where(t.c.removed_version.is_(None), t.c.added_version > sa.bindparam("since")),
            sa.exists().where(t.c.removed_version > sa.bindparam("since")),
        ).label(t.name)
        for t in _VERSIONED
    )
)

_SINCE: sa.BindParameter[int] = sa.bindparam("since")
_UNTIL: sa.BindParameter[int] = sa.bindparam("until")


def _live(t: sa.Table, past: bool) -> tuple[sa.ColumnElement[bool], ...]:
    """The rows of a past version, or those added since a version that are there now."""
    added, removed = t.c.added_version, t.c.removed_version
    if past:
        return added <= _UNTIL, sa.or_(removed.is_(None), removed > _UNTIL)
    return added > _SINCE, removed.is_(None)


def _last_label(table_id: sa.ColumnElement[int]) -> sa.ScalarSelect[Any]:
    b = sql.labels
    return (
        sa.select(sa.func.max(b.c.t)).where(b.c.table_id == table_id, b.c.t <= sa.bindparam("clock")).scalar_subquery()
    )


def _rows(t: sa.Table) -> sa.Select[Any]:
    """Rows of a table, with layouts as text: it tells whether the same one was decoded before."""
    return sa.select(*(sa.cast(c, sa.Text).label(c.name) if c is sql.layouts.c.spec else c for c in t.c))


@lru_cache(maxsize=64)
def _layout(text: str | None) -> LayoutSpec | None:
    return None if text is None else layout_from_json(unsealed(json.loads(text)))


# Made once: to make a statement takes longer than to run it.
_ADDED = {(t.name, past): _rows(t).where(*_live(t, past)) for t in _VERSIONED for past in (False, True)}
_REMOVED = {
    t.name: sa.select(t).where(t.c.removed_version > _SINCE, t.c.added_version <= _SINCE)
    for t in (sql.tables, sql.deltas)
}
_OF_ADDED = sa.select(sql.files).join(sql.deltas, sql.deltas.c.delta_id == sql.files.c.delta_id)
_FILES = {past: _OF_ADDED.where(*_live(sql.deltas, past)) for past in (False, True)}
# One step down an index for each table, however many labels it has.
_LAST_OF_TABLES = {
    past: sa.select(sql.tables.c.table_id, _last_label(sql.tables.c.table_id)).where(*_live(sql.tables, past))
    for past in (False, True)
}
_LAST_OF_INGESTED = sa.select(sql.changes.c.table_id, _last_label(sql.changes.c.table_id)).where(
    sql.changes.c.version > _SINCE, sql.changes.c.edit == ADD_DELTA
)


def refresh_state(conn: sa.Connection, cached: State | None) -> State:
    """The newest state. The rows read are those changed since ``cached``, however large the tables are."""
    version, clock, horizon_version = conn.execute(_NOW).one()
    if cached is not None and cached.version == version:
        return cached
    if cached is not None and cached.version < horizon_version:
        cached = None  # rows that were removed since then may have been forgotten
    return _Reading(conn, version, clock, cached, past=False).understood()


def state_at(conn: sa.Connection, version: int) -> State:
    """The state as it was at an older version that vacuum has not passed."""
    horizon = conn.execute(_HORIZON).scalar_one()
    clock = conn.execute(sa.select(sql.versions.c.t).where(sql.versions.c.version == version)).scalar()
    if clock is None or version < horizon:
        raise CatalogError(f"version {version} cannot be read: versions start at {horizon}; choose a newer one")
    return _Reading(conn, version, clock, None, past=True).understood()


class _Reading:
    """One pass over the rows added and removed between two versions."""

    def __init__(self, conn: sa.Connection, version: int, clock: int, cached: State | None, *, past: bool) -> None:
        self.conn, self.version, self.clock, self.cached, self.past = conn, version, clock, cached, past
        self.unchanged = {t.table_id: t for t in cached.tables.values()} if cached else {}
        self.drafts: dict[int, _Draft] = {}
        self.qt = cached.qt if cached else 0
        self.profile = cached.profile if cached else None
        self.span = {"until": version} if past else {"since": cached.version if cached else -1}
        self.changed = {t.name for t in _VERSIONED}
        if cached is not None:
            told = conn.execute(_CHANGED, {"since": cached.version}).one()._mapping
            self.changed = {name for name, changed in told.items() if changed}

    def understood(self) -> State:
        """The state, or a CatalogError where a row does not say what rows of its table say."""
        try:
            return self.state()
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as e:
            raise CatalogError(
                f"the catalog is damaged: a row cannot be understood ({type(e).__name__}: {e}); restore it from a copy"
            ) from e

    def state(self) -> State:
        self._tables()
        self._definitions()
        self._deltas()
        self._older_layouts()
        self._newest_timestamps()
        tables = [*self.unchanged.values(), *(d.freeze() for d in self.drafts.values())]
        by_name = {t.name: t for t in sorted(tables, key=lambda t: t.table_id)}
        return State(self.version, self.clock, self.qt, by_name, self.profile)

    def _tables(self) -> None:
        for row in self._removed(sql.tables):
            self.unchanged.pop(row.table_id, None)
        for row in self._added(sql.tables):
            self.drafts[row.table_id] = _Draft(row.table_id, row.name)

    def _definitions(self) -> None:
        for row in self._added(sql.schemas):
            self._draft(row.table_id).schemas[row.schema_id] = TableSchema.from_json(row.body)
        for row in self._added(sql.settings):
            if row.table_id == DATABASE:
                self.profile = Profile.from_json(row.body)
            else:
                self._draft(row.table_id).settings = Settings.from_json(row.body)
        for row in self._added(sql.layouts):
            draft = self._draft(row.table_id)
            draft.layout_id, draft.layout = row.layout_id, _layout(row.spec)
            draft.layouts[row.layout_id] = draft.layout
        for row in self._added(sql.views):
            self._draft(row.table_id).spec = ViewSpec.from_json(row.body)
        for row in self._added(sql.built):
            self._draft(row.table_id).built = row.until
        for row in self._added(sql.queryable):
            if row.table_id == DATABASE:
                self.qt = row.qt
            else:
                self._draft(row.table_id).qt = row.qt

    def _deltas(self) -> None:
        for row in self._removed(sql.deltas):
            if row.table_id in self.unchanged or row.table_id in self.drafts:
                self._draft(row.table_id).deltas.pop(row.delta_id, None)
        added = self._added(sql.deltas)
        if not added:
            return
        files: dict[str, list[tuple[int, StoredFile]]] = defaultdict(list)
        for f in self.conn.execute(_FILES[self.past], self.span).all():
            files[f.delta_id].append((f.position, file_of(f)))
        for row in added:
            stored = sorted(files[row.delta_id], key=lambda f: f[0])
            assert stored[0][0] == INDEX_POSITION
            self._draft(row.table_id).deltas[row.delta_id] = delta_of(row, [file for _, file in stored])

    def _older_layouts(self) -> None:
        """Deltas keep the layout that they were written in, until compaction reaches them (3.4-10)."""
        missing = [i for d in self.drafts.values() for i in d.older_layouts if i not in d.layouts]
        if missing:
            for row in self.conn.execute(_rows(sql.layouts).where(sql.layouts.c.layout_id.in_(missing))).all():
                self._draft(row.table_id).layouts[row.layout_id] = _layout(row.spec)

    def _newest_timestamps(self) -> None:
        if self.cached is not None and self.cached.clock == self.clock:
            return
        if self.cached is not None:
            newest = self.conn.execute(_LAST_OF_INGESTED, {**self.span, "clock": self.clock})
        else:
            newest = self.conn.execute(_LAST_OF_TABLES[self.past], {**self.span, "clock": self.clock})
        for table_id, last_t in newest.all():
            if last_t is not None and (table_id in self.unchanged or table_id in self.drafts):
                self._draft(table_id).last_t = last_t

    def _draft(self, table_id: int) -> _Draft:
        if table_id not in self.drafts:
            self.drafts[table_id] = _Draft.of(self.unchanged.pop(table_id))
        return self.drafts[table_id]

    def _added(self, table: sa.Table) -> list[Any]:
        if table.name not in self.changed:
            return []
        return list(self.conn.execute(_ADDED[table.name, self.past], self.span).all())

    def _removed(self, table: sa.Table) -> list[Any]:
        if self.cached is None or table.name not in self.changed:
            return []
        return list(self.conn.execute(_REMOVED[table.name], self.span).all())


def file_of(row: Any) -> StoredFile:
    _check(row.delta_id, texts=(row.path, row.checksum), numbers=(row.bytes, row.rows))
    return StoredFile(row.path, row.bytes, row.checksum, row.rows)


def delta_of(row: Any, stored: list[StoredFile]) -> Delta:
    """A delta of its row and its files, the index first."""
    numbers = (row.t_lo, row.t_hi, row.level, row.rows, row.bytes, row.schema_id, row.layout_id)
    _check(row.delta_id, numbers=numbers)
    return Delta(
        delta_id=row.delta_id,
        table_id=row.table_id,
        t_lo=row.t_lo,
        t_hi=row.t_hi,
        level=row.level,
        rows=row.rows,
        bytes=row.bytes,
        schema_id=row.schema_id,
        layout_id=row.layout_id,
        index=stored[0],
        files=tuple(stored[1:]),
    )


def _check(delta_id: Any, texts: Sequence[Any] = (), numbers: Sequence[Any] = ()) -> None:
    """SQLite keeps what it is given, whatever a column is declared as."""
    if any(type(t) is not str for t in texts) or any(type(n) is not int for n in numbers):
        raise CatalogError(f"the catalog is damaged: a row of delta {delta_id!r} is none; restore it from a copy")
