"""Which rows a worker reads, without Spark: exactly its split's, of every delta, under any layout."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.layout import Cut, Leaf, TreeLayout
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import TableState
from parquetry.query.local.prepared import run
from parquetry.splits.assignment import SplitTask, assign, assign_by_delta
from parquetry.splits.cut import Precision, cut_into_splits
from parquetry.splits.delta_index import DeltaIndex
from parquetry.splits.other_orders import KeyOrder, keys_in_order, main_order
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish
from parquetry.splits.shorten_key import shorten_columns
from parquetry.splits.split_rows import StoredTable, rows_of
from parquetry.storage.index import build_index
from parquetry.storage.merge import BLOCK, ORDER
from parquetry.storage.scan.scan import TableScan
from parquetry.storage.snapshot_index import SnapshotIndex, open_snapshot
from parquetry.storage.store import Store
from parquetry.storage.writer import RunWriter

SCHEMA = TableSchema((Column("a", "int"), Column("b", "string"), Column("v", "int")), ("a", "b"))
SETTINGS = Settings(row_group_rows=16, block_group_rows=4, file_bytes=3000)
LAYOUT = TreeLayout(
    "kdtree",
    ("b",),
    (Cut("b", "<", "m", 1, 4), Cut("b", "<", "c", 2, 3), Leaf(0), Leaf(1), Leaf(2)),
)


ROUTED = KeyOrder(7)


def write(store: Store, name: str, rows: pa.Table, layout: TreeLayout | None) -> Delta:
    """One delta as a task would write it."""
    blocks = route_numpy(layout, rows) if layout else np.zeros(rows.num_rows, np.int32)
    rows = rows.append_column(BLOCK, pa.array(blocks, pa.int32())).sort_by(
        [(c, "ascending") for c in (BLOCK, "a", "b")]
    )
    results = [b.to_pylist()[0] for b in RunWriter(store, name, SCHEMA, SETTINGS)(iter(rows.to_batches()))]
    results.sort(key=lambda r: r["first"])
    groups = []
    for ordinal, r in enumerate(results):
        groups += [g.__class__(**{**g.__dict__, "file": ordinal}) for g in pickle.loads(r["groups"])]
    data = build_index(groups, SCHEMA, SETTINGS.leaf_capacity, 4)
    store.write(f"{name}/index.pqx", data)
    files = tuple(StoredFile(r["path"], r["bytes"], "", r["rows"]) for r in results)
    index = StoredFile(f"{name}/index.pqx", len(data), "")
    return Delta(name, 1, 0, 0, 0, rows.num_rows, 0, 1, 7 if layout else 0, index, files)


def stored(
    store: Store, index: SnapshotIndex, named: Sequence[str], *, merge: bool, order: KeyOrder = ROUTED
) -> StoredTable:
    """The table as a worker knows it."""
    later = TableSchema((*SCHEMA.columns, Column("new", "string")), SCHEMA.key)
    state = TableState(1, "t", later, 2, (), 0, SETTINGS, 7, LAYOUT, {1: SCHEMA, 2: later})
    scan = TableScan(state, (), tuple(named), tuple(named), merge)
    return StoredTable(store, scan, {path: index.file(path) for path in index.paths}, order)


def read(task: SplitTask, known: StoredTable) -> list[Any]:
    """A worker's rows; it says how many."""
    found = rows_of(task, known)
    rows = run(duckdb, "sql", found.sql, **found.streams).fetchall()
    assert len(rows) == found.rows
    return list(rows)


def table(values: list[tuple[int, str]]) -> pa.Table:
    return pa.table(
        {
            "a": pa.array([a for a, _ in values], pa.int32()),
            "b": pa.array([b for _, b in values]),
            "v": pa.array(range(len(values)), pa.int32()),
        }
    )


pairs = st.tuples(st.integers(-3, 12), st.text("acmz\x00", max_size=3))
deltas = st.lists(st.lists(pairs, min_size=1, max_size=150), min_size=1, max_size=3)


@pytest.mark.parametrize("layout", [None, LAYOUT], ids=["key order", "tree"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=deltas, splits=st.integers(1, 9), ruled_out=st.integers(0, 5))
def test_splits_hold_every_kept_row_once_and_equal_keys_together(
    layout: TreeLayout | None,
    tmp_path_factory: pytest.TempPathFactory,
    values: list[list[tuple[int, str]]],
    splits: int,
    ruled_out: int,
) -> None:
    store = Store(str(tmp_path_factory.mktemp("rows")))
    written = [write(store, f"d{i}", table(v), layout) for i, v in enumerate(values)]
    index = open_snapshot(store, written, SCHEMA)
    keep = np.ones(len(index), bool)
    keep[np.random.default_rng(ruled_out).integers(0, len(index), ruled_out)] = False
    shorten = shorten_columns([pa.int32(), pa.string()])
    found = cut_into_splits(
        DeltaIndex(index, written, store, keep), KeyRanges.everything(), Wish(splits), Precision(0.1), shorten
    )
    tasks = assign(found.splits, index, keep, written)
    known = stored(store, index, SCHEMA.names, merge=True)
    seen: list[tuple[int, int]] = []
    keys: list[set[tuple[int, str]]] = []
    for task in tasks:
        rows = read(task, known)
        seen += [(place, v) for _, _, v, place in rows]
        keys.append({(a, b) for a, b, _, _ in rows})
    assert len(seen) == len(set(seen)) == int(index.rows[keep].sum())
    assert sum(map(len, keys)) == len(set().union(*keys))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.tuples(st.lists(pairs, min_size=1, max_size=150), st.booleans()), min_size=1, max_size=4),
    splits=st.integers(1, 9),
)
def test_equal_keys_meet_in_one_split_whatever_the_layouts_of_their_deltas(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[list[tuple[int, str]], bool]], splits: int
) -> None:
    store = Store(str(tmp_path_factory.mktemp("rows")))
    written = [write(store, f"d{i}", table(v), LAYOUT if routed else None) for i, (v, routed) in enumerate(values)]
    index = open_snapshot(store, written, SCHEMA)
    order, own = main_order(index, np.ones(len(index), bool), [0])
    known_regions = RegionTable(regions(LAYOUT)) if order == ROUTED else None
    others = {g: keys_in_order(index, g, order, known_regions) for g in np.flatnonzero(~own).tolist()}
    shorten = shorten_columns([pa.int32(), pa.string()])
    found = cut_into_splits(
        DeltaIndex(index, written, store, own), KeyRanges.everything(), Wish(splits), Precision(0.1), shorten
    )
    known = stored(store, index, SCHEMA.names, merge=True, order=order)
    parts = [read(task, known) for task in assign(found.splits, index, own, written, None, others)]
    seen = [(place, v) for rows in parts for _, _, v, place in rows]
    assert len(seen) == len(set(seen)) == int(index.rows.sum())
    keys = [{(a, b) for a, b, _, _ in rows} for rows in parts]
    assert sum(map(len, keys)) == len(set().union(*keys))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=deltas, splits=st.integers(1, 9), ruled_out=st.integers(0, 5))
def test_tasks_by_delta_hold_every_kept_row_once_and_are_even(
    tmp_path_factory: pytest.TempPathFactory, values: list[list[tuple[int, str]]], splits: int, ruled_out: int
) -> None:
    store = Store(str(tmp_path_factory.mktemp("rows")))
    written = [write(store, f"d{i}", table(v), None) for i, v in enumerate(values)]
    index = open_snapshot(store, written, SCHEMA)
    keep = np.ones(len(index), bool)
    keep[np.random.default_rng(ruled_out).integers(0, len(index), ruled_out)] = False
    tasks = assign_by_delta(index, keep, written, splits)
    known = stored(store, index, ["v"], merge=True)
    rows = [read(t, known) for t in tasks]
    every = [r for part in rows for r in part]
    assert len(every) == len(set(every)) == int(index.rows[keep].sum())
    if rows:
        assert max(map(len, rows)) <= len(every) // splits + 1


def test_a_column_that_came_later_is_null_in_older_deltas(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    delta = write(store, "d", table([(i, "x") for i in range(50)]), None)
    index = open_snapshot(store, [delta], SCHEMA)
    keep = np.ones(len(index), bool)
    found = cut_into_splits(DeltaIndex(index, [delta], store, keep), KeyRanges.everything(), Wish(3))
    known = stored(store, index, ["a", "new"], merge=False)
    rows = [r for t in assign(found.splits, index, keep, [delta]) for r in read(t, known)]
    assert sorted(rows) == [(i, None) for i in range(50)]
    first = duckdb.execute(rows_of(assign(found.splits, index, keep, [delta])[0], known).sql)
    assert ORDER not in [name for name, *_ in first.description or ()]
