"""Pins keep a version readable; the horizon is the oldest version that still is. Vacuum may not pass a pin."""

from __future__ import annotations

import math
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.database import Database
from parquetry.catalog.loading import delta_of, file_of
from parquetry.catalog.retention import BATCH_ROWS, pause, version_before
from parquetry.errors import CatalogError, CommitConflict
from parquetry.model.delta import Delta, StoredFile


@dataclass(frozen=True)
class Pin:
    """Until ``expires_at`` nothing that ``version`` refers to is removed."""

    pin_id: str
    version: int
    holder: str
    seconds: float
    expires_at: float


@dataclass(frozen=True)
class Reader:
    """Who holds a version: ``holder`` is its host and process."""

    holder: str
    version: int
    since: float | None

    def __str__(self) -> str:
        host, _, process = self.holder.rpartition(":")
        since = "" if self.since is None else f" since {datetime.fromtimestamp(self.since, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"process {process} on {host} reads version {self.version}{since}"


def put_pin(db: Database, pin: Pin) -> Pin:
    """Stores a new, moved or renewed pin for its full time; CatalogError if vacuum has passed its version."""
    with db.write(durable=False) as conn:
        # Shared lock: many readers pin at once, but not while vacuum raises the horizon.
        if pin.version < _horizon(conn, share=True):
            raise CatalogError(f"version {pin.version} was vacuumed meanwhile; try again on the newest version")
        now = db.now(conn)
        fresh = replace(pin, expires_at=now + pin.seconds)
        p = sql.pins
        values = {"version": fresh.version, "holder": fresh.holder, "expires_at": fresh.expires_at}
        since = sa.case((p.c.version == fresh.version, p.c.since), else_=now)
        mine = p.update().where(p.c.pin_id == pin.pin_id)
        if conn.execute(mine.values(**values, since=since)).rowcount == 0:
            conn.execute(p.delete().where(p.c.expires_at <= now))
            conn.execute(p.insert().values(pin_id=pin.pin_id, **values, since=now))
        return fresh


def new_pin(version: int, holder: str, seconds: float) -> Pin:
    return Pin(uuid.uuid4().hex, version, holder, seconds, 0.0)


def unpin(db: Database, pin: Pin) -> None:
    with db.write(durable=False) as conn:
        conn.execute(sql.pins.delete().where(sql.pins.c.pin_id == pin.pin_id))


def oldest_pinned(db: Database) -> int | None:
    """The oldest version that a live pin holds."""
    with db.read() as conn:
        return _oldest(db, conn)


def oldest_reader(db: Database) -> Reader | None:
    p = sql.pins
    with db.read() as conn:
        live = sa.select(p.c.holder, p.c.version, p.c.since).where(p.c.expires_at > db.now(conn))
        row = conn.execute(live.order_by(p.c.version, p.c.since).limit(1)).one_or_none()
        return None if row is None else Reader(row.holder, row.version, row.since)


def holders(db: Database) -> set[str]:
    """Who has pinned a version."""
    with db.read() as conn:
        live = sa.select(sql.pins.c.holder).where(sql.pins.c.expires_at > db.now(conn))
        return set(conn.execute(live).scalars())


def horizon(db: Database) -> int:
    with db.read() as conn:
        return int(conn.execute(_HORIZON).scalar_one())


def raise_horizon(db: Database, version: int) -> None:
    """From now on no version before ``version`` can be pinned; CommitConflict if one is pinned right now.

    Vacuum calls this before it deletes the first file, and :func:`forget` after the last: a crash between leaves
    the rows of the garbage, so the next vacuum finds it again.
    """
    with db.write() as conn:
        before = _horizon(conn, share=False)
        newest = conn.execute(sa.select(sql.clock.c.version)).scalar_one()
        if version > newest:
            raise ValueError(f"a horizon of {version} lies beyond the newest version, {newest}")
        oldest = _oldest(db, conn)
        if oldest is not None and oldest < version:
            raise CommitConflict(f"a reader has pinned version {oldest}; vacuum may not pass it, try again later")
        if version > before:
            conn.execute(sql.meta.update().where(sql.meta.c.name == "horizon").values(value=version))


def lift_horizon(db: Database, before: float, *, dry_run: bool) -> int:
    """Raises the horizon to the newest version made before a time, or as far as pins let it; the horizon then."""
    with db.read() as conn:
        wanted = version_before(conn, before)
    with db.read() if dry_run else db.write() as conn:
        now = int(conn.execute(_HORIZON).scalar_one()) if dry_run else _horizon(conn, share=False)
        oldest = _oldest(db, conn)
        version = max(now, wanted if oldest is None else min(wanted, oldest))
        if version > now and not dry_run:
            conn.execute(sql.meta.update().where(sql.meta.c.name == "horizon").values(value=version))
        return version


def garbage(db: Database, before_version: int, removed_before: float, limit: int | None) -> list[Delta]:
    """Deltas that no version from ``before_version`` on refers to, removed before that wall time: the oldest ones."""
    d = sql.deltas
    with db.read() as conn:
        if removed_before < math.inf:
            before_version = min(before_version, version_before(conn, removed_before))
        gone = d.c.removed_version <= before_version
        rows = conn.execute(sa.select(d).where(gone).order_by(d.c.removed_version, d.c.t_lo).limit(limit)).all()
        files: dict[str, list[StoredFile]] = defaultdict(list)
        for part in _portions([row.delta_id for row in rows]):
            listed = sa.select(sql.files).where(sql.files.c.delta_id.in_(part)).order_by(sql.files.c.position)
            for f in conn.execute(listed).all():
                files[f.delta_id].append(file_of(f))
    return [delta_of(row, files[row.delta_id]) for row in rows]


def forget(db: Database, delta_ids: Iterable[str], horizon_version: int) -> None:
    """Deletes the rows of removed deltas, some at a time: no writer waits long. Like :func:`raise_horizon`, it may not
    pass a pin."""
    raise_horizon(db, horizon_version)
    d, f = sql.deltas, sql.files
    for part in _portions(list(delta_ids)):
        started = time.monotonic()
        with db.write(durable=False) as conn:
            dead = (d.c.delta_id.in_(part), d.c.removed_version <= horizon_version)
            conn.execute(f.delete().where(f.c.delta_id.in_(sa.select(d.c.delta_id).where(*dead))))
            conn.execute(d.delete().where(*dead))
        pause(time.monotonic() - started)


def known_delta_ids(db: Database) -> set[str]:
    """Every delta that some version may refer to; a folder of another name is an orphan."""
    with db.read() as conn:
        return set(conn.execute(sa.select(sql.deltas.c.delta_id)).scalars())


def referenced_paths(db: Database, horizon: int | None = None) -> set[str]:
    """The files of every known delta, or of those that a version from ``horizon`` on refers to. Several deltas may list
    one file (a partial rewrite): each took it over in the commit that ended the one before."""
    d, f = sql.deltas, sql.files
    paths = sa.select(f.c.path)
    if horizon is not None:
        needed = sa.or_(d.c.removed_version.is_(None), d.c.removed_version > horizon)
        paths = paths.join(d, d.c.delta_id == f.c.delta_id).where(needed)
    with db.read() as conn:
        return set(conn.execute(paths).scalars())


_HORIZON = sa.select(sql.meta.c.value).where(sql.meta.c.name == "horizon")


def _portions(ids: Sequence[str]) -> list[Sequence[str]]:
    # A delta has a row of its own, one of its index and as a rule one of data.
    size = BATCH_ROWS // 3
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def _horizon(conn: sa.Connection, *, share: bool) -> int:
    return int(conn.execute(_HORIZON.with_for_update(read=share)).scalar_one())


def _oldest(db: Database, conn: sa.Connection) -> int | None:
    live = sa.select(sa.func.min(sql.pins.c.version)).where(sql.pins.c.expires_at > db.now(conn))
    return conn.execute(live).scalar()
