"""Some ranges are laid out anew: only their files are rewritten, and the others serve the new delta as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import parquetry
from parquetry import RelayoutOptions, failpoints
from parquetry.errors import SchemaError
from parquetry.model.layout import NestedLayout
from tests.relayout.test_nested import NO_PRUNING, answers, later
from tests.relayout.test_relayout import SMALL, batch
from tests.templates import Templates

SUMMER = RelayoutOptions(block_rows=80, columns=["a", "s"], range="1992-06-01..1992-07-15", cells=1)


@pytest.fixture(params=["append", "aggregate"])
def wh(request: pytest.FixtureRequest, tmp_path: Path, templates: Templates) -> Any:
    values = dict.fromkeys(("price", "x"), "max") | {"v": "sum"} if request.param == "aggregate" else None
    settings = {**SMALL, "file_bytes": 8_000}

    def fill(wh: parquetry.Warehouse) -> None:
        key = ["a", "d", "b", "s"]
        wh.create_table("t", batch(0).schema, key=key, model=request.param, values=values, settings=settings)
        for seed in (1, 2):
            wh.ingest("t", batch(seed), tasks=1)
        wh.maintain()
        options = RelayoutOptions(block_rows=150, columns=["b"], within="d:month", cells=1)
        wh.relayout("t", "kdtree", options=options)
        wh.ingest("t", later(3, 400, 8150, 100), tasks=1)  # a second delta, which has rows of few ranges
        wh.maintain()

    with templates.copied(f"nested_ranges-{request.param}", tmp_path / "wh", fill) as wh:
        yield wh


def files(wh: parquetry.Warehouse) -> set[str]:
    return {f.path for d in wh.catalog.state().table("t").deltas for f in d.files}


def stored(wh: parquetry.Warehouse) -> set[str]:
    return {path for path, *_ in wh.store.list()}


def published(wh: parquetry.Warehouse) -> set[str]:
    return files(wh) | {d.index.path for d in wh.catalog.state().table("t").deltas}


def test_only_files_with_rows_of_the_ranges_are_rewritten_and_every_answer_stays(wh: parquetry.Warehouse) -> None:
    before, had, table = answers(wh, executor="local"), files(wh), wh.catalog.state().table("t")
    assert len(had) > 10
    old = wh.sql("SELECT count(*) AS n, sum(v) AS v FROM t")  # fixed at the old version
    done = wh.relayout("t", "robust", options=SUMMER)
    now = wh.catalog.state().table("t")
    assert 0 < len(had - files(wh)) < len(had) / 2
    assert done.rows < sum(d.rows for d in now.deltas) / 2
    assert [(d.t_lo, d.t_hi, d.rows) for d in now.deltas] == [(d.t_lo, d.t_hi, d.rows) for d in table.deltas]
    assert {d.layout_id for d in now.deltas} == {now.layout_id}
    spec, was = now.layout, table.layout
    assert isinstance(spec, NestedLayout)
    assert isinstance(was, NestedLayout)
    assert spec.boundaries == was.boundaries
    anew = [i for i, (a, b) in enumerate(zip(spec.parts, was.parts, strict=True)) if a != b]
    assert [str(spec.boundaries[i - 1]) for i in anew] == ["1992-06-01", "1992-07-01"]
    assert {spec.parts[i].learner for i in anew} == {"robust"}
    assert answers(wh, executor="local") == before
    assert answers(wh, executor="local", off=NO_PRUNING) == before
    assert wh.sql("SELECT count(*) AS n, sum(v) AS v FROM t", executor="spark").rows() == old.rows()
    assert wh.verify() == []


def test_a_column_that_came_after_the_files_is_null_in_them(wh: parquetry.Warehouse) -> None:
    if wh.catalog.state().table("t").schema.model == "aggregate":
        wh.add_column("t", "extra", "bigint", merge="sum")
    else:
        wh.add_column("t", "extra", "bigint")
    wh.relayout("t", "robust", options=SUMMER)
    counted = "SELECT count(*) AS n, count(extra) AS some, sum(extra) AS total FROM t WHERE extra IS NULL"
    (rows,) = wh.sql("SELECT count(*) AS n FROM t", executor="local").rows()
    for executor in ("local", "spark"):
        assert wh.sql(counted, executor=executor).rows() == [{"n": rows["n"], "some": 0, "total": None}]


def test_vacuum_leaves_what_a_newer_delta_took_over_and_removes_it_when_that_one_goes(wh: parquetry.Warehouse) -> None:
    before = answers(wh, executor="local")
    wh.relayout("t", "robust", options=SUMMER)
    wh.relayout("t", "kdtree", options=RelayoutOptions(columns=["s"], range="1993-01-01..", block_rows=100, cells=1))
    wh.vacuum(grace_s=0)
    assert stored(wh) == published(wh)
    assert len({path.split("/")[1] for path in files(wh)}) > 2  # files of several folders
    assert answers(wh, executor="local") == before
    assert wh.verify() == []
    for seed in (5, 6):
        wh.ingest("t", later(seed, 200, 8150, 100), tasks=1)
    wh.change_settings("t", compaction_width=2)
    wh.maintain()
    everything = answers(wh, executor="local", off=NO_PRUNING)
    assert answers(wh, executor="local") == everything
    wh.relayout("t", "key")
    assert answers(wh, executor="local") == everything
    wh.vacuum(grace_s=0)
    assert stored(wh) == published(wh)
    assert answers(wh, executor="local") == everything


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("wh", "point"),
    [
        ("append", "write.files"),
        ("upsert", "write.index"),
        ("aggregate", "relayout.before_commit"),
        ("upsert", "commit.in_transaction"),
    ],
    indirect=["wh"],
)
def test_a_crash_before_the_commit_changes_nothing_and_leaves_garbage_only(
    wh: parquetry.Warehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    before, had, version = answers(wh, executor="local"), published(wh), wh.catalog.version()

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(failpoints, "reach", kill)
        dying.setattr("parquetry.storage.leased.clean_up", lambda *_: None)  # the dead clean nothing up
        with pytest.raises(Killed):
            wh.relayout("t", "robust", options=SUMMER)
    assert wh.catalog.version() == version
    assert published(wh) == had
    wh.vacuum(grace_s=0)
    assert stored(wh) == had
    assert answers(wh, executor="local") == before
    wh.relayout("t", "robust", options=SUMMER)
    assert answers(wh, executor="local") == before
    assert wh.verify() == []


@pytest.mark.parametrize(
    ("wh", "point"),
    [("append", "vacuum.start"), ("upsert", "vacuum.files"), ("aggregate", "vacuum.rows")],
    indirect=["wh"],
)
def test_a_vacuum_that_dies_over_shared_files_is_finished_by_the_next(
    wh: parquetry.Warehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    before = answers(wh, executor="local")
    wh.relayout("t", "robust", options=SUMMER)

    def kill(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(failpoints, "reach", kill)
        with pytest.raises(Killed):
            wh.vacuum(grace_s=0)
    assert answers(wh, executor="local") == before
    wh.vacuum(grace_s=0)
    assert stored(wh) == published(wh)
    assert answers(wh, executor="local") == before
    assert wh.verify() == []


def test_wrong_ranges_are_refused_and_change_nothing(wh: parquetry.Warehouse) -> None:
    version = wh.catalog.version()
    for text, message in (
        ("1992", "write FROM..TO"),
        ("soon..", "no value of type"),
        ("1993-01-01..1992-01-01", "ends before"),
    ):
        with pytest.raises(SchemaError, match=message):
            wh.relayout("t", "kdtree", options=RelayoutOptions(columns=["a"], range=text))
    with pytest.raises(SchemaError, match="there already"):
        wh.relayout("t", "kdtree", options=RelayoutOptions(columns=["a"], range="..", within="d:month"))
    assert wh.catalog.version() == version
    wh.relayout("t", "key")
    with pytest.raises(SchemaError, match="not laid out in ranges"):
        wh.relayout("t", "kdtree", options=RelayoutOptions(columns=["a"], range=".."))
