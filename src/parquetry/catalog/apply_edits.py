"""Applies a commit's edits to the SQL tables, inside the commit's transaction and under the clock's lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.checks import check_cover, check_views, live_name, ready_views, views_of
from parquetry.catalog.tables import ADD_DELTA, DATABASE, INDEX_POSITION
from parquetry.errors import CommitConflict, SchemaError
from parquetry.model.delta import Delta
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import (
    AddDelta,
    AddViewDelta,
    AdvanceQT,
    ChangeProfile,
    ChangeSchema,
    ChangeSettings,
    CreateTable,
    DropTable,
    Edit,
    Label,
    PublishLayout,
    ReplaceDeltas,
)

LAYOUT_OF_THIS_COMMIT = -1
"""The ``layout_id`` of a delta in the layout that the same commit publishes before it: its id is not known earlier."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_IDS_PER_STATEMENT = 500  # databases limit the parameters of one statement


@dataclass
class Applying:
    """One commit in progress: the version it makes, the clock, and what it has changed so far."""

    conn: sa.Connection
    version: int
    clock: int
    at: float  # by the wall clock
    changes: list[tuple[int, str, Mapping[str, Any]]] = field(default_factory=list)
    taken: int | None = None  # the timestamp of this commit's batches
    label: Label | None = None
    ingested: set[int] = field(default_factory=set)
    published: dict[int, int] = field(default_factory=dict)
    visible: bool = False  # whether a reader finds anything else than before

    def apply(self, edits: Sequence[Edit]) -> None:
        ready = ready_views(self.conn) if any(isinstance(edit, AdvanceQT) for edit in edits) else set()
        for edit in edits:
            match edit:
                case CreateTable():
                    self._create_table(edit)
                case DropTable():
                    self._drop_table(edit)
                case ChangeSchema():
                    self._change_schema(edit)
                case ChangeSettings():
                    self._change_settings(edit)
                case ChangeProfile():
                    self._change_profile(edit)
                case AddDelta():
                    self._add_delta(edit)
                case AddViewDelta():
                    self._add_view_delta(edit)
                case ReplaceDeltas():
                    self._replace_deltas(edit)
                case PublishLayout():
                    self._publish_layout(edit)
                case AdvanceQT():
                    self._advance_qt(edit)
        if any(isinstance(edit, ReplaceDeltas | AddViewDelta | AdvanceQT) for edit in edits):
            check_cover(self.conn)
            check_views(self.conn, ready)

    def _create_table(self, edit: CreateTable) -> None:
        if not _NAME.fullmatch(edit.name):
            raise SchemaError(
                f"'{edit.name}' is no table name; use letters, digits and underscores, not starting with a digit"
            )
        t = sql.tables
        same = sa.select(t.c.name).where(t.c.lower_name == edit.name.lower(), t.c.removed_version.is_(None))
        taken = self.conn.execute(same).scalar()
        if taken is not None:
            raise SchemaError(f"table '{taken}' exists already; choose another name or drop it first")
        table_id = self._next_id(t.c.table_id)
        self._insert(t, table_id=table_id, name=edit.name, lower_name=edit.name.lower())
        self._put_schema(table_id, edit.schema)
        self._put_settings(table_id, edit.settings)
        if edit.view is not None:
            for source in edit.view.sources:
                live_name(self.conn, source.table_id)
            self._insert(sql.views, table_id=table_id, body=edit.view.to_json())
            self._insert(sql.built, table_id=table_id, until=0)
        # Nothing changed in the new table at any timestamp so far, so all of them are complete (NA-19).
        self._insert(sql.queryable, table_id=table_id, qt=self.clock if edit.view is None else 0)
        self._note(table_id, "create table", name=edit.name)

    def _drop_table(self, edit: DropTable) -> None:
        name = live_name(self.conn, edit.table_id)
        for view_id, _, sources in views_of(self.conn):
            if edit.table_id in sources:
                raise SchemaError(f"view '{live_name(self.conn, view_id)}' reads '{name}'; drop the view first")
        described = (sql.schemas, sql.settings, sql.layouts, sql.queryable, sql.views, sql.built)
        for table in (sql.tables, *described, sql.deltas):
            self._remove(table, table.c.table_id == edit.table_id)
        self._note(edit.table_id, "drop table", name=name)

    def _change_schema(self, edit: ChangeSchema) -> None:
        name = live_name(self.conn, edit.table_id)
        self._must_be_table(edit.table_id, name, "its columns are those of its definition; make a new view instead")
        s = sql.schemas
        current = self.conn.execute(sa.select(sa.func.max(s.c.schema_id)).where(s.c.table_id == edit.table_id)).scalar()
        if current != edit.base_schema_id:
            raise CommitConflict(f"the schema of table '{name}' was changed by another commit; try again")
        schema_id = self._put_schema(edit.table_id, edit.schema)
        self._note(edit.table_id, "change schema", schema_id=schema_id, base_schema_id=edit.base_schema_id)

    def _change_settings(self, edit: ChangeSettings) -> None:
        live_name(self.conn, edit.table_id)
        self._remove(sql.settings, sql.settings.c.table_id == edit.table_id)
        self._put_settings(edit.table_id, edit.settings)
        self._note(edit.table_id, "change settings", **edit.settings.to_json())

    def _change_profile(self, edit: ChangeProfile) -> None:
        self._remove(sql.settings, sql.settings.c.table_id == DATABASE)
        self._insert(sql.settings, table_id=DATABASE, body=edit.profile.to_json())
        self._note(DATABASE, "change profile", **edit.profile.to_json())

    def _add_delta(self, edit: AddDelta) -> None:
        name = live_name(self.conn, edit.table_id)
        self._must_be_table(edit.table_id, name, "ingest into the tables it reads instead")
        if edit.table_id in self.ingested:
            raise ValueError(f"one commit takes one batch per table; table {edit.table_id} has two")
        self.ingested.add(edit.table_id)
        if self.taken is None:
            # All batches of one commit share a timestamp, so that every QT shows all of them or none (NA-26).
            self.taken = self.clock = self.clock + 1
        t = self.taken
        self.label = Label(edit.table_id, edit.label, t, edit.digest, edit.rows_in, self.version)
        self.conn.execute(sql.labels.insert().values(**asdict(self.label), at=self.at))
        if edit.delta is not None:
            self._put_delta(edit.table_id, edit.delta, t, t)
        delta_id = edit.delta.delta_id if edit.delta else None
        told = {"label": edit.label, "t": t, "delta_id": delta_id, "rows_in": edit.rows_in}
        self._note(edit.table_id, ADD_DELTA, hidden=True, **told)

    def _add_view_delta(self, edit: AddViewDelta) -> None:
        name = live_name(self.conn, edit.table_id)
        b = sql.built
        stored = sa.select(b.c.until).where(b.c.table_id == edit.table_id, b.c.removed_version.is_(None))
        if self.conn.execute(stored).scalar() != edit.built:
            raise CommitConflict(f"view '{name}' was refreshed by another commit; pick again")
        if not edit.built < edit.until <= self.clock:
            raise ValueError(f"a view built up to {edit.built} cannot be built up to {edit.until}")
        if edit.delta is not None:
            if not edit.built < edit.delta.t_lo <= edit.delta.t_hi <= edit.until:
                raise ValueError(f"delta [{edit.delta.t_lo}, {edit.delta.t_hi}] is not of ({edit.built}, {edit.until}]")
            self._put_delta(edit.table_id, edit.delta, edit.delta.t_lo, edit.delta.t_hi)
        self._remove(b, b.c.table_id == edit.table_id)
        self._insert(b, table_id=edit.table_id, until=edit.until)
        delta_id = edit.delta.delta_id if edit.delta else None
        # One that is behind the QT is still being filled: with this it may be ready.
        hidden = edit.built >= self._queryable().get(DATABASE, 0)
        told = {"built": edit.until, "before": edit.built, "delta_id": delta_id}
        self._note(edit.table_id, "refresh view", hidden=hidden, **told)

    def _replace_deltas(self, edit: ReplaceDeltas) -> None:
        name = live_name(self.conn, edit.table_id)
        d = sql.deltas
        live = [d.c.table_id == edit.table_id, d.c.removed_version.is_(None)]
        old = [
            row
            for ids in _portions(edit.old)
            for row in self.conn.execute(sa.select(d.c.t_lo, d.c.t_hi).where(*live, d.c.delta_id.in_(ids)))
        ]
        if not old or len(old) != len(edit.old):
            raise CommitConflict(f"a delta of table '{name}' was replaced by another commit; try again")
        t_lo, t_hi = min(row.t_lo for row in old), max(row.t_hi for row in old)
        between = sa.select(sa.func.count()).select_from(d).where(*live, d.c.t_lo >= t_lo, d.c.t_lo <= t_hi)
        if self.conn.execute(between).scalar_one() != len(old):
            raise CommitConflict(f"the deltas of table '{name}' to replace are not neighbours in time; pick again")
        for ids in _portions(edit.old):
            self._remove(d, d.c.delta_id.in_(ids))
        if edit.new is not None:
            if (edit.new.t_lo, edit.new.t_hi) != (t_lo, t_hi):
                raise ValueError(f"the new delta covers [{edit.new.t_lo}, {edit.new.t_hi}], the old [{t_lo}, {t_hi}]")
            self._put_delta(edit.table_id, edit.new, t_lo, t_hi)
        new_id = edit.new.delta_id if edit.new else None
        told = {"deltas": len(old), "t_lo": t_lo, "t_hi": t_hi, "delta_id": new_id}
        self._note(edit.table_id, "replace deltas", hidden=True, **told)

    def _publish_layout(self, edit: PublishLayout) -> None:
        live_name(self.conn, edit.table_id)
        layout_id = self._next_id(sql.layouts.c.layout_id)
        self._remove(sql.layouts, sql.layouts.c.table_id == edit.table_id)
        spec = None if edit.spec is None else edit.spec.to_json()
        self._insert(sql.layouts, layout_id=layout_id, table_id=edit.table_id, spec=spec)
        self.published[edit.table_id] = layout_id
        self._note(edit.table_id, "publish layout", layout_id=layout_id)

    def _advance_qt(self, edit: AdvanceQT) -> None:
        q = sql.queryable
        wanted = {**edit.tables, DATABASE: edit.database}
        if max(wanted.values()) > self.clock:
            raise ValueError(f"a QT of {max(wanted.values())} lies beyond the clock, {self.clock}")
        for table_id, qt in self._queryable().items():  # a table dropped meanwhile is not among them
            if wanted.get(table_id, 0) > qt:
                self._remove(q, q.c.table_id == table_id)
                self._insert(q, table_id=table_id, qt=wanted[table_id])
                told = {"qt": wanted[table_id], "before": qt}
                self._note(table_id, "advance qt", hidden=table_id != DATABASE, **told)

    def _queryable(self) -> dict[int, int]:
        """The QT of every table, and of the database."""
        q = sql.queryable
        stored = sa.select(q.c.table_id, q.c.qt).where(q.c.removed_version.is_(None))
        return {row.table_id: row.qt for row in self.conn.execute(stored)}

    def _put_schema(self, table_id: int, schema: TableSchema) -> int:
        schema_id = self._next_id(sql.schemas.c.schema_id)
        self._insert(sql.schemas, schema_id=schema_id, table_id=table_id, body=schema.to_json())
        return schema_id

    def _put_settings(self, table_id: int, settings: Settings) -> None:
        self._insert(sql.settings, table_id=table_id, body=settings.to_json())

    def _put_delta(self, table_id: int, delta: Delta, t_lo: int, t_hi: int) -> None:
        if delta.table_id != table_id:
            raise ValueError(f"delta {delta.delta_id} is of table {delta.table_id}, its edit of table {table_id}")
        layout_id = delta.layout_id
        if layout_id == LAYOUT_OF_THIS_COMMIT:
            layout_id = self.published[table_id]
        self._must_exist(sql.schemas.c.schema_id, delta.schema_id, table_id)
        if layout_id != 0:
            self._must_exist(sql.layouts.c.layout_id, layout_id, table_id)
        self._insert(
            sql.deltas,
            delta_id=delta.delta_id,
            table_id=table_id,
            t_lo=t_lo,
            t_hi=t_hi,
            level=delta.level,
            rows=delta.rows,
            bytes=delta.bytes,
            schema_id=delta.schema_id,
            layout_id=layout_id,
        )
        stored = enumerate((delta.index, *delta.files), start=INDEX_POSITION)
        self.conn.execute(
            sql.files.insert(), [{"delta_id": delta.delta_id, "position": i, **asdict(file)} for i, file in stored]
        )

    def _must_exist(self, column: sa.Column[Any], wanted: int, table_id: int) -> None:
        owner = self.conn.execute(sa.select(column.table.c.table_id).where(column == wanted)).scalar()
        if owner != table_id:
            raise CommitConflict(f"{column.name} {wanted} is none of table {table_id}; read its state again and retry")

    def _must_be_table(self, table_id: int, name: str, advice: str) -> None:
        v = sql.views
        is_view = sa.select(v.c.table_id).where(v.c.table_id == table_id, v.c.removed_version.is_(None))
        if self.conn.execute(is_view).scalar() is not None:
            raise SchemaError(f"'{name}' is a view: {advice}")

    def _next_id(self, column: sa.Column[Any]) -> int:
        # Such rows are never deleted and the clock is locked, so the id is new.
        return int(self.conn.execute(sa.select(sa.func.coalesce(sa.func.max(column), 0))).scalar_one()) + 1

    def _insert(self, table: sa.Table, **values: Any) -> None:
        self.conn.execute(table.insert().values(**values, added_version=self.version))

    def _remove(self, table: sa.Table, which: sa.ColumnElement[bool]) -> None:
        live = table.update().where(which, table.c.removed_version.is_(None))
        self.conn.execute(live.values(removed_version=self.version))

    def _note(self, table_id: int, edit: str, *, hidden: bool = False, **detail: Any) -> None:
        """``hidden``: a query reads the same rows as before, and may read them from the same files."""
        self.visible |= not hidden
        self.changes.append((table_id, edit, detail))


def _portions(ids: Iterable[str]) -> Iterator[list[str]]:
    everything = list(ids)
    for start in range(0, len(everything), _IDS_PER_STATEMENT):
        yield everything[start : start + _IDS_PER_STATEMENT]
