"""Pinned snapshots: a reader fixes a version and a QT once and never sees another.

A reader sees at once that the QT has moved or a definition has changed; whatever else commits do, when it is shown to
it. One pin per connection stands for all its readers: it holds the oldest version any of them uses, so a query
costs nothing extra in the catalog. A background thread keeps the pin alive and moves it forward as readers finish.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from parquetry.catalog import Catalog, Pin
from parquetry.errors import CatalogError, CatalogNotWritable, QueryError
from parquetry.model.delta import Delta, cover
from parquetry.model.queryable import ready
from parquetry.model.state import State, TableState

PIN_S = 120.0
_KEPT_S = 0.75 * PIN_S  # one that was not renewed for so long may end before anybody notices


@dataclass(frozen=True, eq=False)
class ViewOver:
    """A view with what every query over its tables asks of it.

    ``rows`` are those that it shows, all deltas together; ``whole``: any query reads all of them or none.
    """

    view: TableState
    ready: bool
    rows: int
    whole: bool


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The catalog's state at one version, read at one QT. Files of it stay until it is garbage collected."""

    state: State

    @property
    def qt(self) -> int:
        return self.state.qt

    def deltas(self, table: TableState) -> tuple[Delta, ...]:
        if table.table_id not in self._covers:
            self._covers[table.table_id] = cover(table.deltas, self.qt)
        return self._covers[table.table_id]

    def ids(self, table: str) -> tuple[str, ...]:
        """Of the deltas: equal if they are, and soon compared."""
        if table not in self._ids:
            self._ids[table] = tuple(d.delta_id for d in self.deltas(self.state.table(table)))
        return self._ids[table]

    @cached_property
    def _ids(self) -> dict[str, tuple[str, ...]]:
        return {}

    @cached_property
    def _covers(self) -> dict[int, tuple[Delta, ...]]:
        return {}

    @property
    def named(self) -> str:
        return f"version {self.state.version}, QT {self.qt}"

    @cached_property
    def choices(self) -> Hashable:
        """Equal for two versions at which queries have the same tables and views to choose from."""
        return tuple(
            (t.name, t.table_id, t.schema_id, t.layout_id, t.settings, ready(self.state, t))
            for t in self.state.tables.values()
        )

    def views_over(self, table: TableState) -> list[ViewOver]:
        """The views that read the table, found once for all queries at this version."""
        return self._views.get(table.table_id, [])

    @cached_property
    def _views(self) -> dict[int, list[ViewOver]]:
        found: dict[int, list[ViewOver]] = {}
        for view in self.state.tables.values():
            if view.view is not None:
                deltas = self.deltas(view)
                rows = sum(d.rows for d in deltas)
                whole = len(deltas) <= 1 and rows <= view.settings.row_group_rows and view.layout is None
                over = ViewOver(view, ready(self.state, view), rows, whole)
                for table_id in dict.fromkeys(s.table_id for s in view.view.spec.sources):
                    found.setdefault(table_id, []).append(over)
        return found


class Snapshots:
    """Hands out snapshots of the newest version and keeps what they need from vacuum."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._pin: Pin | None = None
        self._renewed = -math.inf
        self._in_use: weakref.WeakSet[Snapshot] = weakref.WeakSet()  # added to under the lock
        self._frames: list[tuple[Snapshot, Callable[[], bool]]] = []
        self._newest: Snapshot | None = None
        self._stop = threading.Event()
        self._keeper: threading.Thread | None = None

    def take(self) -> Snapshot:
        with self._lock:
            if _now() - self._renewed > _KEPT_S:
                self._pin_oldest()
            newest = self._newest
            if newest is not None and not self._catalog.shows_more_than(newest.state.version):
                return newest
            state = self._catalog.state()
            return newest if newest is not None and newest.state.version == state.version else self._made(state)

    def held(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot for one more reader, however long ago the one before has finished."""
        with self._lock:
            again = Snapshot(snapshot.state)
            if self._pin is not None and (again.state.version < self._pin.version or _now() - self._renewed > _KEPT_S):
                try:
                    self._put(min(again.state.version, self._pin.version))
                except CatalogNotWritable:
                    pass
                except CatalogError:
                    if self._catalog.horizon() <= again.state.version:
                        raise
                    raise QueryError("what the query read was vacuumed meanwhile; ask again") from None
            self._in_use.add(again)
            return again

    def hold_while(self, snapshot: Snapshot, lives: Callable[[], bool]) -> None:
        """Holds the snapshot until ``lives`` says no; it is asked now and then."""
        with self._lock:
            self._frames.append((snapshot, lives))

    @property
    def has_frames(self) -> bool:
        return bool(self._frames)

    def show(self, state: State) -> None:
        """From now on readers get this state, or a newer one."""
        with self._lock:
            newest = self._newest
            if newest is not None and newest.state.version < state.version:
                self._made(state)

    def _made(self, state: State) -> Snapshot:
        made = self._newest = Snapshot(state)
        self._in_use.add(made)
        return made

    def close(self) -> None:
        self._stop.set()
        with self._lock:
            self._newest, self._frames = None, []
            if self._pin is not None:
                try:
                    self._catalog.unpin(self._pin)
                except CatalogError:
                    pass  # the database is gone: the pin ends by itself
                self._pin = None

    def move(self) -> None:
        """Moves the pin to the oldest version still in use, which frees older ones for vacuum."""
        self._newest = None  # drop our own hold on it: only readers count
        with self._lock:
            self._frames = [(snapshot, lives) for snapshot, lives in self._frames if lives()]
            if self._pin is not None:
                self._pin_oldest()

    def _pin_oldest(self) -> None:
        """Pins the oldest version in use, or the newest one. What vacuum has passed while the pin was not kept is lost
        to its readers, who get an error; all others are pinned again."""
        while True:
            used = [snapshot.state.version for snapshot in self._in_use]
            try:
                self._put(min(used) if used else self._catalog.version())
                break
            except CatalogNotWritable:
                # What can only be read is read without a pin.
                self._renewed = _now()
                return
            except CatalogError:
                if not self._lose(self._catalog.horizon()):
                    raise
        if self._keeper is None:
            self._keeper = threading.Thread(target=_keep, args=(weakref.ref(self), self._stop), daemon=True)
            self._keeper.name = "parquetry pin"
            self._keeper.start()

    def _lose(self, horizon: int) -> bool:
        """Leaves readers of versions before the horizon alone; whether there were any, or the pin was one."""
        lost = [snapshot for snapshot in self._in_use if snapshot.state.version < horizon]
        for snapshot in lost:
            self._in_use.discard(snapshot)
        if self._newest in lost:
            self._newest = None
        return bool(lost)

    def _put(self, version: int) -> None:
        before = _now()
        if self._pin is None:
            self._pin = self._catalog.pin(version, f"{socket.gethostname()}:{os.getpid()}", PIN_S)
        else:
            self._pin = self._catalog.move_pin(self._pin, version)
        self._renewed = before


def _keep(snapshots: weakref.ref[Snapshots], stop: threading.Event) -> None:
    """Renews the pin until the connection ends, or nobody has it any more."""
    while not stop.wait(PIN_S / 4):
        kept = snapshots()
        if kept is None:
            return
        with suppress(CatalogError):  # the database may be back before the pin ends
            kept.move()
        del kept


def _now() -> float:
    """Goes on while the machine sleeps, as the wall clock does by which pins end, but nobody sets it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
