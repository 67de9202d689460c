"""Performs the picked stages, once or for ever."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from parquetry.catalog import Catalog
from parquetry.errors import CommitConflict, LeaseLost, ParquetryError
from parquetry.maintain.compact import compact
from parquetry.maintain.new_ranges import Workload
from parquetry.maintain.pick import Advance, Compact, Refresh, Stage, pick_next
from parquetry.maintain.tune import tune
from parquetry.model.state import AdvanceQT, State
from parquetry.storage.store import Store
from parquetry.views.refresh import refresh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_HELPERS_END_S = 10.0
_READERS_WARM_S = 0.5
_TUNE_S = 60.0  # how often delta bounds are adapted to the query load (NA-22)


class Pinned(Protocol):
    @property
    def state(self) -> State: ...


class Maintainer:
    """Brings a warehouse up to date. Several may run at once: leases keep them off each other's tables."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        spark: Callable[[], SparkSession],
        warm: Callable[[State], None],
        pinned: Callable[[], Pinned],
        workload: Workload = lambda _: (),
    ) -> None:
        """``pinned`` gives the newest state and keeps its files from vacuum as long as what it gave lives."""
        self._catalog, self._store, self._spark, self._warm, self._pinned = catalog, store, spark, warm, pinned
        self._workload = workload
        self._process = f"{socket.gethostname()}:{os.getpid()}"  # as it pins what it reads
        self._holder = f"{self._process}:{threading.get_ident()}"

    def run(self, *, helping: bool = False) -> Iterator[Stage]:
        """Yields each stage right before it is performed, until nothing is left to do.

        One that helps others leaves it to them to move the QT, while there is other work."""
        busy: set[int] = set()
        waited = False
        while True:
            state = self._catalog.state()
            # Batches may come faster than the QT can wait for readers: other work must not wait for ever.
            stage = pick_next(state, busy, work_first=waited or helping)
            if stage is None:
                return
            yield stage
            waited = False
            if isinstance(stage, Advance):
                waited = self._advance(state, stage)
            elif not (self._refresh(stage) if isinstance(stage, Refresh) else self._compact(state, stage)):
                busy.add(stage.table_id)  # another worker is on it

    def watch(self, stop: threading.Event, interval_s: float) -> Iterator[Stage]:
        """Keeps going until ``stop`` is set; looks for new work every ``interval_s`` seconds.

        Under a profile work waits until half of the target lag is used up, and runs in the profile's slots: helpers
        beside this one, which leases keep off each other's tables. A helper that fails leaves its work to the others.
        Delta bounds follow the query load.
        """
        helpers: list[threading.Thread] = []
        ended = threading.Event()
        tuned = -math.inf
        try:
            while not stop.is_set():
                if self._slots() > 0 and time.monotonic() - tuned >= _TUNE_S:
                    tuned = time.monotonic()
                    with suppress(CommitConflict):
                        tune(self._catalog)
                while len(helpers) < self._slots() - 1:
                    slot = len(helpers) + 2
                    helper = threading.Thread(target=self._help, args=(slot, ended, interval_s), daemon=True)
                    helper.name = f"parquetry slot {slot}"
                    helpers.append(helper)
                    helper.start()
                if self._due():
                    for stage in self.run():
                        yield stage
                        if stop.is_set():
                            break
                stop.wait(interval_s)
        finally:
            ended.set()
            for helper in helpers:
                helper.join(_HELPERS_END_S)  # a stage that takes longer commits or leaves nothing, as after a crash

    def _slots(self) -> int:
        """The stages that may run at once; 0 without a profile."""
        profile = self._catalog.state().profile
        return 0 if profile is None else profile.slots

    def _help(self, slot: int, ended: threading.Event, interval_s: float) -> None:
        helper = Maintainer(self._catalog, self._store, self._spark, self._warm, self._pinned, self._workload)
        while not ended.is_set():
            # What fails here fails in the foreground as well, where it is told.
            with suppress(ParquetryError):
                for _ in helper.run(helping=True) if slot <= self._slots() and self._due() else ():
                    if ended.is_set():
                        break
            ended.wait(interval_s)

    def _due(self) -> bool:
        """Whether waiting any longer could break the promised lag; without a profile always."""
        state = self._catalog.state()
        if state.profile is None or not state.profile.target_lag_s:
            return True
        since = self._catalog.hidden_since(state.qt)
        return since is None or self._catalog.now() - since >= state.profile.target_lag_s / 2

    def _advance(self, state: State, stage: Advance) -> bool:
        """Moves the QT; whether it waited for readers."""
        # Metadata and hot data of what becomes visible are in memory before it does (NA-27): here, and elsewhere, where
        # readers see by themselves what the QT can move to.
        self._warm(state)
        waits = stage.database > state.qt and bool(self._catalog.pin_holders() - {self._process})
        if waits:
            time.sleep(_READERS_WARM_S)
        edit = AdvanceQT({table_id: qt for table_id, _, qt in stage.tables}, stage.database)
        with suppress(CommitConflict):  # a compaction came in between: the next round sees it
            self._catalog.commit([edit], kind="advance", detail={"qt": stage.database})
        return waits

    def _refresh(self, stage: Refresh) -> bool:
        pinned = self._pinned()
        view = pinned.state.tables.get(stage.table)
        if view is None or view.table_id != stage.table_id:
            return False
        try:
            return refresh(self._catalog, self._store, self._spark(), pinned.state, view, stage.until, self._holder)
        except (CommitConflict, LeaseLost):
            return False

    def _compact(self, state: State, stage: Compact) -> bool:
        try:
            table = state.tables[stage.table]
            return compact(self._catalog, self._store, self._spark(), table, stage, self._holder, self._workload)
        except (CommitConflict, LeaseLost):
            return False
