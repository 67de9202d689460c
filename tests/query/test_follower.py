"""What others commit: a moved QT is seen at once, the rest when memory is ready for it."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.maintain import run as maintain
from parquetry.model.state import AdvanceQT
from parquetry.query.memory import follower as follow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from parquetry.warehouse import Warehouse

QUERY = "SELECT k, sum(v) AS v FROM t GROUP BY k"


@pytest.fixture
def pair(tmp_path: Path, spark: SparkSession) -> Iterator[tuple[Warehouse, Warehouse]]:
    """Two connections, as of two processes: one that changes the warehouse and one that asks."""
    with (
        parquetry.connect(tmp_path / "warehouse", spark=spark) as writer,
        parquetry.connect(tmp_path / "warehouse", spark=spark) as reader,
    ):
        writer.create_table("t", "k int, v bigint", key=["k"], settings={"compaction_width": 2, "max_query_deltas": 8})
        _add(writer, 1)
        writer.maintain()
        yield writer, reader


def _add(wh: Warehouse, v: int) -> None:
    wh.ingest("t", pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([v], pa.int64())}))


def _ask(wh: Warehouse) -> tuple[int, int]:
    """The answer, and the version that it was read at."""
    result = wh.sql(QUERY, executor="local")
    return result.rows()[0]["v"], result.plan.snapshot.state.version


def test_a_moved_qt_is_seen_at_once_and_hidden_commits_are_not_looked_at(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    _, version = _ask(reader)
    reader._engine.follower.close()  # only what a query itself sees
    _add(writer, 10)
    assert _ask(reader) == (1, version), "it has nothing to look at: not even the catalog's version moves for it"
    writer.maintain()
    answer, newer = _ask(reader)
    assert (answer, newer > version) == (11, True)


def test_compaction_by_others_is_shown_when_memory_is_ready_for_it(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    _add(writer, 10)
    state = writer.catalog.state()
    writer.catalog.commit([AdvanceQT({state.table("t").table_id: state.clock}, state.clock)], kind="advance qt")
    for _ in range(3):
        assert _ask(reader)[0] == 11
    held = reader._engine._local.held
    held.wait()
    reader._engine.follower.look()
    _, before = _ask(reader)
    assert len(held._copies.pieces) == 2
    writer.maintain()
    assert len(writer.catalog.state().table("t").deltas) == 1
    end = time.monotonic() + 20
    while _ask(reader)[1] == before and time.monotonic() < end:  # queries make the follower look
        time.sleep(0.01)
    result = reader.sql(QUERY, executor="local")
    assert result.rows()[0]["v"] == 11
    assert result.stats["deltas"] == 1
    (delta,) = writer.catalog.state().table("t").deltas
    reader._engine.follower.look()
    assert {path for path, _ in held._copies.pieces} == {f.path for f in delta.files}, (
        "copied before shown; the old ones left"
    )


def _often(reader: Warehouse) -> None:
    for _ in range(12):
        _ask(reader)
        reader._engine._local.held.wait()


def _advance(wh: Warehouse) -> None:
    state = wh.catalog.state()
    wh.catalog.commit([AdvanceQT({state.table("t").table_id: state.clock}, state.clock)], kind="advance qt")


def test_what_is_often_asked_is_planned_and_prepared_before_the_qt_moves(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    _often(reader)
    for n, total in ((10, 11), (100, 111)):
        _add(writer, n)
        reader._engine.follower.look()
        assert _ask(reader)[0] == total - n, "nothing of it is seen"
        (coming,) = reader._engine._planned._next.values()
        read = reader._engine._local.read_by(coming)
        assert read["rows_scanned"] == len(coming.tables["t"].deltas), "all is known of its first run"
        _advance(writer)
        result = reader.sql(QUERY, executor="local")
        assert result.plan.tables["t"] is coming.tables["t"]
        assert result.rows() == [{"k": 1, "v": total}]
        assert not reader._engine._planned._next
        text = reader._engine._local._text(result.plan, reader._engine._local.held.of(result.plan), [])
        assert text in reader._engine._local._ready[-1]
        assert text not in reader._engine._local._own()


def test_a_version_that_shows_nothing_new_leaves_what_is_ready(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    _often(reader)
    _add(writer, 10)
    reader._engine.follower.look()
    (coming,) = reader._engine._planned._next.values()
    ready = list(reader._engine._local._ready)
    writer.create_table("u", "k int", key=["k"])
    writer.drop_table("u")
    reader._engine.follower.look()
    assert list(reader._engine._planned._next.values()) == [coming]
    assert reader._engine._local._ready == ready


def test_threads_that_meet_at_a_ready_statement_do_not_wait(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    _often(reader)
    _add(writer, 10)
    reader._engine.follower.look()
    _advance(writer)
    (ready,) = reader._engine._local._ready
    with ready.lock:  # as if another thread ran it
        assert _ask(reader)[0] == 11
    result = reader.sql(QUERY, executor="local")
    text = reader._engine._local._text(result.plan, reader._engine._local.held.of(result.plan), [])
    assert text in reader._engine._local._own(), "it prepared its own"
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.extend(_ask(reader)[0] for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [11] * 80


def test_the_interpreter_switches_as_before_afterwards(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    before = sys.getswitchinterval()
    inside: list[float] = []
    with follow._YIELDING:
        reader._engine.follower.look()
        inside.append(sys.getswitchinterval())
    assert inside == [pytest.approx(follow._SWITCH_S)]
    assert sys.getswitchinterval() == before
    with follow._YIELDING, pytest.raises(ZeroDivisionError), follow._YIELDING:
        _ = 1 // 0
    assert sys.getswitchinterval() == before


def test_the_follower_works_when_no_query_runs_if_that_is_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_PATIENCE_S", 30.0)
    follower = follow.Follower(*[lambda *_: None] * 4)  # type: ignore[arg-type]
    follower._thread = threading.current_thread()  # none of its own
    follower.give_way()
    ran: list[str] = []

    def step() -> None:
        follower.give_way()
        ran.append("step")

    beside = threading.Thread(target=step)
    with follower.query():
        with follower.query():
            beside.start()
        beside.join(0.05)
        ran.append("query")
    beside.join(30)
    assert ran == ["query", "step"]
    monkeypatch.setattr(follow, "_PATIENCE_S", 0.01)
    with follower.query():
        follower.give_way()  # not for ever
    with pytest.raises(ZeroDivisionError), follower.query():
        _ = 1 // 0
    monkeypatch.setattr(follow, "_PATIENCE_S", 30.0)
    follower.give_way()


def test_a_dropped_table_takes_its_plans_along(pair: tuple[Warehouse, Warehouse]) -> None:
    writer, reader = pair
    writer.create_table("u", "k int", key=["k"])
    for _ in range(2):
        writer.ingest("u", pa.table({"k": pa.array([1], pa.int32())}))
        writer.maintain()
    for _ in range(12):
        reader.sql("SELECT count(*) AS n FROM u", executor="local").rows()
        reader._engine._local.held.wait()
    writer.ingest("u", pa.table({"k": pa.array([1], pa.int32())}))
    reader._engine.follower.look()
    assert reader._engine._planned._next
    writer.drop_table("u")
    reader._engine.follower.look()
    assert not reader._engine._planned._next
    _often(reader)
    _add(writer, 10)
    reader._engine.follower.look()
    (coming,) = reader._engine._planned._next.values()
    assert list(coming.tables) == ["t"]


def test_the_qt_waits_a_moment_for_readers_elsewhere(
    pair: tuple[Warehouse, Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, reader = pair
    slept, really = [], time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: slept.append(s) if s == maintain._READERS_WARM_S else really(s))
    _ask(reader)
    _add(writer, 10)
    writer.maintain()
    assert slept == [], "readers of this process are ready when the commit comes"
    pin = writer.catalog.pin(writer.catalog.version(), "another:1", 60)
    _add(writer, 100)
    writer.maintain()
    assert len(slept) == 1
    writer.catalog.unpin(pin)
    _add(writer, 1000)
    writer.maintain()
    assert len(slept) == 1


def test_other_work_goes_on_while_batches_come_faster_than_the_qt_waits(
    pair: tuple[Warehouse, Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, _ = pair
    really, batches = time.sleep, iter(range(8))

    def sleep(seconds: float) -> None:
        if seconds == maintain._READERS_WARM_S and next(batches, None) is not None:
            _add(writer, 1)
        elif seconds != maintain._READERS_WARM_S:
            really(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    writer.catalog.pin(writer.catalog.version(), "another:1", 60)
    _add(writer, 1)
    stages = [type(stage).__name__ for stage in writer.maintaining()]
    assert stages[:4].count("Compact") >= 1, stages
    assert writer.sql(QUERY).rows() == [{"k": 1, "v": 10}]
