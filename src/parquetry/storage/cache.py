"""A bounded memory of what immutable files hold, shared by the whole process (NA-49, NA-50)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

_ENTRY_BYTES = 2 << 10  # of a value whatever it holds: its objects, its key, and their places here
METADATA_CACHE_BYTES = 1 << 30
"""Holds the row group statistics of several tables of 100,000 row groups and 20 columns."""


class Cache:
    """Least recently used values leave first. Concurrent misses of one key load it once; a failed load is not kept.

    Whoever waits for a load that fails or is interrupted tries by itself: it is never left waiting, nor does it get
    somebody else's error.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._loading: dict[Hashable, threading.Lock] = {}
        self._bytes = 0

    def get(self, key: Hashable, load: Callable[[], T], weigh: Callable[[T], int]) -> T:
        """The value of ``key``, loaded if it is not there. ``weigh`` tells its bytes."""
        with self._lock:
            if key in self._values:
                present: T = self._found(key)
                return present
            gate = self._loading.setdefault(key, threading.Lock())
        with gate:  # a lock, which any way out of the block opens: a future would have to be resolved on each of them
            try:
                with self._lock:
                    if key in self._values:
                        made: T = self._found(key)
                        return made
                value = load()
                self._keep(key, value, weigh(value))
                return value
            finally:
                with self._lock:
                    if self._loading.get(key) is gate:
                        del self._loading[key]

    def has(self, key: Hashable) -> bool:
        """Whether a value is there now."""
        with self._lock:
            return key in self._values

    def _found(self, key: Hashable) -> Any:
        self._values.move_to_end(key)
        return self._values[key][0]

    def _keep(self, key: Hashable, value: Any, weight: int) -> None:
        weight += _ENTRY_BYTES
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._values[key] = (value, weight)
            self._bytes += weight - before
            while self._bytes > self.capacity_bytes and self._values:
                _, (_, freed) = self._values.popitem(last=False)
                self._bytes -= freed

    def clear(self) -> None:
        """Forgets everything, for measuring cold starts."""
        with self._lock:
            self._values.clear()
            self._bytes = 0


METADATA = Cache(METADATA_CACHE_BYTES)
