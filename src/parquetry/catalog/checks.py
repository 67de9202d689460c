"""What must hold when a commit's edits are applied: its tables live, [0, QT] is covered, no QT passes a view."""

from __future__ import annotations

import sqlalchemy as sa

from parquetry.catalog import tables as sql
from parquetry.catalog.tables import DATABASE
from parquetry.errors import CommitConflict


def live_name(conn: sa.Connection, table_id: int) -> str:
    t = sql.tables
    live = sa.select(t.c.name).where(t.c.table_id == table_id, t.c.removed_version.is_(None))
    name = conn.execute(live).scalar()
    if name is None:
        raise CommitConflict(f"table {table_id} does not exist, or was dropped by another commit")
    return str(name)


def check_cover(conn: sa.Connection) -> None:
    """Readers at the database's QT need deltas that cover [0, QT]: none may begin before it and end after it."""
    d, qt = sql.deltas, _database_qt(conn)
    across = (d.c.removed_version.is_(None), d.c.t_lo <= qt, d.c.t_hi > qt)
    found = conn.execute(sa.select(d.c.delta_id).where(*across).limit(1)).scalar()
    if found is not None:
        raise CommitConflict(f"delta {found} would reach across the queryable timestamp {qt}; pick again")


def _database_qt(conn: sa.Connection) -> int:
    q = sql.queryable
    now = (q.c.table_id == DATABASE, q.c.removed_version.is_(None))
    return conn.execute(sa.select(q.c.qt).where(*now)).scalar() or 0


def views_of(conn: sa.Connection) -> list[tuple[int, int, list[int]]]:
    """(view, how far it is built, its sources) of every view."""
    v, b = sql.views, sql.built
    live = (v.c.removed_version.is_(None), b.c.removed_version.is_(None))
    rows = conn.execute(sa.select(v.c.table_id, b.c.until, v.c.body).where(v.c.table_id == b.c.table_id, *live))
    return [(i, until, [s["table_id"] for s in body["sources"]]) for i, until, body in rows.all()]


def ready_views(conn: sa.Connection) -> set[int]:
    """The views that are complete up to the database's QT, themselves and in what they are made from."""
    d, qt = sql.deltas, _database_qt(conn)
    views = {i: (built, sources) for i, built, sources in views_of(conn)}

    def ready(table_id: int) -> bool:
        if table_id not in views:
            return True
        built, sources = views[table_id]
        waiting = (d.c.table_id.in_(sources), d.c.removed_version.is_(None), d.c.t_hi > built, d.c.t_lo <= qt)
        if conn.execute(sa.select(d.c.delta_id).where(*waiting).limit(1)).scalar() is not None:
            return False
        return all(ready(s) for s in sources)

    return {i for i in views if ready(i)}


def check_views(conn: sa.Connection, ready: set[int]) -> None:
    """No QT passes a view that held it, and no delta reaches across what a view over its table has taken in."""
    if ready and (passed := ready - ready_views(conn)):
        raise CommitConflict(f"the QT would pass view '{live_name(conn, min(passed))}'; pick again")
    d = sql.deltas
    for view_id, built, sources in views_of(conn):
        across = (d.c.table_id.in_(sources), d.c.removed_version.is_(None), d.c.t_lo <= built, d.c.t_hi > built)
        if conn.execute(sa.select(d.c.delta_id).where(*across).limit(1)).scalar() is not None:
            name = live_name(conn, view_id)
            raise CommitConflict(f"a delta would reach across timestamp {built}, up to which '{name}' is built")
