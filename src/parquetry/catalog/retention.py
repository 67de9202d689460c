"""Trims what no readable version needs and the retention policy lets go: in short transactions, oldest rows first.

Between two of them writers get their turn. A trim that dies is carried on by the next one: every transaction leaves a
whole catalog, and what it did not get to is still the oldest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.database import Database
from parquetry.catalog.leases import ATTEMPT
from parquetry.catalog.tables import DATABASE
from parquetry.model.retention import Retention, names

BATCH_ROWS = 2000  # of one transaction: some milliseconds
_LEAST_PAUSE_S = 0.05  # SQLite's writers look for their turn this often, or a few times less
ROUTINE = ("ingest", "advance", "refresh view", "compact", "tune")
"""The kinds of commits that come by themselves, for ever. All others are somebody's deeds: few, and worth keeping."""


@dataclass(frozen=True)
class Trimmed:
    """How many rows went."""

    commits: int = 0
    labels: int = 0
    queries: int = 0
    others: int = 0  # of QTs, views' progress, settings and layouts that were replaced; leases and pins that ended


def pause(held_s: float) -> None:
    """Between two transactions: as long as the last one held others up, so that writers get half of the time."""
    time.sleep(max(_LEAST_PAUSE_S, held_s))


def policy(db: Database) -> Retention:
    stored = sa.select(sql.meta.c.name, sql.meta.c.value).where(sql.meta.c.name.in_(names()))
    with db.read() as conn:
        return Retention(**{name: int(value) for name, value in conn.execute(stored).all()})


def set_policy(db: Database, wanted: Retention) -> None:
    with db.write() as conn:
        conn.execute(sql.meta.delete().where(sql.meta.c.name.in_(names())))
        conn.execute(sql.meta.insert(), [{"name": n, "value": v} for n, v in wanted.to_json().items()])


def version_before(conn: sa.Connection, at: float) -> int:
    """The newest version that was made before this time; by bisection, for times are not indexed but grow."""
    v = sql.versions
    low, high = 0, int(conn.execute(sa.select(sql.clock.c.version)).scalar_one())
    while low < high:
        middle = (low + high + 1) // 2
        # Trimmed versions leave gaps: the one at or below stands for those between.
        found = sa.select(v.c.version, v.c.at).where(v.c.version <= middle).order_by(v.c.version.desc()).limit(1)
        version, made = conn.execute(found).one()
        if version <= low:
            low = middle  # nothing is left in between
        elif made < at:
            low = middle
        else:
            high = version - 1
    return low


def trim(db: Database, kept: Retention, horizon: int, after: Callable[[float], None] = pause) -> Trimmed:
    """Removes what is older than the policy says; of what versions are made of, nothing that one from ``horizon`` on
    has. ``after`` is called after each transaction, with how long it took."""
    trimming = _Trimming(db, after)
    with db.read() as conn:
        now = db.now(conn)
        # The horizon's own version stays: it can be read.
        commits = min(horizon - 1, version_before(conn, now - kept.history_s))
        clock = conn.execute(sa.select(sql.versions.c.t).where(sql.versions.c.version == horizon)).scalar() or 0
        shown = _shown(conn)
        oldest_query = _oldest_query(db, conn, kept, now)
    return Trimmed(
        commits=trimming.commits(commits),
        labels=trimming.labels(min(clock, shown), now - kept.labels_s),
        queries=trimming.queries(oldest_query),
        others=trimming.replaced(horizon) + trimming.ended(now),
    )


def _shown(conn: sa.Connection) -> int:
    """The database's QT: of batches beyond it people ask since when they wait."""
    q = sql.queryable
    now = (q.c.table_id == DATABASE, q.c.removed_version.is_(None))
    return int(conn.execute(sa.select(q.c.qt).where(*now)).scalar() or 0)


def _oldest_query(db: Database, conn: sa.Connection, kept: Retention, now: float) -> int:
    """The first number of the log that stays by age, rows and bytes alike."""
    q = sql.queries
    size = sum((_bytes_of(db, c) for c in (q.c.stats, q.c.shape)), start=_bytes_of(db, q.c.sql))
    newest = sa.select(q.c.query_id, sa.func.sum(size).over(order_by=q.c.query_id.desc()).label("total"))
    newest = newest.order_by(q.c.query_id.desc()).limit(kept.queries_rows)
    fits = newest.subquery()
    last = conn.execute(sa.select(sa.func.min(fits.c.query_id)).where(fits.c.total <= kept.queries_bytes)).scalar()
    if last is None:
        last = int(conn.execute(sa.select(sa.func.coalesce(sa.func.max(q.c.query_id), 0))).scalar_one()) + 1
    young = sa.select(q.c.query_id).where(q.c.query_id >= last, q.c.at >= now - kept.queries_s)
    first = conn.execute(young.order_by(q.c.query_id).limit(1)).scalar()
    if first is None:
        first = int(conn.execute(sa.select(sa.func.coalesce(sa.func.max(q.c.query_id), 0))).scalar_one()) + 1
    return int(first)


def _bytes_of(db: Database, column: sa.Column[object]) -> sa.ColumnElement[int]:
    if db.sqlite:
        return sa.func.coalesce(sa.func.length(sa.cast(column, sa.LargeBinary)), 0)
    return sa.func.coalesce(sa.func.octet_length(sa.cast(column, sa.Text)), 0)


class _Trimming:
    def __init__(self, db: Database, after: Callable[[float], None]) -> None:
        self._db, self._after = db, after

    @contextmanager
    def _batch(self) -> Iterator[sa.Connection]:
        started = time.monotonic()
        with self._db.write(durable=False) as conn:
            yield conn
        self._after(time.monotonic() - started)

    def commits(self, until: int) -> int:
        """Routine versions up to this one with what they changed. How far it came is kept: others stay in between."""
        v, c, m = sql.versions, sql.changes, sql.meta
        gone = 0
        while True:
            with self._db.read() as conn:
                mark = int(conn.execute(sa.select(m.c.value).where(m.c.name == "trimmed")).scalar() or 0)
                some = sa.select(c.c.version).where(c.c.version > mark, c.c.version <= until).order_by(c.c.version)
                # A batch ends before the version in which it would get too large; a single version may be larger.
                last = conn.execute(some.offset(BATCH_ROWS // 2).limit(1)).scalar()
            end = until if last is None else max(mark + 1, int(last) - 1)
            if end <= mark:
                return gone
            with self._batch() as conn:
                here = (v.c.version > mark, v.c.version <= end)
                deeds = sa.select(v.c.version).where(*here, v.c.kind.not_in(ROUTINE))
                conn.execute(c.delete().where(c.c.version > mark, c.c.version <= end, c.c.version.not_in(deeds)))
                gone += conn.execute(v.delete().where(*here, v.c.kind.in_(ROUTINE))).rowcount
                if conn.execute(m.update().where(m.c.name == "trimmed").values(value=end)).rowcount == 0:
                    conn.execute(m.insert().values(name="trimmed", value=end))

    def labels(self, clock: int, before: float) -> int:
        """Labels up to a timestamp and from before a time, but for the last one of each table: it tells how far the
        table has come."""
        b = sql.labels
        gone = 0
        with self._db.read() as conn:
            tables = list(conn.execute(sa.select(sql.tables.c.table_id)).scalars())
        for table_id in tables:
            of_table = (b.c.table_id == table_id, b.c.t <= clock)
            while True:
                with self._db.read() as conn:
                    rows = conn.execute(
                        sa.select(b.c.t, b.c.at).where(*of_table).order_by(b.c.t).limit(BATCH_ROWS)
                    ).all()
                    last = conn.execute(sa.select(sa.func.max(b.c.t)).where(*of_table)).scalar()
                young = (t for t, at in rows if t == last or (at is not None and at >= before))
                end = next(young, clock + 1)
                old = [t for t, _ in rows if t < end]
                if not old:
                    break
                with self._batch() as conn:
                    gone += conn.execute(b.delete().where(*of_table, b.c.t <= old[-1])).rowcount
        return gone

    def queries(self, first: int) -> int:
        """The log before this number."""
        q = sql.queries
        gone = 0
        while True:
            with self._db.read() as conn:
                some = sa.select(q.c.query_id).where(q.c.query_id < first).order_by(q.c.query_id).limit(BATCH_ROWS)
                ids = list(conn.execute(some).scalars())
            if not ids:
                return gone
            with self._batch() as conn:
                gone += conn.execute(q.delete().where(q.c.query_id <= ids[-1])).rowcount

    def replaced(self, horizon: int) -> int:
        """Rows that no readable version has, of tables that every advance and refresh adds to; layouts that no delta
        was written in."""
        gone = 0
        d, named = sql.deltas, sql.layouts.c.layout_id
        for table in (sql.queryable, sql.built, sql.settings, sql.layouts):
            removed = table.c.removed_version
            unneeded: tuple[sa.ColumnElement[bool], ...] = ()
            if table is sql.layouts:
                newest = sa.select(sa.func.max(sql.layouts.alias().c.layout_id)).scalar_subquery()
                in_use = sa.select(d.c.layout_id)
                unneeded = (named.not_in(in_use), named < newest)  # ids are given out by the largest one there is
            mark = -1
            while True:
                with self._db.read() as conn:
                    some = sa.select(removed).where(removed > mark, removed <= horizon).order_by(removed)
                    versions = list(conn.execute(some.limit(BATCH_ROWS)).scalars())
                if not versions:
                    break
                with self._batch() as conn:
                    here = (removed > mark, removed <= versions[-1], *unneeded)
                    gone += conn.execute(table.delete().where(*here)).rowcount
                mark = versions[-1]
        return gone

    def ended(self, now: float) -> int:
        """Leases of attempts and pins that have ended. Other leases stay: their tokens must grow, and they are few."""
        gone = 0
        attempts = sql.leases.c.resource.startswith(ATTEMPT, autoescape=True)
        for table, key, which in (
            (sql.leases, sql.leases.c.resource, attempts),
            (sql.pins, sql.pins.c.pin_id, sa.true()),
        ):
            over = sa.and_(table.c.expires_at <= now, which)
            while True:
                with self._db.read() as conn:
                    keys = list(conn.execute(sa.select(key).where(over).limit(BATCH_ROWS)).scalars())
                if not keys:
                    break
                with self._batch() as conn:
                    gone += conn.execute(table.delete().where(key.in_(keys), over)).rowcount
        return gone
