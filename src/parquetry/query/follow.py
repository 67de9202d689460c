"""Follows the warehouse beside the queries: what commits prepare is in memory before a reader meets it (NA-27)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from parquetry.errors import ParquetryError
from parquetry.model.state import State

_LOOK_S = 0.05


class Kept(Protocol):
    """What is kept in memory of the warehouse."""

    def warm(self, state: State) -> None:
        """Adds what a reader of ``state`` needs."""

    def forget(self, state: State) -> None:
        """Leaves out what no reader of ``state`` needs."""


class Follower:
    """Looks for a newer version while there are queries; gets memory ready for it, then shows it to readers.

    They see a moved QT at once, and need nobody for that. Compaction they see from here.
    """

    def __init__(self, newest: Callable[[], State], kept: Kept, show: Callable[[State], None]) -> None:
        self._newest, self._kept, self._show = newest, kept, show
        self._asked = threading.Event()
        self._closed = threading.Event()
        self._looking = threading.Lock()
        self._seen = 0
        self._thread: threading.Thread | None = None

    def asked(self) -> None:
        """There is a query."""
        if not self._asked.is_set():
            self._asked.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="parquetry follower", daemon=True)
                self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """Looks once, and is ready for what there is when it returns."""
        with self._looking:
            state = self._newest()
            if state.version > self._seen and not self._closed.is_set():
                self._kept.warm(state)
                self._show(state)
                self._kept.forget(state)
                self._seen = state.version

    def _follow(self) -> None:
        while not self._closed.wait(_LOOK_S):
            self._asked.wait()
            self._asked.clear()
            with suppress(ParquetryError):  # a query will tell
                self.look()
