"""Progress of long Spark work: a callback hears how many tasks of the running stages are done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Listener = Callable[[int, int], None]
"""Called with (tasks done, tasks known so far) of the work at hand."""

_POLL_S = 0.2


@contextmanager
def watch_tasks(spark: Callable[[], SparkSession | None], listener: Listener | None) -> Iterator[None]:
    """Reports to ``listener`` while the block runs, from the moment that ``spark`` gives a session."""
    if listener is None:
        yield
        return
    stop = threading.Event()

    def poll() -> None:
        # A session that has ended is reported by the work itself.
        with suppress(Exception):
            report()

    def report() -> None:
        seen: dict[int, tuple[int, int]] = {}
        while not stop.wait(_POLL_S):
            session = spark()
            if session is None:
                continue
            tracker = session.sparkContext.statusTracker()
            active = set(tracker.getActiveStageIds())
            for stage in active:
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = (info.numCompletedTasks, info.numTasks)
            for stage, (_, total) in seen.items():
                if stage not in active:
                    seen[stage] = (total, total)
            if seen:
                listener(sum(d for d, _ in seen.values()), sum(n for _, n in seen.values()))

    thread = threading.Thread(target=poll, name="parquetry progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
