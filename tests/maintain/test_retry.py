"""One table's failure is that table's alone: whatever goes wrong with it, the controller lives and all others go on.

Compactions are made here without Spark; picking, leases, indexes and commits are the real ones.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import parquetry
from parquetry.catalog import Catalog
from parquetry.errors import ParquetryError, StorageError
from parquetry.maintain import pick, run, vacuum
from parquetry.maintain import retry as failures
from parquetry.maintain.pick import Advance, Compact
from parquetry.maintain.retry import CannotShow, Failed
from parquetry.maintain.run import Maintainer
from parquetry.model.queryable import queryable
from parquetry.model.state import ReplaceDeltas, State, TableState
from parquetry.storage.cache import METADATA
from parquetry.storage.index_reader import open_index
from parquetry.warehouse import Warehouse
from tests.views import without_spark
from tests.views.random_views import DDL, rows

SMALL = {"max_query_deltas": 2, "compaction_width": 2}


@pytest.fixture
def wh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """Tables ``bad`` and ``good``, each with one visible batch and ``good`` with enough hidden ones to be compacted."""
    monkeypatch.setattr(failures, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(failures, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(run, "compact", compact)
    with parquetry.connect(tmp_path / "wh") as opened:
        for name in ("bad", "good"):
            opened.create_table(name, DDL, key=["k", "day"], settings=SMALL)
            ingest(opened, name)
        without_spark.publish(opened)
        ingest(opened, "bad")  # 3
        for _ in range(3):
            ingest(opened, "good")  # 4, 5, 6
        yield opened


def ingest(wh: Warehouse, table: str) -> None:
    clock = wh.catalog.state().clock
    without_spark.ingest(wh, table, rows(random.Random(clock), 20), f"{clock}")


def compact(catalog: Catalog, store: Any, spark: Any, table: TableState, stage: Compact, *_: Any) -> bool:
    """Stands for ``compact``: other rows, which nobody looks at."""
    wh = Warehouse.__new__(Warehouse)
    wh.store = store
    times = stage.deltas[0].t_lo, stage.deltas[-1].t_hi
    made = replace(without_spark.write(wh, table, rows(random.Random(1), 20), times), level=1)
    old = tuple(d.delta_id for d in stage.deltas)
    catalog.commit([ReplaceDeltas(table.table_id, old, made)], kind="compact")
    return True


def maintainer(wh: Warehouse) -> Maintainer:
    return Maintainer(wh.catalog, wh.store, lambda: None, wh._engine.warm, wh._engine.snapshots.take)  # type: ignore[arg-type, return-value]


def zeroed(path: Path) -> None:
    found = path.read_bytes()
    path.write_bytes(bytes(len(found) - 200) + found[-200:])


def flipped(path: Path) -> None:
    found = bytearray(path.read_bytes())
    found[-1] ^= 1
    path.write_bytes(found)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "zeroed": zeroed,
    "one bit": flipped,
}


def damage(wh: Warehouse, how: str, which: int = -1) -> Callable[[], None]:
    """Damages the index of one of the deltas of ``bad``; what is given mends it."""
    path = Path(wh.store.url(wh.catalog.state().table("bad").deltas[which].index.path))
    before = path.read_bytes()
    DAMAGES[how](path)
    METADATA.clear()

    def mend() -> None:
        path.write_bytes(before)

    return mend


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_index_holds_only_the_common_qt(wh: Warehouse, how: str) -> None:
    mend = damage(wh, how)
    with pytest.raises(StorageError, match="'bad' holds the QT back: its delta"):
        list(maintainer(wh).run())
    state = wh.catalog.state()
    assert state.qt == 2, "the damaged delta has timestamp 3, and is not shown"
    assert state.table("good").qt == 6
    assert len(state.table("good").deltas) == 2, "it was compacted"
    told = wh.freshness()
    assert "'bad' holds the QT back" in told["blocked_by"]
    assert {t["table"]: t["progress"] for t in told["tables"]}["bad"] == "stalled"
    mend()
    METADATA.clear()
    list(maintainer(wh).run())
    assert wh.catalog.state().qt == 6
    assert wh.freshness()["blocked_by"] == ""


@pytest.mark.parametrize("how", DAMAGES)
def test_what_is_visible_already_holds_nothing_back(wh: Warehouse, how: str) -> None:
    """Queries over it fail, and say so; nobody gains if the data of others gets older."""
    damage(wh, how, which=0)
    list(maintainer(wh).run())
    assert wh.catalog.state().qt == 6
    assert wh.sql("SELECT count(*) AS n FROM good", executor="local").rows()[0]["n"] > 0


@pytest.mark.parametrize("error", [EOFError(), OSError(5, "Input/output error"), KeyError("start"), RecursionError()])
def test_the_controller_outlives_any_exception_of_one_table(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(store: Any, file: Any) -> Any:
        if f"{wh.catalog.state().table('bad').table_id}/" in file.path:
            raise error
        return open_index(store, file)

    monkeypatch.setattr(failures, "open_index", fails)
    steps = watched(wh, lambda steps: sum(isinstance(s, Failed) for s in steps) >= 3)
    assert wh.catalog.state().table("good").qt == 6
    failed = [s for s in steps if isinstance(s, Failed)]
    assert all(isinstance(s.error, CannotShow) for s in failed)
    assert type(error).__name__ in str(failed[0]) or "Input/output error" in str(failed[0])
    assert "\n" not in str(failed[0])


def test_the_controller_outlives_an_exception_while_it_picks(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(state: State, table: TableState) -> int:
        if table.name == "bad":
            raise ZeroDivisionError("division by zero")
        return queryable(state, table)

    monkeypatch.setattr(pick, "queryable", fails)
    steps = watched(wh, lambda steps: sum(isinstance(s, Failed) for s in steps) >= 2)
    assert [s.table for s in steps if isinstance(s, Compact)] == ["good"]
    assert "ZeroDivisionError" in str(next(s for s in steps if isinstance(s, Failed)))
    with pytest.raises(ParquetryError, match="division by zero"):
        list(maintainer(wh).run())


def test_the_controller_outlives_an_exception_while_it_advances(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, broken = Catalog.commit, [True]

    def fails(self: Catalog, edits: Any, *, kind: str, **more: Any) -> Any:
        if kind == "advance" and broken[0]:
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return commit(self, edits, kind=kind, **more)

    monkeypatch.setattr(Catalog, "commit", fails)
    steps = watched(wh, lambda steps: sum(isinstance(s, Failed) for s in steps) >= 2)
    assert [s.table for s in steps if isinstance(s, Compact)] == ["good"], "compactions are tried all the same"
    broken[0] = False
    watched(wh, lambda _: wh.catalog.state().qt == 6)


def test_warming_for_readers_is_no_condition(wh: Warehouse) -> None:
    def fails(state: State) -> None:
        raise EOFError

    made = maintainer(wh)
    made._warm = fails
    list(made.run())
    assert wh.catalog.state().qt == 6


def test_compaction_may_replace_what_could_not_be_read(wh: Warehouse) -> None:
    """Its rows are in the data files: the index of the merged delta is made anew, and the QT is free."""
    damage(wh, "zeroed")
    ingest(wh, "bad")
    with pytest.raises(CannotShow):
        list(maintainer(wh).run())
    assert wh.catalog.state().qt == wh.catalog.state().clock


def watched(wh: Warehouse, enough: Callable[[list[Any]], bool]) -> list[Any]:
    """The steps of a controller until there are enough of them."""
    stop, steps, ended = threading.Event(), list[Any](), list[BaseException]()

    def work() -> None:
        try:
            for step in maintainer(wh).watch(stop, 0.01):
                steps.append(step)
        except BaseException as e:
            ended.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    end = time.monotonic() + 20
    while not enough(steps) and time.monotonic() < end and thread.is_alive():
        time.sleep(0.01)
    assert not ended, ended
    assert enough(steps), steps
    stop.set()
    thread.join(20)
    assert not ended
    return steps


def test_a_qt_that_stays_is_not_told_as_moving(wh: Warehouse) -> None:
    damage(wh, "zeroed")
    told: list[str] = []
    with pytest.raises(CannotShow):
        told.extend(map(str, maintainer(wh).run()))
    assert told[-1].startswith("advance QTs of single tables: good -> ")
    assert not any("2 -> 2" in line for line in told)
    assert str(Advance((), 4, 3)) == "advance QT: 3 -> 4"


def test_watching_vacuums_whatever_comes_of_it(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def fails(*_: object) -> None:
        tried.append(time.monotonic())
        raise UnicodeError("what nobody thought of")

    monkeypatch.setattr(vacuum, "_LOOK_S", 0.01)
    monkeypatch.setattr(vacuum, "HOUR_S", 0.02)
    monkeypatch.setattr(vacuum, "vacuum", fails)
    told = watched(wh, lambda steps: sum("what nobody thought of" in str(s) for s in steps) >= 2)
    assert len(tried) >= 2
    assert all(isinstance(s.error, ParquetryError) for s in told if isinstance(s, Failed))
