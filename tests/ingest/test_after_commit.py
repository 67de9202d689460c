"""Once a batch is committed its ingest succeeds, whatever happens then: without a label a retry would double it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import parquetry
from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, StorageError
from parquetry.ingest import ingest as module
from parquetry.storage.delta_writer import DeltaJob, Written
from parquetry.warehouse import Warehouse
from tests.views import without_spark
from tests.views.random_views import DDL, rows


@pytest.fixture
def wh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """A warehouse whose batches are written without Spark; all else of an ingest is real."""

    def write_rows(batch: Any, store: Any, job: DeltaJob) -> Written:
        monkeypatch.setattr(without_spark, "new_delta_id", lambda: job.delta_id)
        return Written(without_spark.write(opened, job.table, batch), batch.num_rows, f"digest of {batch.num_rows}")

    monkeypatch.setattr(module, "as_frame", lambda spark, source, schema, name: source)
    monkeypatch.setattr(module, "conform", lambda frame, schema, name: frame)
    monkeypatch.setattr(module, "write_tasks", lambda frame, tasks: 1)
    monkeypatch.setattr(module, "write_rows", write_rows)
    with parquetry.connect(tmp_path / "wh") as opened:
        opened.create_table("t", DDL, key=["k", "day"])
        yield opened


def ingest(wh: Warehouse, label: str | None = None) -> module.Ingested:
    return module.ingest(wh.catalog, wh.store, None, "t", rows(random.Random(1), 20), label=label)  # type: ignore[arg-type]


def away(*_: object) -> None:
    raise CatalogError("the catalog's database cannot be reached")


def stored(wh: Warehouse) -> int:
    return sum(d.rows for d in wh.catalog.state().table("t").deltas)


def test_a_lease_that_cannot_be_released(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parquetry.catalog.leases.release", away)
    done = ingest(wh)
    assert (done.rows, done.repeated) == (20, False)
    assert stored(wh) == 20


def test_a_commit_whose_answer_is_lost(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, lost = Catalog.commit, ["ingest"]

    def answered(self: Catalog, edits: Any, *, kind: str, **more: Any) -> Any:
        made = commit(self, edits, kind=kind, **more)
        if kind in lost:
            lost.clear()
            raise CatalogError("the server closed the connection unexpectedly")
        return made

    monkeypatch.setattr(Catalog, "commit", answered)
    done = ingest(wh)
    assert not lost
    assert (done.t, done.rows, done.repeated) == (1, 20, False)
    assert stored(wh) == 20
    assert wh.verify() == []


def test_a_commit_that_did_not_happen_is_still_a_failure(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Catalog.commit

    def refused(self: Catalog, edits: Any, *, kind: str, **more: Any) -> Any:
        if kind == "ingest":
            raise CatalogError("the disk is full")
        return commit(self, edits, kind=kind, **more)

    monkeypatch.setattr(Catalog, "commit", refused)
    with pytest.raises(CatalogError, match="disk is full"):
        ingest(wh)
    assert stored(wh) == 0
    assert wh.store.list() == [], "and leaves nothing behind"


def test_files_of_a_batch_that_another_writer_committed_first(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written for nothing cannot be removed: vacuum will."""
    assert not ingest(wh, "x").repeated
    label = Catalog.label
    asked: list[str] = []

    def not_yet(self: Catalog, table_id: int, name: str) -> Any:
        asked.append(name)
        return None if len(asked) == 1 else label(self, table_id, name)

    def refused(self: Any, path: str) -> None:
        raise StorageError(f"no permission to delete '{path}'")

    monkeypatch.setattr(Catalog, "label", not_yet)
    monkeypatch.setattr(type(wh.store), "delete_dir", refused)
    assert ingest(wh, "x").repeated
    assert stored(wh) == 20
