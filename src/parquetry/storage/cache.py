"""A bounded memory of what immutable files hold, shared by the whole process (NA-49, NA-50)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

METADATA_CACHE_BYTES = 1 << 30
"""Holds the row group statistics of several tables of 100,000 row groups and 20 columns."""


class Cache:
    """Least recently used values leave first. Concurrent misses of one key load it once; a failed load is not kept."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._loading: dict[Hashable, Future[Any]] = {}
        self._bytes = 0

    def get(self, key: Hashable, load: Callable[[], T], weigh: Callable[[T], int]) -> T:
        """The value of ``key``, loaded if it is not there. ``weigh`` tells its bytes."""
        with self._lock:
            hit = self._values.get(key)
            if hit is not None:
                self._values.move_to_end(key)
                value: T = hit[0]
                return value
            waiting = self._loading.get(key)
            if waiting is None:
                mine: Future[Any] = Future()
                self._loading[key] = mine
        if waiting is not None:
            shared: T = waiting.result()
            return shared
        try:
            value = load()
        except BaseException as e:
            with self._lock:
                del self._loading[key]
            mine.set_exception(e)
            raise
        self._keep(key, value, weigh(value))
        mine.set_result(value)
        return value

    def has(self, key: Hashable) -> bool:
        """Whether a value is there now."""
        with self._lock:
            return key in self._values

    def _keep(self, key: Hashable, value: Any, weight: int) -> None:
        with self._lock:
            del self._loading[key]
            self._values[key] = (value, weight)
            self._bytes += weight
            while self._bytes > self.capacity_bytes and self._values:
                _, (_, freed) = self._values.popitem(last=False)
                self._bytes -= freed

    def clear(self) -> None:
        """Forgets everything, for measuring cold starts."""
        with self._lock:
            self._values.clear()
            self._bytes = 0


METADATA = Cache(METADATA_CACHE_BYTES)
