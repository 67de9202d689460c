"""Leases: who may do a piece of maintenance, with a token that fences off a worker that lost its lease.

A lease ends when it is released, when its time is over, or as soon as somebody asks for it who can tell that its
process is dead.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.database import Database
from parquetry.catalog.processes import known_dead, this_process
from parquetry.errors import CatalogError, LeaseLost

ATTEMPT = "attempt:"
"""The prefix of resources that stand for one write attempt."""
_AT = " @ "  # between a holder's own words and the name of its process
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
        if row is not None and row.expires_at > now and not known_dead(_process(row.holder)):
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
    """The resources of this prefix whose lease's time is not over: tasks elsewhere may outlive the process that asked
    for them."""
    return set(_held(db, prefix))


def at_work(db: Database, prefix: str) -> dict[str, str]:
    """Who holds each resource of this prefix right now, without those that are known to be dead."""
    return {r: _words(holder) for r, holder in _held(db, prefix).items() if not known_dead(_process(holder))}


def _held(db: Database, prefix: str) -> dict[str, str]:
    with db.read() as conn:
        held = sql.leases.c.resource.startswith(prefix, autoescape=True), sql.leases.c.expires_at > db.now(conn)
        rows = conn.execute(sa.select(sql.leases.c.resource, sql.leases.c.holder).where(*held))
        return {row.resource: row.holder for row in rows}


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
        # The work is done or has failed by now, and its outcome counts: a lease that stays ends by itself.
        with suppress(CatalogError):
            release(self._db, self.lease)

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
    return {"holder": f"{lease.holder}{_AT}{this_process()}", "token": lease.token, "expires_at": lease.expires_at}


def _words(holder: str) -> str:
    return holder.rpartition(_AT)[0] or holder


def _process(holder: str) -> str:
    """The process of a holder as the catalog has it; none where an older release wrote it."""
    return holder.rpartition(_AT)[2] if _AT in holder else ""


def _is(lease: Lease) -> tuple[sa.ColumnElement[bool], ...]:
    return sql.leases.c.resource == lease.resource, sql.leases.c.token == lease.token


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(
        f"'{lease.holder}' no longer holds the lease on '{lease.resource}': it ended before the work was done; "
        "nothing was changed, try again"
    )
