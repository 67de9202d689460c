"""The controller under a profile: slots, waiting for the target lag, bounds that follow the load, missed targets told.

Refreshes are made here without Spark; leases, picking and commits are the real ones.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import parquetry
from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, SparkLost, StorageError
from parquetry.maintain import retry as failures
from parquetry.maintain import run
from parquetry.maintain.pick import Refresh
from parquetry.maintain.retry import Failed
from parquetry.maintain.run import Maintainer
from parquetry.model.profile import PROFILES
from parquetry.model.queryable import next_step
from parquetry.model.settings import Settings
from parquetry.model.state import AddViewDelta, State, TableState
from parquetry.storage.explain_failure import explain_failure
from parquetry.warehouse import Warehouse
from tests.views import without_spark
from tests.views.random_views import DDL, rows

VIEWS = {"v": "SELECT c, count(*) AS n FROM t GROUP BY c", "w": "SELECT g, count(*) AS n FROM t GROUP BY g"}


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[Warehouse]:
    """A table with two views that have all of it."""
    with parquetry.connect(tmp_path / "wh") as opened:
        opened.create_table("t", DDL, key=["k", "day"])
        without_spark.ingest(opened, "t", rows(random.Random(1), 50), "first")
        without_spark.publish(opened)
        for name, sql in VIEWS.items():
            without_spark.create_view(opened, name, sql)
        without_spark.publish(opened)
        yield opened


class Refreshes:
    """Stands for ``refresh``: takes the view's lease, waits for ``gate``, and commits that nothing changed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[str] = set()
        self.most = 0
        self.gate = threading.Event()
        self.done = 0

    def __call__(
        self, catalog: Catalog, store: Any, spark: Any, state: State, view: TableState, until: int, holder: str, *_: Any
    ) -> bool:
        lease = catalog.acquire(f"refresh:{view.table_id}", holder, 30.0)
        if lease is None:
            return False
        if not next_step(catalog.state(), catalog.state().table(view.name)):
            catalog.release(lease)
            return False
        with self.lock:
            self.running.add(view.name)
            self.most = max(self.most, len(self.running))
        self.gate.wait(20)
        assert view.view is not None
        catalog.commit([AddViewDelta(view.table_id, view.view.built, until, None)], kind="refresh view", lease=lease)
        catalog.release(lease)
        with self.lock:
            self.running.discard(view.name)
            self.done += 1
        return True


def maintainer(wh: Warehouse) -> Maintainer:
    return Maintainer(wh.catalog, wh.store, lambda: None, lambda _: None, wh._engine.snapshots.take)  # type: ignore[arg-type, return-value]


@contextmanager
def watching(wh: Warehouse) -> Iterator[list[Any]]:
    """The stages of a controller that runs beside the test."""
    stop, stages = threading.Event(), []

    def work() -> None:
        for stage in maintainer(wh).watch(stop, 0.01):
            stages.append(stage)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield stages
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive(), "it stops when it is told to"


def until(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return holds()


@pytest.fixture
def refreshes(monkeypatch: pytest.MonkeyPatch) -> Refreshes:
    made = Refreshes()
    monkeypatch.setattr(run, "refresh", made)
    monkeypatch.setattr(run, "compact", lambda *_: False)  # as if another worker were on it
    return made


@pytest.mark.parametrize("slots", [1, 2])
def test_as_many_stages_run_at_once_as_the_profile_has_slots(wh: Warehouse, refreshes: Refreshes, slots: int) -> None:
    wh.set_profile("freshness", slots=slots)
    without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
    with watching(wh):
        assert until(lambda: len(refreshes.running) == slots)
        time.sleep(0.2)
        assert len(refreshes.running) == slots, "both views wait for a refresh, in no more than the slots"
        refreshes.gate.set()
        assert until(lambda: wh.catalog.state().qt == 2)
    assert refreshes.most == slots


def test_fewer_slots_take_effect_while_it_runs(wh: Warehouse, refreshes: Refreshes) -> None:
    wh.set_profile("freshness", slots=2)
    refreshes.gate.set()
    with watching(wh):
        without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
        assert until(lambda: wh.catalog.state().qt == 2)
        wh.set_profile(slots=1)
        time.sleep(0.1)
        refreshes.gate.clear()
        refreshes.most = 0
        without_spark.ingest(wh, "t", rows(random.Random(3), 20), "third")
        assert until(lambda: len(refreshes.running) == 1)
        time.sleep(0.2)
        refreshes.gate.set()
        assert until(lambda: wh.catalog.state().qt == 3)
    assert refreshes.most == 1


def test_work_waits_until_half_of_the_target_lag_is_used_up(
    wh: Warehouse, refreshes: Refreshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh.set_profile("speed", target_lag_s=600)
    refreshes.gate.set()
    without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
    since = wh.catalog.hidden_since(1)
    assert since is not None
    now = [since + 299.0]
    monkeypatch.setattr(Catalog, "now", lambda self: now[0])
    with watching(wh) as stages:
        time.sleep(0.3)
        assert stages == [], "299 s of 600 s: later is cheaper"
        assert not wh.freshness()["late"]
        now[0] = since + 301.0
        assert until(lambda: wh.catalog.state().qt == 2)
    assert {s.table for s in stages if isinstance(s, Refresh)} == {"v", "w"}


def test_a_missed_target_is_told_and_queries_go_on(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    wh.set_profile("speed", target_lag_s=60)
    before = wh.sql("SELECT count(*) AS n FROM t", executor="local").rows()
    without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
    since = wh.catalog.hidden_since(1)
    assert since is not None
    monkeypatch.setattr(Catalog, "now", lambda self: since + 61.5)
    told = wh.freshness()
    assert (told["late"], told["lag_s"], told["target_lag_s"]) == (True, 61.5, 60)
    assert told["blocked_by"].startswith("refresh v")
    assert wh.sql("SELECT count(*) AS n FROM t", executor="local").rows() == before, "the data gets older, no error"


def test_bounds_follow_what_queries_really_read(wh: Warehouse) -> None:
    wh.create_table("u", DDL, key=["k"])
    wh.set_profile("speed")
    bound = PROFILES["speed"].max_query_deltas

    def bounds() -> dict[str, int]:
        return {t.name: t.settings.max_query_deltas for t in wh.catalog.state().tables.values()}

    for _ in range(12):
        wh.sql("SELECT c, count(*) AS n FROM t GROUP BY c", executor="local").arrow()
    assert wh.sql("SELECT c, count(*) AS n FROM t GROUP BY c").plan.view == "v"
    assert wh.tune() > 0
    wanted = {"t": 2 * bound, "v": bound, "w": 4 * bound, "u": 4 * bound}
    assert bounds() == wanted, "the view was read often; its table only while the test filled the views"
    for _ in range(12):
        wh.sql("SELECT k FROM u", executor="local").arrow()
    assert wh.tune() == 1
    assert bounds()["u"] == bound
    assert wh.tune() == 0


def test_bounds_that_a_user_set_on_a_table_stay(wh: Warehouse) -> None:
    wh.create_table("u", DDL, key=["k"], settings={"compaction_width": 3})
    wh.create_table("w2", DDL, key=["k"], settings=Settings(max_query_deltas=5))
    wh.change_settings("t", max_query_deltas=7)
    wh.sql("SELECT k FROM t", executor="local").arrow()
    wh.set_profile("speed")
    wh.tune()

    def bounds(name: str) -> tuple[int, int]:
        settings = wh.catalog.state().table(name).settings
        return settings.max_query_deltas, settings.compaction_width

    assert bounds("t") == (7, 4), "the other bound follows the profile"
    assert bounds("u") == (32, 3)
    assert bounds("w2") == (5, 4)
    with parquetry.connect(wh.folder) as again:
        again.set_profile("cost")
        again.tune()
    assert bounds("t") == (7, 24)
    wh.change_settings("t", max_query_deltas="default")
    assert bounds("t") == (32, 24), "handed back to the profile"
    wh.tune()
    assert bounds("t") == (64, 24)


def test_the_controller_tunes_by_itself(wh: Warehouse, refreshes: Refreshes) -> None:
    wh.set_profile("speed")
    for _ in range(3):
        wh.sql("SELECT k FROM t", executor="local").arrow()
    wh.queries(1)
    with watching(wh):
        assert until(lambda: wh.catalog.state().table("t").settings.max_query_deltas == 16)


def test_without_a_profile_work_starts_at_once_in_one_slot(wh: Warehouse, refreshes: Refreshes) -> None:
    without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
    with watching(wh):
        assert until(lambda: len(refreshes.running) == 1)
        refreshes.gate.set()
        assert until(lambda: wh.catalog.state().qt == 2)
    assert refreshes.most == 1


class Failing(Refreshes):
    """Stands for ``refresh``, too: that of the view ``v`` fails."""

    def __init__(self) -> None:
        super().__init__()
        self.gate.set()
        self.broken = True

    def __call__(
        self, catalog: Catalog, store: Any, spark: Any, state: State, view: TableState, until: int, holder: str, *_: Any
    ) -> bool:
        if view.name == "v" and self.broken:
            raise StorageError("file 'f' is damaged")
        return super().__call__(catalog, store, spark, state, view, until, holder)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    made = Failing()
    monkeypatch.setattr(run, "refresh", made)
    monkeypatch.setattr(run, "compact", lambda *_: False)
    monkeypatch.setattr(failures, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(failures, "LONGEST_PAUSE_S", 0.2)
    return made


def built(wh: Warehouse) -> dict[str, int]:
    return {t.name: t.view.built for t in wh.catalog.state().tables.values() if t.view is not None}


def test_what_fails_once_is_raised_when_all_else_is_done(wh: Warehouse, failing: Failing) -> None:
    without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
    with pytest.raises(StorageError, match="damaged"):
        list(maintainer(wh).run())
    assert built(wh) == {"v": 1, "w": 2}
    assert wh.catalog.state().qt == 1, "a view that cannot follow holds the QT"


@pytest.mark.parametrize("slots", [1, 2])
def test_the_controller_tells_what_fails_and_tries_again_ever_less_often(
    wh: Warehouse, failing: Failing, slots: int
) -> None:
    wh.set_profile("freshness", slots=slots)
    without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
    with watching(wh) as steps:
        assert until(lambda: sum(isinstance(s, Failed) for s in steps) >= 4)
        assert built(wh) == {"v": 1, "w": 2}, "the other view goes on"
        failing.broken = False
        assert until(lambda: wh.catalog.state().qt == 2)
    failures = [s for s in steps if isinstance(s, Failed)]
    assert sorted(f.again_s for f in failures)[:4] == [0.05, 0.1, 0.2, 0.2], "helpers' failures may be told later"
    assert "refresh v" in str(failures[0])
    assert "damaged" in str(failures[0])


def test_the_controller_outlives_a_catalog_that_is_away(
    wh: Warehouse, refreshes: Refreshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshes.gate.set()
    without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
    monkeypatch.setattr(failures, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(failures, "LONGEST_PAUSE_S", 0.02)
    state, away = Catalog.state, [True]

    def asked(self: Catalog) -> State:
        if away[0]:
            raise CatalogError("the catalog's database cannot be reached")
        return state(self)

    monkeypatch.setattr(Catalog, "state", asked)
    with watching(wh) as steps:
        assert until(lambda: len(steps) >= 3)
        away[0] = False
        assert until(lambda: wh.catalog.state().qt == 2)
    assert all(isinstance(s, Failed) and s.stage is None for s in steps[:3])


def test_the_controller_ends_when_spark_is_gone(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> bool:
        raise explain_failure(ConnectionRefusedError("Connection refused"), "v")

    monkeypatch.setattr(run, "refresh", refused)
    without_spark.ingest(wh, "t", rows(random.Random(2), 20), "second")
    with pytest.raises(SparkLost, match="Start the command again"):
        list(maintainer(wh).watch(threading.Event(), 0.01))
