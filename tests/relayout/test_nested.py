"""A table laid out in ranges answers as before, in all three models; later rows find their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.errors import SchemaError, UnknownColumn
from parquetry.layouts.registry import LEARNERS
from parquetry.model.layout import NestedLayout
from parquetry.query.rules import RULE_NAMES as RULES
from tests.relayout.test_relayout import SMALL, batch, queries
from tests.templates import Templates

NO_PRUNING = [r for r in RULES if r.startswith("prune")]


MODELS = ["append", "upsert"]


@pytest.fixture(params=MODELS)
def wh(request: pytest.FixtureRequest, tmp_path: Path, templates: Templates) -> Any:
    values = dict.fromkeys(("price", "x"), "max") | {"v": "sum"} if request.param == "aggregate" else None
    key = ["a", "d", "b", "s"]

    def fill(wh: parquetry.Warehouse) -> None:
        wh.create_table("t", batch(0).schema, key=key, model=request.param, values=values, settings=SMALL)
        for seed in (1, 2):
            wh.ingest("t", batch(seed), tasks=1)
        wh.maintain()

    with templates.copied(f"nested-{request.param}", tmp_path / "wh", fill) as wh:
        yield wh


def answers(wh: parquetry.Warehouse, **how: Any) -> list[str]:
    dated = [f"{q} AND d < DATE '1993-0{m}-15'" for m, q in enumerate(queries(3, 6), start=1)]
    everything = "SELECT a, b, s, d, price, x, v FROM t ORDER BY 1, 2, 3, 4, 5, 7, 6"
    return [str(wh.sql(q, **how).rows()) for q in [*queries(7, 6), *dated, everything]]


def test_every_learner_inside_ranges_keeps_every_row_and_every_answer(wh: parquetry.Warehouse) -> None:
    before = answers(wh, executor="local")
    for q in queries(5, 20):
        wh.sql(q).arrow()
    model = wh.catalog.state().table("t").schema.model
    dealt = list(LEARNERS)[MODELS.index(model) :: len(MODELS)]  # each to one of the models
    for learner, within in zip(dealt, ["d:month", "d:year", "a:5", "s:3"] * len(dealt), strict=False):
        options = RelayoutOptions(block_rows=150, delta=0.01, cells=2, within=within)
        done = wh.relayout("t", learner, options=options)
        assert isinstance(done.spec, NestedLayout)
        assert len(done.spec.parts) > 2
        assert answers(wh, executor="local") == before, learner
        assert answers(wh, executor="local", off=NO_PRUNING) == before, learner
        assert wh.verify() == []


def test_both_executors_agree_and_a_range_is_skipped_by_its_region(wh: parquetry.Warehouse) -> None:
    wh.relayout("t", "robust", options=RelayoutOptions(block_rows=100, cells=1, within="d:month"))
    q = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE d >= DATE '1992-05-01' AND d < DATE '1992-06-01'"
    off = [r for r in NO_PRUNING if r != "prune_region"]
    by_region = wh.sql(q, executor="local", off=off)
    assert by_region.rows() == wh.sql(q, executor="local", off=NO_PRUNING).rows()
    assert by_region.stats["blocks_read"] <= by_region.stats["blocks_total"] / 10
    assert wh.sql(q, executor="spark").rows() == by_region.rows()


def later(seed: int, rows: int, first_day: int, days: int) -> pa.Table:
    made = batch(seed, rows)
    when = pa.array([first_day + i % days for i in range(rows)], pa.int32()).cast(pa.date32())
    return made.set_column(made.schema.get_field_index("d"), "d", when)


def test_new_months_are_taken_at_once_and_laid_out_by_the_compaction_that_reaches_them(wh: parquetry.Warehouse) -> None:
    options = RelayoutOptions(block_rows=100, columns=["a", "s"], within="d:month", cells=1)
    known = wh.relayout("t", "kdtree", options=options).spec
    assert isinstance(known, NestedLayout)
    wh.ingest("t", later(9, 10, 9040, 1), tasks=1)  # too few rows for a range of their own
    wh.change_settings("t", compaction_width=2)
    wh.maintain()
    first = wh.catalog.state().table("t").layout_id
    for seed in (10, 11):
        wh.ingest("t", later(seed, 400, 9009, 60), tasks=2)  # from 1994-09-01
    assert {d.layout_id for d in wh.catalog.state().table("t").deltas} == {first}  # nobody waited for a layout
    wh.maintain()
    table = wh.catalog.state().table("t")
    spec = table.layout
    assert isinstance(spec, NestedLayout)
    assert table.layout_id > first
    assert spec.parts[: len(known.parts)] == known.parts
    assert [str(b) for b in spec.boundaries[len(known.boundaries) :]] == ["1994-09-01", "1994-10-01"]
    assert all(part.blocks > 1 for part in spec.parts[len(known.parts) :])
    assert answers(wh, executor="local") == answers(wh, executor="local", off=NO_PRUNING)
    october = "SELECT count(DISTINCT d) AS n FROM t WHERE d >= DATE '1994-10-01'"
    assert wh.sql(october).rows() == [{"n": 30}]
    assert wh.verify() == []
    wh.maintain()
    assert wh.catalog.state().table("t").layout_id == table.layout_id


def test_a_layout_that_cannot_be_learned_does_not_hold_compaction_up(
    wh: parquetry.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh.relayout("t", "kdtree", options=RelayoutOptions(block_rows=100, columns=["a"], within="d:month", cells=1))
    before = wh.catalog.state().table("t").layout_id

    def refuse(*_: Any) -> None:
        raise SchemaError("no")

    monkeypatch.setattr("parquetry.maintain.new_ranges.extend_nested", refuse)
    for seed in (10, 11):
        wh.ingest("t", later(seed, 400, 9009, 20), tasks=1)
    wh.change_settings("t", compaction_width=2)
    wh.maintain()
    assert wh.catalog.state().table("t").layout_id == before
    assert wh.sql("SELECT count(DISTINCT d) AS n FROM t WHERE d >= DATE '1994-09-01'").rows() == [{"n": 20}]


def test_extra_blocks_and_a_picture_work_over_ranges(wh: parquetry.Warehouse) -> None:
    before = answers(wh, executor="local")
    for q in queries(5, 20):
        wh.sql(q).arrow()
    options = RelayoutOptions(block_rows=300, delta=0.01, within="d:4", extra_space=0.3, columns=["a", "b"])
    wh.relayout("t", "paw", options=options)
    assert answers(wh, executor="local") == before
    assert wh.draw_layout("t", ["a", "d"]).startswith("<svg")
    shown = wh.layout("t")
    assert shown["options"]["within"] == "d:4"
    assert "d" in shown["columns"]


def test_wrong_ranges_change_nothing(wh: parquetry.Warehouse) -> None:
    version = wh.catalog.version()
    for within, error, message in (
        ("nope:month", UnknownColumn, "nope"),
        ("a:month", SchemaError, "names no ranges"),
        ("d:week", SchemaError, "names no ranges"),
    ):
        with pytest.raises(error, match=message):
            wh.relayout("t", "robust", options=RelayoutOptions(within=within))
    if wh.catalog.state().table("t").schema.keyed:
        with pytest.raises(SchemaError, match="not in the key"):
            wh.relayout("t", "robust", options=RelayoutOptions(within="v:3"))
    assert wh.catalog.version() == version


def test_robust_needs_no_queries_and_reads_back_from_the_catalog(wh: parquetry.Warehouse) -> None:
    done = wh.relayout("t", "robust", options=RelayoutOptions(block_rows=500, weights={"a": 3.0}))
    table = wh.catalog.state().table("t")
    assert table.layout is not None
    assert table.layout == done.spec
    assert set(done.spec.columns) == set(table.schema.key if table.schema.keyed else table.schema.names)
    joined = wh.relayout("t", "two_phase", options=RelayoutOptions(block_rows=500))
    assert joined.spec is not None
    assert joined.spec.options["join"] == "a"
