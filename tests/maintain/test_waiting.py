"""Work that another worker has taken is waited for, or told as left; a rewrite waits for its turn.

Compactions are made here without Spark; picking, leases and commits are the real ones.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import parquetry
from parquetry.catalog import Catalog, Lease
from parquetry.catalog import tables as sql
from parquetry.catalog.processes import this_process
from parquetry.maintain import run
from parquetry.maintain.compact import compact as real_compact
from parquetry.maintain.pick import Compact, pick
from parquetry.maintain.relayout import rewriting
from parquetry.maintain.retry import Left
from parquetry.model.state import TableState
from parquetry.storage.leased import REWRITE, TURN
from parquetry.warehouse import Warehouse
from tests.cli.calling import Shell
from tests.maintain.test_retry import compact as compact_here
from tests.views import without_spark
from tests.views.random_views import DDL, rows


@pytest.fixture
def wh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """A table whose three hidden batches need a compaction to be shown."""
    monkeypatch.setattr(run, "compact", compact)
    monkeypatch.setattr(run, "_PATIENCE_S", 0.5)
    with parquetry.connect(tmp_path / "wh") as opened:
        opened.create_table("t", DDL, key=["k", "day"], settings={"max_query_deltas": 2, "compaction_width": 2})
        for number in range(4):
            without_spark.ingest(opened, "t", rows(random.Random(number), 20), f"{number}")
            if number == 0:
                without_spark.publish(opened)
        yield opened


def compact(catalog: Catalog, store: Any, spark: Any, table: TableState, stage: Compact, holder: str, *_: Any) -> bool:
    lease = catalog.acquire(f"{REWRITE}:{table.table_id}", holder, 30.0)
    if lease is None:
        return False
    with catalog.keep(lease, 30.0):
        return compact_here(catalog, store, spark, table, stage)


def taken(wh: Warehouse, what: str = REWRITE) -> Lease:
    lease = wh.catalog.acquire(f"{what}:{wh.catalog.state().table('t').table_id}", "elsewhere:7", 3600)
    assert lease is not None
    return lease


def maintain(wh: Warehouse) -> list[Any]:
    made = run.Maintainer(wh.catalog, wh.store, lambda: None, lambda _: None, wh._engine.snapshots.take)  # type: ignore[arg-type, return-value]
    return list(made.run())


@pytest.mark.parametrize("what", [REWRITE, TURN])
def test_what_another_worker_does_not_finish_is_told_as_left(wh: Warehouse, what: str) -> None:
    lease = taken(wh, what)
    if what == TURN:
        taken(wh)
    *done, last = maintain(wh)
    assert isinstance(last, Left)
    assert not any(isinstance(s, Compact) for s in done), "nothing is claimed that was not done"
    assert str(last).startswith("left to another worker, elsewhere:7, which is still at it: compact t")
    assert wh.catalog.state().qt < 4
    wh.catalog.release(lease)


def test_work_is_done_as_soon_as_the_other_worker_gives_it_up(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_PATIENCE_S", 20.0)
    lease = taken(wh)
    threading.Timer(0.4, wh.catalog.release, [lease]).start()
    started = time.monotonic()
    steps = maintain(wh)
    assert 0.4 <= time.monotonic() - started < 10
    assert not any(isinstance(s, Left) for s in steps)
    assert wh.catalog.state().qt == 4


@pytest.mark.skipif(not this_process(), reason="this system tells too little of its processes")
def test_work_of_a_worker_that_was_killed_is_taken_over_at_once(wh: Warehouse) -> None:
    lease = taken(wh)
    name, _, _ = this_process().rpartition("/")
    with wh.catalog._db.write() as conn:  # as if it had been started at another time
        mine = sql.leases.c.resource == lease.resource
        conn.execute(sql.leases.update().where(mine).values(holder=f"elsewhere:7 @ {name}/1"))
    steps = maintain(wh)
    assert not any(isinstance(s, Left) for s in steps)
    assert wh.catalog.state().qt == 4


@pytest.fixture
def shell(wh: Warehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(Warehouse, "spark", None)
    return Shell(capsys, wh.folder)


def test_the_command_says_so_in_one_line_and_in_its_exit_code(wh: Warehouse, shell: Shell) -> None:
    taken(wh)
    told = shell("maintain")
    assert told.code == 1
    advance, left, qt = told.out.splitlines()
    assert (advance, qt) == ("advance QT: 1 -> 2", "QT 1 -> 2")
    assert left.startswith("left to another worker, elsewhere:7, which is still at it: compact t")
    asked = shell("maintain", "--json")
    assert asked.code == 1
    assert asked.document["stages"] == []
    (of,) = asked.document["left"]
    assert (of["of"]["table"], of["holder"]) == ("t", "elsewhere:7")
    assert shell("maintain").out.splitlines()[-1] == "QT 2", "which did not move"


def test_a_qt_that_does_not_move_is_told_as_it_is(wh: Warehouse, shell: Shell) -> None:
    maintain(wh)
    assert shell("maintain").out == "nothing to do, QT 4\n"


def test_a_rewrite_waits_for_a_compaction_and_goes_before_the_next_one(wh: Warehouse) -> None:
    compaction = taken(wh)
    told: list[str] = []
    inside, end = threading.Event(), threading.Event()

    def rewrite() -> None:
        with rewriting(wh.catalog, wh.store, "t", "relayout:8", told.append):
            inside.set()
            end.wait(20)

    thread = threading.Thread(target=rewrite)
    thread.start()
    table = wh.catalog.state().table("t")
    turn = f"{TURN}:{table.table_id}"
    while turn not in wh.catalog.at_work(TURN):
        time.sleep(0.01)
    assert not inside.wait(0.3)
    assert told == ["waiting for elsewhere:7 to finish"]
    stage = next(s for s in pick(wh.catalog.state()) if isinstance(s, Compact))
    wh.catalog.release(compaction)
    assert not real_compact(wh.catalog, wh.store, None, table, stage, "me"), "it lets the rewrite pass"  # type: ignore[arg-type]
    assert inside.wait(10)
    end.set()
    thread.join(10)
    assert wh.catalog.at_work("") == {}


def test_work_that_others_prevent_again_and_again_is_not_claimed(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "compact", lambda *_: False)
    *_, last = maintain(wh)
    assert isinstance(last, Left)
    assert str(last).startswith("left undone, as other workers came in between: compact t")
