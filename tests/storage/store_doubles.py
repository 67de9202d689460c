"""Stores that misbehave or keep count, with the interface of the real one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from parquetry.storage.store import Sink, Store, explain_os_error


class CountingStore(Store):
    """Counts reads, writes and deletions, and the bytes read and written."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.counts: Counter[str] = Counter()

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset, length)
        self.counts["reads"] += 1
        self.counts["bytes_read"] += len(data)
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        found = super().read_ranges(path, ranges)
        self.counts["reads"] += len(found)
        self.counts["bytes_read"] += sum(map(len, found))
        return found

    def open_input(self, path: str) -> pa.NativeFile:
        self.counts["opened"] += 1  # what is read through it is not counted
        return super().open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        with super().open_output(path) as sink:
            yield sink
        self.counts["writes"] += 1
        self.counts["bytes_written"] += sink.size

    def delete(self, path: str) -> None:
        super().delete(path)
        self.counts["deletes"] += 1


class SlowStore(Store):
    """Waits before every read and write."""

    def __init__(self, root: str, seconds: float) -> None:
        super().__init__(root)
        self.seconds = seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self.seconds)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        time.sleep(self.seconds)
        return super().read(path, offset, length)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        time.sleep(self.seconds * len(ranges))
        return super().read_ranges(path, ranges)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        time.sleep(self.seconds)
        with super().open_output(path) as sink:
            yield sink


class FaultyStore(Store):
    """Its ``fail_at``-th write (from 1) fails with ``error``, or with ``truncate`` loses its second half unnoticed."""

    def __init__(self, root: str, fail_at: int, *, error: OSError | None = None, truncate: bool = False) -> None:
        super().__init__(root)
        self.fail_at = fail_at
        self.error = error or OSError("injected fault")
        self.truncate = truncate
        self.writes = 0

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a FaultyStore counts its own writes, so it cannot be sent to another process")

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        self.writes += 1
        failing = self.writes == self.fail_at
        with super().open_output(path) as sink:
            yield sink
            if failing and not self.truncate:
                raise explain_os_error(self.error, path)
        if failing:
            half = super().read(path, 0, sink.size // 2)
            with super().open_output(path) as damaged:
                damaged.write(half)
