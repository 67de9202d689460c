"""The catalog: versions of all metadata in a SQL database, changed only by commits of edits."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from parquetry import failpoints
from parquetry.catalog import leases, migrations, pins, records, retention
from parquetry.catalog import tables as sql
from parquetry.catalog.apply_edits import Applying
from parquetry.catalog.database import Database
from parquetry.catalog.labels import find_label, not_yet_ingested
from parquetry.catalog.leases import Lease, LeaseKeeper
from parquetry.catalog.loading import refresh_state, state_at
from parquetry.catalog.pins import Pin, Reader
from parquetry.catalog.retention import Trimmed
from parquetry.errors import CatalogError
from parquetry.model.delta import Delta
from parquetry.model.retention import Retention
from parquetry.model.state import AddDelta, Commit, Edit, Label, State


class Catalog:
    """All metadata of one warehouse. Safe to share between threads; processes share it through the database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._cached: State | None = None
        self._refreshing = threading.Lock()
        self._made = 0  # the newest version that was committed here

    @classmethod
    def create(cls, url: str | sa.URL) -> Catalog:
        """Makes an empty catalog at ``sqlite:///FILE`` or ``postgresql://USER@HOST/DATABASE``."""
        db = Database(url)
        try:
            migrations.create_tables(db)
        except BaseException:
            db.close()
            raise
        return cls(db)

    @classmethod
    def open(cls, url: str | sa.URL) -> Catalog:
        """Opens a catalog, bringing one of an older format up to date."""
        db = Database(url)
        if db.path is not None and not db.path.is_file():
            raise CatalogError(f"there is no catalog {db.where}; make one with 'parquetry init', or check the path")
        try:
            migrations.upgrade(db)
        except BaseException:
            db.close()
            raise
        return cls(db)

    def close(self) -> None:
        self._db.close()

    def check_process(self) -> None:
        """CatalogError in a process that was forked from the one that opened the catalog."""
        self._db.check_process()

    @property
    def forked(self) -> bool:
        return self._db.forked

    def now(self) -> float:
        """The wall clock that leases, pins and the times of versions go by."""
        with self._db.single() as conn:
            return self._db.now(conn)

    # -- reading ----------------------------------------------------------------------------------

    def version(self) -> int:
        """The newest version."""
        return self._number(_NEWEST)

    def shows_more_than(self, version: int) -> bool:
        """Whether a reader of ``version`` has to read on: the QT or a definition has changed, or this process has
        changed something. New data before the QT moves, and compaction by others, can wait."""
        return self._made > version or self._number(_VISIBLE) > version

    def _number(self, wanted: sa.Select[tuple[int]]) -> int:
        found = self._db.scalar(wanted)
        if not isinstance(found, int):
            raise CatalogError("the catalog is damaged: its clock cannot be read; restore it from a copy")
        return found

    def state(self) -> State:
        """The newest state: from memory when nothing changed, else with the changed rows read (NA-49)."""
        newest = self.version()
        with self._refreshing:
            if self._cached is None or self._cached.version < newest:
                with self._db.read() as conn:
                    self._cached = refresh_state(conn, self._cached)
            return self._cached

    def state_at(self, version: int) -> State:
        """The state of an older version; pin it first, or vacuum may take its files away."""
        with self._db.read() as conn:
            return state_at(conn, version)

    def label(self, table_id: int, label: str) -> Label | None:
        with self._db.read() as conn:
            return find_label(conn, table_id, label)

    def labels(self, table_id: int, up_to_t: int | None = None) -> list[Label]:
        return records.labels(self._db, table_id, up_to_t)

    def history(self, table_id: int | None = None, limit: int = 1000) -> list[records.VersionRecord]:
        return records.history(self._db, table_id, limit)

    def made_at(self) -> dict[str, float]:
        """When each table and view was made, by name."""
        return records.made_at(self._db)

    def hidden_since(self, qt: int) -> float | None:
        """When the oldest batch beyond ``qt`` was committed; None if there is none."""
        return records.hidden_since(self._db, qt)

    # -- changing ---------------------------------------------------------------------------------

    def commit(
        self,
        edits: Sequence[Edit],
        *,
        kind: str,
        lease: Lease | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> Commit:
        """Applies all edits in one transaction that makes one new version, or changes nothing and raises.

        Edits that change nothing (a QT that is there already, a repeated label) make no version. A commit whose
        batches were all ingested before is a repetition: none of its edits is applied.
        """
        with self._db.write() as conn:
            version, clock = conn.execute(sa.select(sql.clock.c.version, sql.clock.c.t).with_for_update()).one()
            if lease is not None:
                leases.check_held(self._db, conn, lease)
            remaining, repeated = not_yet_ingested(conn, edits)
            if repeated is not None and not any(isinstance(e, AddDelta) for e in remaining):
                return Commit(version, clock, repeated, repeated=True)
            applying = Applying(conn, version + 1, clock, self._db.now(conn))
            applying.apply(remaining)
            if not applying.changes:
                return Commit(version, clock)
            self._write_version(applying, kind, detail)
            failpoints.reach("commit.in_transaction")
        self._made = max(self._made, applying.version)
        failpoints.reach("commit.done")
        return Commit(applying.version, applying.clock, applying.label)

    def _write_version(self, applied: Applying, kind: str, detail: Mapping[str, Any] | None) -> None:
        version, conn = applied.version, applied.conn
        row = {"version": version, "at": applied.at, "t": applied.clock, "kind": kind}
        conn.execute(sql.versions.insert().values(**row, detail=None if detail is None else dict(detail)))
        conn.execute(
            sql.changes.insert(),
            [{"version": version, "table_id": i, "edit": edit, "detail": what} for i, edit, what in applied.changes],
        )
        seen = {"visible": version} if applied.visible else {}
        conn.execute(sql.clock.update().values(version=version, t=applied.clock, **seen))

    # -- leases -----------------------------------------------------------------------------------

    def acquire(self, resource: str, holder: str, seconds: float) -> Lease | None:
        return leases.acquire(self._db, resource, holder, seconds)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        return leases.renew(self._db, lease, seconds)

    def release(self, lease: Lease) -> None:
        leases.release(self._db, lease)

    def live_resources(self, prefix: str) -> set[str]:
        return leases.live_resources(self._db, prefix)

    def at_work(self, prefix: str) -> dict[str, str]:
        """Who works on what, by the resources of their leases; the dead are left out where that is known."""
        return leases.at_work(self._db, prefix)

    def keep(self, lease: Lease, seconds: float) -> LeaseKeeper:
        """``with catalog.keep(lease, 30) as keeper: ... commit(..., lease=keeper.lease)``."""
        return LeaseKeeper(self._db, lease, seconds)

    # -- pins and vacuum --------------------------------------------------------------------------

    def pin(self, version: int, holder: str, seconds: float) -> Pin:
        """Keeps what ``version`` refers to; CatalogError if vacuum has passed it already."""
        return pins.put_pin(self._db, pins.new_pin(version, holder, seconds))

    def move_pin(self, pin: Pin, version: int) -> Pin:
        """The pin on another version, for its full time again."""
        return pins.put_pin(self._db, replace(pin, version=version))

    def unpin(self, pin: Pin) -> None:
        pins.unpin(self._db, pin)

    def pin_holders(self) -> set[str]:
        """Who reads: all that have pinned a version."""
        return pins.holders(self._db)

    def oldest_pinned(self) -> int | None:
        return pins.oldest_pinned(self._db)

    def oldest_reader(self) -> Reader | None:
        """Who has pinned the oldest version."""
        return pins.oldest_reader(self._db)

    def horizon(self) -> int:
        """The oldest version that can be read."""
        return pins.horizon(self._db)

    def raise_horizon(self, version: int) -> None:
        """Ends the readability of versions before ``version``; call it before deleting the first file of garbage."""
        pins.raise_horizon(self._db, version)

    def lift_horizon(self, before: float, *, dry_run: bool = False) -> int:
        """Raises the horizon to the newest version made before this time, but past no pin; gives what it is then."""
        return pins.lift_horizon(self._db, before, dry_run=dry_run)

    def garbage(self, before_version: int, removed_before: float = math.inf, limit: int | None = None) -> list[Delta]:
        """Deltas that no version from ``before_version`` on refers to, removed before that wall time; the oldest."""
        return pins.garbage(self._db, before_version, removed_before, limit)

    def forget(self, delta_ids: Iterable[str], horizon_version: int) -> None:
        """Deletes the rows of removed deltas; call it after their files are gone."""
        pins.forget(self._db, delta_ids, horizon_version)

    def known_delta_ids(self) -> set[str]:
        return pins.known_delta_ids(self._db)

    def referenced_paths(self, horizon: int | None = None) -> set[str]:
        """Every file that a known delta lists; with ``horizon`` those that a version from there on refers to."""
        return pins.referenced_paths(self._db, horizon)

    # -- retention --------------------------------------------------------------------------------

    def retention(self) -> Retention:
        """What the catalog keeps, and how long."""
        return retention.policy(self._db)

    def set_retention(self, wanted: Retention) -> None:
        retention.set_policy(self._db, wanted)

    def trim(self, kept: Retention, horizon: int) -> Trimmed:
        """Removes what is older than ``kept`` says, in short transactions; all of it is before ``horizon``."""
        return retention.trim(self._db, kept, horizon)

    # -- query log --------------------------------------------------------------------------------

    def log_queries(self, rows: Sequence[records.QueryRow]) -> None:
        records.log_queries(self._db, rows)

    def queries(self, limit: int, table: str | None = None) -> list[dict[str, Any]]:
        return records.queries(self._db, limit, table)


_NEWEST = sa.select(sql.clock.c.version)
_VISIBLE = sa.select(sql.clock.c.visible)
