"""Vacuum by itself: once an hour for all workers together, told when it fails, and with whoever holds it back named."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parquetry.catalog import Catalog, retention
from parquetry.errors import StorageError
from parquetry.maintain import vacuum as module
from parquetry.maintain.vacuum import vacuum, vacuum_hourly
from parquetry.model.retention import Retention
from parquetry.model.state import AdvanceQT
from parquetry.storage.store import Store
from tests.catalog.building import compact, create, ingest


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setattr(retention, "_LEAST_PAUSE_S", 0.0)
    (tmp_path / "data").mkdir()
    made = Catalog.create(f"sqlite:///{tmp_path / 'catalog.db'}")
    yield made
    made.close()


def replaced(catalog: Catalog, name: str = "sales") -> None:
    table = create(catalog, name)
    ingest(catalog, table, "a", "b")
    catalog.commit([compact(catalog.state().table(name).deltas, table)], kind="compact")
    catalog.commit([AdvanceQT({}, catalog.state().clock)], kind="advance")
    ingest(catalog, table, "c")
    time.sleep(0.002)


def test_vacuum_names_the_reader_for_whom_something_stays(catalog: Catalog, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "data"))
    pin = catalog.pin(catalog.version(), "host:17", 60)
    replaced(catalog)
    for dry_run in (True, False):
        done = vacuum(catalog, store, grace_s=0, dry_run=dry_run)
        assert (done.deltas, done.held_by and done.held_by.holder) == (0, "host:17")
    assert vacuum(catalog, store).held_by is None, "nothing is old enough"
    catalog.unpin(pin)
    catalog.pin(catalog.version(), "host:18", 60)
    for dry_run in (True, False):
        done = vacuum(catalog, store, grace_s=0, dry_run=dry_run)
        assert (done.deltas, done.held_by) == (2, None)


def test_a_vacuum_trims_the_catalog_by_its_policy(catalog: Catalog, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "data"))
    replaced(catalog)
    catalog.set_retention(Retention(grace_s=0, history_s=0))
    assert vacuum(catalog, store, dry_run=True).trimmed == retention.Trimmed()
    assert vacuum(catalog, store).trimmed.commits > 0


def test_one_of_several_workers_vacuums_each_hour(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    monkeypatch.setattr(module, "HOUR_S", 0.5)
    done: list[float] = []
    failures: list[Exception] = []

    def work(*_: object) -> None:
        done.append(time.monotonic())
        if len(done) == 1:
            raise StorageError("no permission")
        if len(done) == 2:
            raise UnicodeError("what nobody thought of")

    monkeypatch.setattr(module, "vacuum", work)
    ended = threading.Event()
    store = Store(str(tmp_path / "data"))
    workers = [
        threading.Thread(target=vacuum_hourly, args=(catalog, store, f"w{i}", ended, failures.append)) for i in range(3)
    ]
    for w in workers:
        w.start()
    end = time.monotonic() + 20
    while len(done) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    ended.set()
    for w in workers:
        w.join()
    assert len(done) >= 4
    assert all(b - a >= 0.45 for a, b in zip(done, done[1:], strict=False))
    assert [str(e) for e in failures] == ["no permission", "what nobody thought of"]
