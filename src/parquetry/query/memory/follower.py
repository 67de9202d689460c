"""Follows the warehouse beside the queries: what commits prepare is in memory before a reader meets it (NA-27)."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from parquetry.model.state import State

_LOOK_S = 0.05
_PATIENCE_S = 0.004  # a few short queries
_SWITCH_S = 0.0001


class Follower:
    """Looks for a newer version while there are queries; gets ready for it, then shows it to readers.

    They see a moved QT at once, and need nobody for that; but it moves some time after the version that allows it,
    which is seen from here. Compaction they see from here, too. ``get_ready`` adds what readers of a version need,
    ``forget`` leaves out what they do not. All of them share the interpreter with the queries and take it in small
    steps, when there is no query if that is soon: a query that meets a step waits for it.
    """

    def __init__(
        self,
        newest: Callable[[], State],
        get_ready: Callable[[State], None],
        show: Callable[[State], None],
        forget: Callable[[State], None],
    ) -> None:
        self._newest, self._get_ready, self._show, self._forget = newest, get_ready, show, forget
        self._asked = threading.Event()
        self._closed = threading.Event()
        self.end = partial(_end, self._closed, self._asked)
        """Ends the thread soon; holds no reference to this object."""
        self._looking = threading.Lock()
        self._seen = 0
        self._running = 0  # parts of queries
        self._none_runs = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None

    @contextmanager
    def query(self) -> Iterator[None]:
        """There is a query, of which a part runs inside."""
        with self._none_runs:
            self._running += 1
        if not self._asked.is_set():
            self._asked.set()
            if self._thread is None:
                # By a weak reference: a connection that nobody has any more ends, though nobody closed it.
                mine = (weakref.ref(self), self._closed, self._asked)
                self._thread = threading.Thread(target=_follow, args=mine, name="parquetry follower", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._none_runs:
                self._running -= 1
                if not self._running:
                    self._none_runs.notify_all()

    def give_way(self) -> None:
        """Returns when no query runs, or soon in any case. To be called between steps."""
        with self._none_runs:
            self._none_runs.wait_for(lambda: not self._running or self.closed, _PATIENCE_S)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        self.end()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """Looks once, and is ready for what there is when it returns."""
        with self._looking, _YIELDING:
            self.give_way()
            state = self._newest()
            if state.version > self._seen and not self._closed.is_set():
                self._get_ready(state)
                self._show(state)
                self.give_way()
                self._forget(state)
                self._seen = state.version


def _end(closed: threading.Event, asked: threading.Event) -> None:
    closed.set()
    asked.set()


def _follow(follower: weakref.ref[Follower], closed: threading.Event, asked: threading.Event) -> None:
    while not closed.wait(_LOOK_S):
        asked.wait()
        asked.clear()
        followed = follower()
        if followed is None:
            return
        with suppress(Exception):  # the next query meets the same, and reports it
            followed.look()
        del followed


class _Yielding:
    """While anyone is inside, whoever waits for the interpreter gets it soon: else a query waits up to 5 ms, several
    times."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _SWITCH_S))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                sys.setswitchinterval(self._before)


_YIELDING = _Yielding()  # of the process, as the interval is
