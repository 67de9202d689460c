"""Which work brings the warehouse up to date: a pure function from the catalog's state to stages.

``explain`` prints these stages and ``run`` performs them, so both always agree. Compaction is tiered: the newest deltas
are merged with ever larger older neighbours, so each row is rewritten about log times (NA-43, NA-62).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parquetry.model.delta import Delta
from parquetry.model.queryable import candidate, next_step, queryable, ready, runs, sources_of, views_over
from parquetry.model.settings import Settings
from parquetry.model.state import State, TableState


@dataclass(frozen=True)
class Compact:
    """Merge these neighbouring deltas into one."""

    table: str
    table_id: int
    deltas: tuple[Delta, ...]
    why: str

    def __str__(self) -> str:
        rows, size = sum(d.rows for d in self.deltas), sum(d.bytes for d in self.deltas)
        span = f"[{self.deltas[0].t_lo}, {self.deltas[-1].t_hi}]"
        return f"compact {self.table}: {len(self.deltas)} deltas {span}, {rows:,} rows, {size:,} bytes ({self.why})"

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "compact",
            "table": self.table,
            "deltas": len(self.deltas),
            "t_lo": self.deltas[0].t_lo,
            "t_hi": self.deltas[-1].t_hi,
            "rows": sum(d.rows for d in self.deltas),
            "bytes": sum(d.bytes for d in self.deltas),
            "why": self.why,
        }


@dataclass(frozen=True)
class Advance:
    """Publish new queryable timestamps."""

    tables: tuple[tuple[int, str, int], ...]  # table_id, name and QT of those whose own moves
    database: int
    before: int

    def __str__(self) -> str:
        if self.database > self.before:
            return f"advance QT: {self.before} -> {self.database}"
        return f"advance QTs of single tables: {', '.join(f'{name} -> {qt}' for _, name, qt in self.tables)}"

    def to_json(self) -> dict[str, Any]:
        tables = {name: qt for _, name, qt in self.tables}
        return {"stage": "advance", "qt_before": self.before, "qt": self.database, "tables": tables}


@dataclass(frozen=True)
class Refresh:
    """Take the next delta of a view's source into the view: one delta of the same time range (NA-28)."""

    table: str
    table_id: int
    deltas: tuple[Delta, ...]  # one; of joined sources those that overlap in time
    sources: str
    why: str

    @property
    def until(self) -> int:
        return max(d.t_hi for d in self.deltas)

    def __str__(self) -> str:
        span = f"[{min(d.t_lo for d in self.deltas)}, {self.until}]"
        return f"refresh {self.table}: {span} of {self.sources}, {sum(d.rows for d in self.deltas):,} rows ({self.why})"

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": "refresh",
            "view": self.table,
            "deltas": len(self.deltas),
            "t_lo": min(d.t_lo for d in self.deltas),
            "t_hi": self.until,
            "rows": sum(d.rows for d in self.deltas),
            "why": self.why,
        }


Stage = Compact | Refresh | Advance

_SIMILAR = 1.5  # an older delta joins a merge while it is at most so many times as large as all newer ones in it
_SMALL = 4 << 20  # bytes of a delta: to merge it takes no longer than a job needs to start


def pick(state: State, busy: Collection[int] = ()) -> list[Stage]:
    """All stages that bring ``state`` up to date, in the order to run them, without work on ``busy`` tables."""
    stages: list[Stage] = []
    while (stage := pick_next(state, busy)) is not None:
        stages.append(stage)
        state = _after(state, stage)
    return stages


def pick_next(
    state: State, busy: Collection[int] = (), held: Collection[int] = (), *, work_first: bool = False
) -> Stage | None:
    """The next stage. Refreshes come before compactions, but for those that spare more than they cost.

    The QT moves as soon as it can, or with ``work_first`` when nothing else is left to do. QTs of single tables, by
    which nobody reads, are published when all else is done. Nothing new of the tables ``held`` is shown.
    """
    advance = pick_advance(state, held)
    if advance is not None and advance.database > state.qt and not work_first:
        return advance
    work = pick_urgent_compaction(state, busy) or pick_refresh(state, busy) or pick_compaction(state, busy)
    return work or advance


def pick_advance(state: State, held: Collection[int] = ()) -> Advance | None:
    """The QTs that the present deltas allow, when any is beyond the published one (NA-20, NA-23)."""
    others = (t for t in state.tables.values() if t.table_id not in held)
    tables = tuple((t.table_id, t.name, qt) for t in others if (qt := queryable(state, t)) > t.qt)
    database = candidate(state, held)
    return Advance(tables, database, state.qt) if tables or database > state.qt else None


def pick_apart(state: State, busy: Collection[int]) -> tuple[Stage | None, dict[int, Exception]]:
    """For when picking fails: work on any table of which can be told what it needs, and why it cannot of the others."""
    unfit: dict[int, Exception] = {}
    for t in state.tables.values():
        if t.table_id in busy:
            continue
        alone = replace(state, tables={o.name: o for o in (t, *sources_of(state, t), *views_over(state, t))})
        others = {o.table_id for o in alone.tables.values()} - {t.table_id}
        try:
            if (found := pick_refresh(alone, others) or pick_compaction(alone, others)) is not None:
                return found, unfit
        except Exception as e:
            unfit[t.table_id] = e
    return None, unfit


def pick_refresh(state: State, busy: Collection[int] = ()) -> Refresh | None:
    """The next source delta to take into a view: what is oldest first, since it holds the QT back."""
    found: list[tuple[int, str, Refresh]] = []
    for view in state.tables.values():
        deltas = next_step(state, view) if view.view is not None and view.table_id not in busy else ()
        if deltas:
            changed = {d.table_id for d in deltas}
            sources = ", ".join(s.name for s in sources_of(state, view) if s.table_id in changed)
            why = "the QT waits" if ready(state, view) else f"filling up to QT {state.qt}"
            found.append((deltas[0].t_lo, view.name, Refresh(view.name, view.table_id, deltas, sources, why)))
    return min(found, key=lambda f: f[:2])[2] if found else None


def pick_compaction(state: State, busy: Collection[int] = ()) -> Compact | None:
    """The next compaction; the table that holds the database's QT back comes first."""
    for t in _laggards(state, busy):
        sides = runs(state, t)
        run = next(filter(None, (_tier(side, t.settings) for side in sides)), None)
        if run:
            return _compact(t, run, f"{len(run)} neighbours of similar size")
        excess = len(t.deltas) - t.settings.max_query_deltas
        run = _cheapest_window(sides, excess + 1, t.settings) if excess > 0 else []
        if run:
            return _compact(t, run, f"{excess} over max_query_deltas, QT waits")
    return None


def pick_urgent_compaction(state: State, busy: Collection[int] = ()) -> Compact | None:
    """A compaction that goes before refreshes: nothing new becomes visible without it, or it is small and views gain,
    either because their sources then have fewer deltas to take in or because they have fewer themselves.

    Refreshes cannot starve: all of these end, unless a refresh brings more.
    """
    next_of_views = {d.delta_id for v in state.tables.values() if v.view is not None for d in next_step(state, v)}
    if not next_of_views:
        return None
    for t in _laggards(state, busy):
        sides = runs(state, t)
        for run in (_tier(side, t.settings) for side in sides):
            gains = t.view is not None or any(d.delta_id in next_of_views for d in run)
            if run and gains and sum(d.bytes for d in run) <= _SMALL * len(run):
                return _compact(t, run, f"{len(run)} small neighbours, views gain")
        visible = [side for side in sides if side[-1].t_hi <= state.qt]
        excess = sum(map(len, visible)) + 1 - t.settings.max_query_deltas
        if excess > 0 and len(visible) < len(sides):
            tiers = filter(None, (_tier(side, t.settings) for side in visible))
            run = next(tiers, []) or _cheapest_window(visible, excess + 1, t.settings)
            if run:
                return _compact(t, run, f"max_query_deltas is {t.settings.max_query_deltas}, QT waits")
    return None


def _laggards(state: State, busy: Collection[int]) -> list[TableState]:
    """The tables that are not busy, those that hold the QT back first."""
    tables = (t for t in state.tables.values() if t.table_id not in busy)
    return sorted(tables, key=lambda t: (queryable(state, t), t.name))


def _compact(t: TableState, run: Sequence[Delta], why: str) -> Compact:
    return Compact(t.name, t.table_id, tuple(run), why)


def _tier(deltas: Sequence[Delta], settings: Settings) -> list[Delta]:
    """From the newest back, as long as the next older one is not much larger than all taken so far together."""
    taken: list[Delta] = []
    size = 0
    for d in reversed(deltas):
        if taken and d.bytes > _SIMILAR * size:
            break
        taken.append(d)
        size += d.bytes
    if len(taken) < settings.compaction_width:
        return []
    return taken[::-1][: settings.compaction_fan_in]


def _cheapest_window(sides: Sequence[Sequence[Delta]], width: int, settings: Settings) -> list[Delta]:
    """The contiguous run of at most ``width`` deltas of one side that costs the fewest bytes to merge."""
    width = min(width, max(map(len, sides)), settings.compaction_fan_in)
    if width < 2:
        return []
    windows = [side[i : i + width] for side in sides for i in range(len(side) - width + 1)]
    return list(min(windows, key=lambda w: sum(d.bytes for d in w)))


def _after(state: State, stage: Stage) -> State:
    if isinstance(stage, Advance):
        return _after_advance(state, stage)
    return _after_refresh(state, stage) if isinstance(stage, Refresh) else _after_compaction(state, stage)


def _after_advance(state: State, advance: Advance) -> State:
    moved = {name: replace(state.tables[name], qt=qt) for _, name, qt in advance.tables}
    return replace(state, qt=advance.database, tables={**state.tables, **moved})


def _after_refresh(state: State, done: Refresh) -> State:
    """What the state will look like, taking the view's delta to be as large as its sources' together."""
    view = state.tables[done.table]
    assert view.view is not None
    made = _merged(done.deltas, f"{done.deltas[0].delta_id}>{done.table}", done.deltas[0].level)
    deltas = tuple(sorted([*view.deltas, replace(made, table_id=view.table_id)], key=lambda d: d.t_lo))
    after = replace(view, deltas=deltas, view=replace(view.view, built=done.until))
    return replace(state, tables={**state.tables, done.table: after})


def _after_compaction(state: State, done: Compact) -> State:
    """What the state will look like, taking the merged delta to be as large as its inputs together."""
    level = max(d.level for d in done.deltas) + 1
    merged = _merged(done.deltas, "+".join(d.delta_id for d in done.deltas), level)
    table: TableState = state.tables[done.table]
    gone = {d.delta_id for d in done.deltas}
    left = sorted([d for d in table.deltas if d.delta_id not in gone] + [merged], key=lambda d: d.t_lo)
    return replace(state, tables={**state.tables, done.table: replace(table, deltas=tuple(left))})


def _merged(deltas: Sequence[Delta], delta_id: str, level: int) -> Delta:
    return replace(
        deltas[0],
        delta_id=delta_id,
        t_hi=max(d.t_hi for d in deltas),
        level=level,
        rows=sum(d.rows for d in deltas),
        bytes=sum(d.bytes for d in deltas),
    )
