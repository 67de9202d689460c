"""Performs the picked stages, once or for ever."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from parquetry.catalog import Catalog
from parquetry.errors import CommitConflict, LeaseLost
from parquetry.maintain.compact import compact
from parquetry.maintain.pick import Advance, Compact, Stage, pick
from parquetry.model.state import AdvanceQT, State
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Maintainer:
    """Brings a warehouse up to date. Several may run at once: leases keep them off each other's tables."""

    def __init__(
        self, catalog: Catalog, store: Store, spark: Callable[[], SparkSession], warm: Callable[[State], None]
    ) -> None:
        self._catalog, self._store, self._spark, self._warm = catalog, store, spark, warm
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"

    def run(self) -> Iterator[Stage]:
        """Yields each stage right before it is performed, until nothing is left to do."""
        busy: set[int] = set()
        while True:
            state = self._catalog.state()
            # Only the first stage is picked from what is there; the later ones count on it.
            stage = next(iter(pick(state, busy)), None)
            if stage is None:
                return
            yield stage
            if isinstance(stage, Advance):
                self._advance(state, stage)
            elif not self._compact(state, stage):
                busy.add(stage.table_id)  # another worker is on it

    def watch(self, stop: threading.Event, interval_s: float) -> Iterator[Stage]:
        """Keeps going until ``stop`` is set; looks for new work every ``interval_s`` seconds."""
        while not stop.is_set():
            for stage in self.run():
                yield stage
                if stop.is_set():
                    return
            stop.wait(interval_s)

    def _advance(self, state: State, stage: Advance) -> None:
        self._warm(state)  # metadata of what becomes visible is in memory before it does (NA-27)
        edit = AdvanceQT({table_id: qt for table_id, _, qt in stage.tables}, stage.database)
        with suppress(CommitConflict):  # a compaction came in between: the next round sees it
            self._catalog.commit([edit], kind="advance", detail={"qt": stage.database})

    def _compact(self, state: State, stage: Compact) -> bool:
        try:
            return compact(self._catalog, self._store, self._spark(), state.tables[stage.table], stage, self._holder)
        except (CommitConflict, LeaseLost):
            return False
