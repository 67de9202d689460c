"""How far each table and view is complete, and where in time deltas must not be merged across (NA-19…NA-23)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from parquetry.model.delta import Delta, queryable_until
from parquetry.model.state import State, TableState


def sources_of(state: State, view: TableState) -> list[TableState]:
    """The tables that a view is defined over; none for a table."""
    if view.view is None:
        return []
    wanted = [s.table_id for s in view.view.spec.sources]
    by_id = {t.table_id: t for t in state.tables.values()}
    return [by_id[i] for i in dict.fromkeys(wanted) if i in by_id]


def views_over(state: State, table: TableState) -> list[TableState]:
    """The views that read this table directly."""
    return [
        v
        for v in state.tables.values()
        if v.view is not None and any(s.table_id == table.table_id for s in v.view.spec.sources)
    ]


def pending(state: State, view: TableState) -> list[Delta]:
    """The deltas of a view's sources that it has not taken in, in the order of time."""
    assert view.view is not None
    built = view.view.built
    waiting = [d for source in sources_of(state, view) for d in source.deltas if d.t_hi > built]
    return sorted(waiting, key=lambda d: (d.t_lo, d.t_hi))


def next_step(state: State, view: TableState) -> tuple[Delta, ...]:
    """The source deltas that the view takes in next: one, or of joined sources those that overlap it in time.

    Empty when the view is up to date, or when a source that is itself a view is behind.
    """
    waiting = pending(state, view)
    if not waiting:
        return ()
    until = waiting[0].t_hi
    while more := [d.t_hi for d in waiting if d.t_lo <= until < d.t_hi]:
        until = max(more)
    if until > min(complete_until(state, s) for s in sources_of(state, view)):
        return ()
    return tuple(d for d in waiting if d.t_hi <= until)


def complete_until(state: State, table: TableState) -> int:
    """The largest timestamp up to which all changes are there; a view waits for its sources' (NA-20).

    Timestamps at which no source changed cost a view nothing, so it is derived from ranges alone.
    """
    if table.view is None:
        return state.clock
    waiting = pending(state, table)
    own = waiting[0].t_lo - 1 if waiting else state.clock
    return min([own, *(complete_until(state, s) for s in sources_of(state, table))])


def queryable(state: State, table: TableState) -> int:
    """The QT that the table's present deltas allow; never less than the published one."""
    allowed = queryable_until(table.deltas, table.settings.max_query_deltas, state.clock)
    return max(table.qt, min(allowed, complete_until(state, table)))


def first_hidden(state: State, table: TableState) -> Delta | None:
    """The oldest delta of the table that readers at the database's QT do not see."""
    return min((d for d in table.deltas if d.t_hi > state.qt), key=lambda d: d.t_lo, default=None)


def candidate(state: State, held: Collection[int] = ()) -> int:
    """The database's QT that the present deltas allow: the next one, if it is beyond the published one (NA-20, NA-23).

    A view holds the QT as soon as it has caught up with it, and not before. Of the tables ``held`` nothing new can be
    shown.
    """
    gating = [queryable(state, t) for t in state.tables.values() if t.table_id not in held and ready(state, t)]
    hidden = (first_hidden(state, t) for t in state.tables.values() if t.table_id in held)
    gating += [d.t_lo - 1 for d in hidden if d is not None]
    t = min(gating, default=state.clock)
    # One table may hold the QT back at a time over which another has compacted its hidden deltas already.
    while across := [d.t_lo for table in state.tables.values() for d in table.deltas if d.t_lo <= t < d.t_hi]:
        t = min(across) - 1
    return max(state.qt, t)


def ready(state: State, table: TableState) -> bool:
    """Whether the database's QT can be read in it. A new view fills up first, and holds the QT from then on."""
    return table.view is None or complete_until(state, table) >= state.qt


def runs(state: State, table: TableState) -> list[tuple[Delta, ...]]:
    """The deltas in the runs that may be merged, newest first.

    No merge reaches across the QT, at which readers read, nor across what a view has taken in so far.
    """
    cuts = [state.qt, *(v.view.built for v in views_over(state, table) if v.view is not None)]
    return list(_cut(table.deltas, cuts))[::-1]


def _cut(deltas: Sequence[Delta], cuts: Iterable[int]) -> Iterable[tuple[Delta, ...]]:
    sides: dict[int, list[Delta]] = {}
    ordered = sorted(set(cuts))
    for d in deltas:
        sides.setdefault(sum(c < d.t_lo for c in ordered), []).append(d)
    return [tuple(sides[s]) for s in sorted(sides)]
