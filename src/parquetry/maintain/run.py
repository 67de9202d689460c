"""Performs the picked stages, once or for ever."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from parquetry.catalog import Catalog
from parquetry.errors import CommitConflict, LeaseLost, ParquetryError, SparkLost
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
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0  # after a failure; doubled by each further one


@dataclass(frozen=True)
class Failed:
    """A stage could not be performed, or with none the catalog not be asked. It is tried again after ``again_s``."""

    stage: Stage | None
    error: ParquetryError
    again_s: float

    def __str__(self) -> str:
        what = "" if self.stage is None else f"{self.stage}: "
        return f"failed, tried again after {self.again_s:g} s: {what}{self.error}"


class _SetAside:
    """Tables whose work failed. They are left alone for a while, a longer one after each further failure."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[float, float]] = {}  # until when, and for how long

    def failed(self, table_id: int) -> float:
        """The seconds for which the table is left alone."""
        _, before = self._tables.get(table_id, (0.0, _FIRST_PAUSE_S / 2))
        pause = min(2 * before, _LONGEST_PAUSE_S)
        self._tables[table_id] = time.monotonic() + pause, pause
        return pause

    def worked(self, table_id: int) -> None:
        self._tables.pop(table_id, None)

    def tables(self) -> set[int]:
        now = time.monotonic()
        return {table_id for table_id, (until, _) in list(self._tables.items()) if until > now}


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
        self._aside = _SetAside()
        self._told: deque[Failed] = deque()  # by helpers, to be told in the foreground
        self._process = f"{socket.gethostname()}:{os.getpid()}"  # as it pins what it reads
        self._holder = f"{self._process}:{threading.get_ident()}"

    def run(self) -> Iterator[Stage]:
        """Yields each stage right before it is performed, until nothing is left to do.

        Work on a table where a stage fails ends with it, the rest goes on; then the first failure is raised."""
        failures: list[ParquetryError] = []
        for step in self._steps():
            if isinstance(step, Failed):
                failures.append(step.error)
            else:
                yield step
        if failures:
            raise failures[0]

    def _steps(self, *, helping: bool = False) -> Iterator[Stage | Failed]:
        """Each stage right before it is performed, and right after it if it failed.

        One that helps others leaves it to them to move the QT, while there is other work."""
        busy = self._aside.tables()
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
                continue
            try:
                done = self._refresh(stage) if isinstance(stage, Refresh) else self._compact(state, stage)
            except SparkLost:
                raise
            except ParquetryError as e:
                busy.add(stage.table_id)
                yield Failed(stage, e, self._aside.failed(stage.table_id))
                continue
            if done:
                self._aside.worked(stage.table_id)
            else:
                busy.add(stage.table_id)  # another worker is on it

    def watch(self, stop: threading.Event, interval_s: float) -> Iterator[Stage | Failed]:
        """Keeps going until ``stop`` is set; looks for new work every ``interval_s`` seconds.

        Under a profile work waits until half of the target lag is used up, and runs in the profile's slots: helpers
        beside this one, which leases keep off each other's tables. A helper that fails leaves its work to the others.
        Delta bounds follow the query load. What fails is told and tried again, ever less often; the rest goes on. Only
        the loss of Spark itself ends it.
        """
        helpers: list[threading.Thread] = []
        ended = threading.Event()
        tuned = -math.inf
        pause = interval_s
        try:
            while not stop.is_set():
                try:
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
                    while self._told:
                        yield self._told.popleft()
                    for step in self._steps() if self._due() else ():
                        yield step
                        if stop.is_set():
                            break
                    pause = interval_s
                except SparkLost:
                    raise
                except ParquetryError as e:
                    pause = min(max(2 * pause, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
                    yield Failed(None, e, pause)
                stop.wait(pause)
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
        helper._aside = self._aside
        while not ended.is_set():
            with suppress(ParquetryError):  # the foreground tells that the catalog cannot be asked
                for step in helper._steps(helping=True) if slot <= self._slots() and self._due() else ():
                    if isinstance(step, Failed):
                        self._told.append(step)
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
