"""What the driver holds in memory while executors work: this Python process, and Spark's JVM."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

import psutil

MB = 1 << 20


class DriverMemory:
    """Watches a block of work: how far this process grew above its start, and what the JVM holds after it.

    On a local master the JVM is driver and executor in one, so what it *keeps* (its heap after a garbage collection)
    is the driver's part, and its peak the executors'.
    """

    def __init__(self, spark: Any) -> None:
        self._java = spark.sparkContext._jvm.java.lang
        self._jvm = psutil.Process(int(self._java.ProcessHandle.current().pid()))
        self._python = psutil.Process()
        self._stop = threading.Event()

    def __enter__(self) -> DriverMemory:
        self._heap_before = self._heap()
        self._before = self._highest = self._python.memory_info().rss
        self._jvm_highest = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._heap_after = self._heap()

    def measured(self) -> dict[str, float]:
        return {
            "python_before_mb": self._before / MB,
            "python_growth_mb": (self._highest - self._before) / MB,
            "jvm_heap_before_mb": self._heap_before / MB,
            "jvm_heap_growth_mb": (self._heap_after - self._heap_before) / MB,
            "jvm_peak_rss_mb": self._jvm_highest / MB,
        }

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self._highest = max(self._highest, self._python.memory_info().rss)
            self._jvm_highest = max(self._jvm_highest, self._jvm.memory_info().rss)

    def _heap(self) -> int:
        self._java.System.gc()
        time.sleep(1)  # what Spark's own cleaner lets go after the first collection, the second one finds
        self._java.System.gc()
        runtime = self._java.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())
