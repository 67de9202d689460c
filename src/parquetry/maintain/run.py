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
from typing import TYPE_CHECKING, Protocol

from parquetry.catalog import Catalog
from parquetry.errors import CommitConflict, LeaseLost, SparkLost
from parquetry.maintain import retry as failures
from parquetry.maintain.compact import compact
from parquetry.maintain.new_ranges import Workload
from parquetry.maintain.pick import Advance, Compact, Refresh, Stage, pick, pick_apart, pick_next
from parquetry.maintain.retry import CannotShow, Failed, Left, SetAside, check_shown, explained
from parquetry.maintain.tune import tune
from parquetry.maintain.vacuum import HOUR_S, vacuum_hourly
from parquetry.model.state import AdvanceQT, State
from parquetry.query.planning.definition import compile_definition as compile_
from parquetry.storage.leased import LEASE_S, REFRESH, REWRITE, TURN, taken_by
from parquetry.storage.store import Store
from parquetry.views.refresh import refresh

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_HELPERS_END_S = 10.0
_READERS_WARM_S = 0.5
_TUNE_S = 60.0  # how often delta bounds are adapted to the query load (NA-22)
_PATIENCE_S = LEASE_S + 5.0  # with other workers: the lease of one that died elsewhere is over by then
_ASK_S = 0.1  # how often their leases are looked at
_LEASES = {Compact: (REWRITE, TURN), Refresh: (REFRESH,)}


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
        self._aside, self._held = SetAside(), SetAside()  # not worked on; nothing new of them is shown
        self._told: deque[Failed] = deque()  # by helpers, to be told in the foreground
        self._process = f"{socket.gethostname()}:{os.getpid()}"  # as it pins what it reads
        self._holder = f"{self._process}:{threading.get_ident()}"

    def run(self) -> Iterator[Stage | Left]:
        """Yields each stage right before it is performed, until nothing is left to do.

        What other workers are at is waited for, a little longer than the lease of one that died lasts; what they have
        not done by then is told last. Work on a table where a stage fails ends with it, the rest goes on; then the
        first failure is raised.
        """
        failed: list[Exception] = []
        patience, idle = _PATIENCE_S, 0
        while idle < 2:
            version, others = self._catalog.version(), set[int]()
            for step in self._steps(others):
                if isinstance(step, Failed):
                    failed.append(step.error)
                else:
                    yield step
            if not others or patience <= 0:
                break
            # Somebody may have been in the way for a moment only; when nothing moves after that, nobody will.
            idle = 0 if others & taken_by(self._catalog).keys() or self._catalog.version() > version else idle + 1
            started = time.monotonic()
            time.sleep(_ASK_S)
            while others <= taken_by(self._catalog).keys() and time.monotonic() - started < patience:
                time.sleep(_ASK_S)
            patience -= time.monotonic() - started
        yield from self._left(others)
        if failed:
            raise failed[0]

    def _left(self, others: set[int]) -> list[Left]:
        """What is still to be done to tables that other workers are at, or were."""
        if not others:
            return []
        holders, stages = taken_by(self._catalog), pick(self._catalog.state())
        first = {s.table_id: s for s in reversed(stages) if not isinstance(s, Advance)}
        return [Left(first[i], holders.get(i, "")) for i in sorted(others & first.keys())]

    def _steps(self, others: set[int], *, helping: bool = False) -> Iterator[Stage | Failed]:
        """Each stage right before it is performed, and right after it if it failed. Tables that are left to other
        workers are added to ``others``.

        One that helps others leaves it to them to move the QT, while there is other work.
        """
        busy, held = self._aside.tables(), self._held.tables()
        waited = False
        while True:
            state = self._catalog.state()
            try:
                # Batches may come faster than the QT can wait for readers: other work must not wait for ever.
                stage = pick_next(state, busy, held, work_first=waited or helping)
            except Exception:
                stage, unfit = pick_apart(state, busy)
                for table_id, e in unfit.items():
                    busy.add(table_id)
                    yield Failed(None, explained(e, None), self._aside.failed(table_id))
            if stage is None:
                return
            if not isinstance(stage, Advance) and stage.table_id in taken_by(self._catalog, *_LEASES[type(stage)]):
                busy.add(stage.table_id)
                others.add(stage.table_id)
                continue
            yield stage
            waited = False
            try:
                if isinstance(stage, Advance):
                    waited = self._advance(state, stage, held)
                elif self._work(state, stage):
                    self._aside.worked(stage.table_id)
                    held.discard(stage.table_id)  # what could not be shown may have been replaced
                else:
                    busy.add(stage.table_id)
                    others.add(stage.table_id)
            except Exception as e:
                yield self._failed(state, stage, e, busy, held)

    def _failed(self, state: State, stage: Stage, e: Exception, busy: set[int], held: set[int]) -> Failed:
        """Sets aside what cannot be done, so that the next stage is another one. Only the loss of Spark ends it all."""
        error = explained(e, stage)
        if isinstance(error, SparkLost):
            raise error from e
        if isinstance(error, CannotShow):
            held.add(error.table_id)
            return Failed(stage, error, self._held.failed(error.table_id))
        if isinstance(stage, Advance):
            held.update(t.table_id for t in state.tables.values())  # until the next round
            return Failed(stage, error, failures.FIRST_PAUSE_S)
        busy.add(stage.table_id)
        return Failed(stage, error, self._aside.failed(stage.table_id))

    def watch(self, stop: threading.Event, interval_s: float) -> Iterator[Stage | Failed]:
        """Keeps going until ``stop`` is set; looks for new work every ``interval_s`` seconds.

        Under a profile work waits until half of the target lag is used up, and runs in the profile's slots: helpers
        beside this one, which leases keep off each other's tables. A helper that fails leaves its work to the others.
        Delta bounds follow the query load, and once an hour garbage goes by the retention policy. What fails is told
        and tried again, ever less often; the rest goes on. Only the loss of Spark itself ends it.
        """
        ended = threading.Event()

        def failed(e: Exception) -> None:
            self._told.append(Failed(None, explained(e, None), HOUR_S))

        tidy = (self._catalog, self._store, self._holder, ended, failed)
        threading.Thread(target=vacuum_hourly, args=tidy, name="parquetry vacuum", daemon=True).start()
        helpers: list[threading.Thread] = []
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
                    for step in self._steps(set()) if self._due() else ():
                        yield step
                        if stop.is_set():
                            break
                    pause = interval_s
                except SparkLost:
                    raise
                except Exception as e:
                    pause = min(max(2 * pause, failures.FIRST_PAUSE_S), failures.LONGEST_PAUSE_S)
                    yield Failed(None, explained(e, None), pause)
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
        helper._aside, helper._held = self._aside, self._held
        while not ended.is_set():
            with suppress(Exception):  # the foreground tells that the catalog cannot be asked, or that Spark is gone
                for step in helper._steps(set(), helping=True) if slot <= self._slots() and self._due() else ():
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

    def _advance(self, state: State, stage: Advance, held: set[int]) -> bool:
        """Moves the QT; whether it waited for readers."""
        # Metadata and hot data of what becomes visible are in memory before it does (NA-27): here, and elsewhere, where
        # readers see by themselves what the QT can move to.
        for t in state.tables.values():
            if t.table_id not in held:
                check_shown(self._store, state, t, stage.database)
                self._held.worked(t.table_id)
        with suppress(Exception):  # a query will tell
            self._warm(state)
        waits = stage.database > state.qt and bool(self._catalog.pin_holders() - {self._process})
        if waits:
            time.sleep(_READERS_WARM_S)
        edit = AdvanceQT({table_id: qt for table_id, _, qt in stage.tables}, stage.database)
        with suppress(CommitConflict):  # a compaction came in between: the next round sees it
            self._catalog.commit([edit], kind="advance", detail={"qt": stage.database})
        return waits

    def _work(self, state: State, stage: Compact | Refresh) -> bool:
        """Performs the stage; False when another worker is at the table, or was."""
        try:
            return self._refresh(stage) if isinstance(stage, Refresh) else self._compact(state, stage)
        except (CommitConflict, LeaseLost):
            return False

    def _refresh(self, stage: Refresh) -> bool:
        pinned = self._pinned()
        view = pinned.state.tables.get(stage.table)
        if view is None or view.table_id != stage.table_id:
            return False
        return refresh(self._catalog, self._store, self._spark, pinned.state, view, stage.until, self._holder, compile_)

    def _compact(self, state: State, stage: Compact) -> bool:
        table = state.tables[stage.table]
        return compact(self._catalog, self._store, self._spark, table, stage, self._holder, self._workload)
