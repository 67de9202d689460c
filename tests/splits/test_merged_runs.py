"""Runs of several deltas as one run: every row once and in order, whatever the parts, without Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parquetry.layouts.routing.route import route_numpy
from parquetry.model.box import Box
from parquetry.model.layout import TreeLayout
from parquetry.model.schema import Column, TableSchema
from parquetry.model.state import TableState
from parquetry.splits import merged_runs
from parquetry.splits.merged_runs import cut_runs
from parquetry.storage.merge import BLOCK, ORDER
from parquetry.storage.store import Store
from tests.splits.test_split_rows import LAYOUT, SCHEMA, SETTINGS, deltas, table, write

LATER = TableSchema((*SCHEMA.columns, Column("new", "string")), SCHEMA.key)


def state(layout: TreeLayout | None, *, keyed: bool = True) -> TableState:
    layout_id = 7 if layout else 0
    found = TableState(1, "t", LATER, 2, (), 0, SETTINGS, layout_id, layout, {1: SCHEMA, 2: LATER})
    upsert = {n: replace(s, model="upsert") for n, s in found.schemas.items()}
    return replace(found, schema=replace(LATER, model="upsert"), schemas=upsert) if keyed else found


@pytest.mark.parametrize("layout", [None, LAYOUT], ids=["key order", "tree"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=deltas, parts=st.integers(1, 9), keyed=st.booleans())
def test_parts_together_are_one_run_with_every_row_once(
    layout: TreeLayout | None,
    tmp_path_factory: pytest.TempPathFactory,
    values: list[list[tuple[int, str]]],
    parts: int,
    keyed: bool,
) -> None:
    store = Store(str(tmp_path_factory.mktemp("runs")))
    written = [write(store, f"d{i}", table(v), layout) for i, v in enumerate(values)]
    runs = cut_runs(store, state(layout, keyed=keyed), written, parts)
    assert runs is not None
    runs = pickle.loads(pickle.dumps(runs))
    assert len(runs.tasks) <= parts
    read = [pa.Table.from_batches(list(runs(i))) for i in range(len(runs.tasks))]
    whole = pa.concat_tables(read, promote_options="default")
    rows = whole.to_pylist()
    expected = [
        (*r, i if keyed else None)
        for i, v in enumerate(values)
        for r in zip(*(c.to_pylist() for c in table(v).columns), strict=True)
    ]
    assert sorted((r["a"], r["b"], r["v"], r.get(ORDER)) for r in rows) == sorted(expected)
    assert all(r["new"] is None for r in rows)
    if layout:
        assert whole.column(BLOCK).to_pylist() == route_numpy(layout, whole).tolist()
    order = [(r.get(BLOCK, 0), r["a"], r["b"].encode()) for r in rows]
    assert order == sorted(order)
    keys = [set(zip(t.column("a").to_pylist(), t.column("b").to_pylist(), strict=True)) for t in read]
    assert sum(map(len, keys)) == len(set().union(*keys)), "equal keys meet in one part"


def test_runs_in_other_orders_and_extra_blocks_are_dealt_out_anew(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    plain = write(store, "a", table([(i, "x") for i in range(60)]), None)
    routed = write(store, "b", table([(i, "x") for i in range(60)]), LAYOUT)
    assert cut_runs(store, state(LAYOUT), [plain, routed], 2) is None
    extra = replace(LAYOUT, extra=(Box({}),))
    assert cut_runs(store, state(extra), [routed, routed], 2) is None
    assert cut_runs(store, state(LAYOUT), [routed, routed], 2) is not None


def test_many_parts_hold_several_row_groups_of_each_run(tmp_path: Path) -> None:
    """Those at its ends are read by its neighbour as well."""
    store = Store(str(tmp_path))
    written = [write(store, f"d{i}", table([(a, "x") for a in range(64)]), None) for i in range(3)]
    runs = cut_runs(store, state(None), written, 1000)
    assert runs is not None
    groups = sum(len(range(0, 64, SETTINGS.row_group_rows)) for _ in written)
    assert len(runs.tasks) <= merged_runs._READ_BY_ALL + groups // (merged_runs._READ_AGAIN * len(written))


def test_a_layout_that_is_just_being_made_is_another_order(tmp_path: Path) -> None:
    """A relayout to key order finds the layout that it leaves by no name."""
    store = Store(str(tmp_path))
    routed = write(store, "b", table([(i, "x") for i in range(60)]), LAYOUT)
    plain = write(store, "a", table([(i, "x") for i in range(60)]), None)
    to_key_order = replace(state(None), layout_id=-1)
    assert cut_runs(store, to_key_order, [plain, routed], 2) is None
    assert cut_runs(store, to_key_order, [plain, plain], 2) is not None
