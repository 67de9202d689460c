"""Leases: who may do a piece of maintenance, with a token that fences off a worker that lost its lease."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from types import TracebackType

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.database import Database
from parquetry.errors import CatalogError, LeaseLost

ATTEMPT = "attempt:"
"""The prefix of resources that stand for one write attempt."""
_RENEWALS_PER_LEASE = 3  # two renewals may fail before the lease is lost


@dataclass(frozen=True)
class Lease:
    """The right to work on ``resource`` until ``expires_at`` of the catalog's wall clock.

    ``token`` grows with every holder of the resource: a commit under an older token is refused.
    """

    resource: str
    holder: str
    token: int
    expires_at: float


def acquire(db: Database, resource: str, holder: str, seconds: float) -> Lease | None:
    """The lease, or None while somebody else holds it."""
    with db.write(durable=False) as conn:
        # The commits' lock: no lease changes hands between a commit's check of it and the commit's end.
        conn.execute(sa.select(sql.clock.c.version).with_for_update())
        now = db.now(conn)
        row = conn.execute(sa.select(sql.leases).where(sql.leases.c.resource == resource)).one_or_none()
        if row is not None and row.expires_at > now:
            return None
        lease = Lease(resource, holder, row.token + 1 if row else 1, now + seconds)
        if row is None:
            conn.execute(sql.leases.insert().values(resource=resource, **_changing(lease)))
        else:
            conn.execute(sql.leases.update().where(sql.leases.c.resource == resource).values(**_changing(lease)))
        return lease


def renew(db: Database, lease: Lease, seconds: float) -> Lease:
    """The same lease with a later end; LeaseLost if it has ended."""
    with db.write(durable=False) as conn:
        now = db.now(conn)
        renewed = replace(lease, expires_at=now + seconds)
        held = sql.leases.update().where(*_is(lease), sql.leases.c.expires_at > now)
        if conn.execute(held.values(expires_at=renewed.expires_at)).rowcount == 0:
            raise _lost(lease)
        return renewed


def release(db: Database, lease: Lease) -> None:
    """Ends the lease; one that was lost already is left to its new holder.

    The row stays, for the token must grow; an attempt's goes, for its name is used once.
    """
    with db.write(durable=False) as conn:
        if lease.resource.startswith(ATTEMPT):
            conn.execute(sql.leases.delete().where(*_is(lease)))
        else:
            conn.execute(sql.leases.update().where(*_is(lease)).values(expires_at=0.0))


def live_resources(db: Database, prefix: str) -> set[str]:
    """The resources of this prefix that somebody holds right now."""
    with db.read() as conn:
        held = sql.leases.c.resource.startswith(prefix, autoescape=True), sql.leases.c.expires_at > db.now(conn)
        return set(conn.execute(sa.select(sql.leases.c.resource).where(*held)).scalars())


def check_held(db: Database, conn: sa.Connection, lease: Lease) -> None:
    """Raises LeaseLost unless the lease is held; meant for the transaction of the commit that relies on it."""
    held = conn.execute(sa.select(sql.leases.c.expires_at).where(*_is(lease))).scalar()
    if held is None or held <= db.now(conn):
        raise _lost(lease)


class LeaseKeeper:
    """Renews a lease in the background while the block runs, and releases it at its end.

    If the lease is lost all the same, ``lost`` turns true, and a commit that is given the lease fails.
    """

    def __init__(self, db: Database, lease: Lease, seconds: float) -> None:
        self._db, self._seconds = db, seconds
        self.lease = lease
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease {lease.resource}", daemon=True)

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        try:
            release(self._db, self.lease)
        except CatalogError:
            if error is None:
                raise

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / _RENEWALS_PER_LEASE):
            try:
                self.lease = renew(self._db, self.lease, self._seconds)
            except LeaseLost:
                self._lost.set()
                return
            except CatalogError:
                continue  # the database may be back before the lease ends


def _changing(lease: Lease) -> dict[str, object]:
    return {"holder": lease.holder, "token": lease.token, "expires_at": lease.expires_at}


def _is(lease: Lease) -> tuple[sa.ColumnElement[bool], ...]:
    return sql.leases.c.resource == lease.resource, sql.leases.c.token == lease.token


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(
        f"'{lease.holder}' no longer holds the lease on '{lease.resource}': it ended before the work was done; "
        "nothing was changed, try again"
    )
