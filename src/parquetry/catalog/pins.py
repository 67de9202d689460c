"""Pins keep a version readable; the horizon is the oldest version that still is. Vacuum may not pass a pin."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.database import Database
from parquetry.catalog.loading import delta_of
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


def put_pin(db: Database, pin: Pin) -> Pin:
    """Stores a new, moved or renewed pin for its full time; CatalogError if vacuum has passed its version."""
    with db.write(durable=False) as conn:
        # Shared lock: many readers pin at once, but not while vacuum raises the horizon.
        horizon = _horizon(conn, share=True)
        if pin.version < horizon:
            raise CatalogError(f"version {pin.version} was vacuumed meanwhile; try again on the newest version")
        now = db.now(conn)
        fresh = replace(pin, expires_at=now + pin.seconds)
        values = {"version": fresh.version, "holder": fresh.holder, "expires_at": fresh.expires_at}
        if conn.execute(sql.pins.update().where(sql.pins.c.pin_id == pin.pin_id).values(**values)).rowcount == 0:
            conn.execute(sql.pins.delete().where(sql.pins.c.expires_at <= now))
            conn.execute(sql.pins.insert().values(pin_id=pin.pin_id, **values))
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


def holders(db: Database) -> set[str]:
    """Who has pinned a version."""
    with db.read() as conn:
        live = sa.select(sql.pins.c.holder).where(sql.pins.c.expires_at > db.now(conn))
        return set(conn.execute(live).scalars())


def raise_horizon(db: Database, version: int) -> None:
    """From now on no version before ``version`` can be pinned; CommitConflict if one is pinned right now.

    Vacuum calls this before it deletes the first file, and :func:`forget` after the last: a crash between leaves
    the rows of the garbage, so the next vacuum finds it again.
    """
    with db.write() as conn:
        horizon = _horizon(conn, share=False)
        newest = conn.execute(sa.select(sql.clock.c.version)).scalar_one()
        if version > newest:
            raise ValueError(f"a horizon of {version} lies beyond the newest version, {newest}")
        oldest = _oldest(db, conn)
        if oldest is not None and oldest < version:
            raise CommitConflict(f"a reader has pinned version {oldest}; vacuum may not pass it, try again later")
        if version > horizon:
            conn.execute(sql.meta.update().where(sql.meta.c.name == "horizon").values(value=version))


def garbage(db: Database, before_version: int, removed_before: float) -> list[Delta]:
    """Deltas that no version from ``before_version`` on refers to, removed before that wall time."""
    d, v = sql.deltas, sql.versions
    gone = (d.c.removed_version <= before_version, v.c.at < removed_before)
    joined = d.join(v, v.c.version == d.c.removed_version)
    with db.read() as conn:
        rows = conn.execute(sa.select(d).select_from(joined).where(*gone).order_by(d.c.table_id, d.c.t_lo)).all()
        of_gone = sa.select(sql.files).select_from(joined.join(sql.files, sql.files.c.delta_id == d.c.delta_id))
        files: dict[str, list[StoredFile]] = defaultdict(list)
        for f in conn.execute(of_gone.where(*gone).order_by(sql.files.c.position)).all():
            files[f.delta_id].append(StoredFile(f.path, f.bytes, f.checksum, f.rows))
    return [delta_of(row, files[row.delta_id]) for row in rows]


def forget(db: Database, delta_ids: Iterable[str], horizon_version: int) -> None:
    """Deletes the rows of removed deltas. Like :func:`raise_horizon`, it may not pass a pin."""
    raise_horizon(db, horizon_version)
    d = sql.deltas
    with db.write() as conn:
        for delta_id in delta_ids:
            dead = d.delete().where(d.c.delta_id == delta_id, d.c.removed_version <= horizon_version)
            if conn.execute(dead).rowcount:
                conn.execute(sql.files.delete().where(sql.files.c.delta_id == delta_id))


def known_delta_ids(db: Database) -> set[str]:
    """Every delta that some version may refer to; a folder of another name is an orphan."""
    with db.read() as conn:
        return set(conn.execute(sa.select(sql.deltas.c.delta_id)).scalars())


def referenced_paths(db: Database, besides: Collection[str]) -> set[str]:
    """The files of every delta that some version may refer to; several deltas may list one (a partial rewrite)."""
    with db.read() as conn:
        rows = conn.execute(sa.select(sql.files.c.delta_id, sql.files.c.path)).all()
    return {row.path for row in rows if row.delta_id not in besides}


def _horizon(conn: sa.Connection, *, share: bool) -> int:
    stored = sa.select(sql.meta.c.value).where(sql.meta.c.name == "horizon").with_for_update(read=share)
    return int(conn.execute(stored).scalar_one())


def _oldest(db: Database, conn: sa.Connection) -> int | None:
    live = sa.select(sa.func.min(sql.pins.c.version)).where(sql.pins.c.expires_at > db.now(conn))
    return conn.execute(live).scalar()
