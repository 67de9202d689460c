"""Splits over real index files: sizes are those of kept row groups, and leaves are read together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from parquetry.model.delta import Delta, StoredFile
from parquetry.model.keys import block_prefix, encode_keys
from parquetry.model.schema import Column, TableSchema
from parquetry.splits.assignment import assign
from parquetry.splits.cut import Precision, cut_into_splits
from parquetry.splits.delta_index import DeltaIndex
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish
from parquetry.splits.shorten_key import shorten_columns
from parquetry.storage import index_reader
from parquetry.storage.cache import METADATA
from parquetry.storage.index import RowGroup, build_index
from parquetry.storage.scan.scan import ReadTask, RowRange
from parquetry.storage.snapshot_index import SnapshotIndex, open_snapshot
from parquetry.storage.store import Store
from tests.storage.store_doubles import CountingStore

SCHEMA = TableSchema((Column("k", "int"), Column("v", "int")), ("k",))
GROUP, BLOCK = 40, 4


def make(tmp_path: Path, sizes: tuple[int, ...], seed: int = 0) -> tuple[Store, list[Delta], list[list[bytes]]]:
    """Deltas of random keys: one row weighs ten bytes, a data block has four rows."""
    rng = np.random.default_rng(seed)
    store = CountingStore(str(tmp_path))
    deltas, every = [], []
    for i, n in enumerate(sizes):
        numbers = np.sort(rng.integers(0, 10_000, n)).astype(np.int32)
        keys = [block_prefix(0) + k for k in encode_keys([pa.array(numbers)]).to_pylist()]
        groups = []
        for at in range(0, n, GROUP):
            part = keys[at : at + GROUP]
            starts = tuple(part[::BLOCK])
            counts = tuple(min(BLOCK, len(part) - b) for b in range(0, len(part), BLOCK))
            groups.append(RowGroup(0, at // GROUP, len(part), 10 * len(part), 0, starts, counts, part[-1]))
        data = build_index(groups, SCHEMA, GROUP // BLOCK, 8)
        store.write(f"d{i}/index.pqx", data)
        index = StoredFile(f"d{i}/index.pqx", len(data), "")
        file = StoredFile(f"d{i}/part-0.parquet", 10 * n, "", n)
        deltas.append(Delta(f"d{i}", 1, i, i, 0, n, 10 * n, 1, 0, index, (file,)))
        every.append(keys)
    return store, deltas, every


def snapshot(store: Store, deltas: list[Delta]) -> SnapshotIndex:
    METADATA.clear()
    return open_snapshot(store, deltas, SCHEMA)


def test_sizes_bound_the_rows_of_every_split(tmp_path: Path) -> None:
    store, deltas, keys = make(tmp_path, (4000, 700, 90, 1))
    index = snapshot(store, deltas)
    for theta in (0.0, 1.0):
        whole = DeltaIndex(index, deltas, store, np.ones(len(index), bool))
        found = cut_into_splits(whole, KeyRanges.everything(), Wish(25), Precision(theta))
        assert len(found) == 25
        for s in found.splits:
            rows = sum((s.lo is None or s.lo <= k) and (s.hi is None or k < s.hi) for d in keys for k in d)
            assert s.least <= 10 * rows <= s.most
        assert found.total == 10 * 4791


def rows_of(task: ReadTask) -> tuple[RowRange, ...]:
    return ((0, task.file.rows),) if task.rows is None else task.rows


def test_row_groups_that_are_ruled_out_weigh_nothing(tmp_path: Path) -> None:
    store, deltas, _ = make(tmp_path, (4000, 700))
    index = snapshot(store, deltas)
    keep = np.zeros(len(index), bool)
    keep[10:20] = keep[110:114] = True
    found = cut_into_splits(DeltaIndex(index, deltas, store, keep), KeyRanges.everything(), Wish(6), Precision(0.3))
    assert found.total == index.bytes[keep].sum()
    tasks = assign(found.splits, index, keep, deltas)
    read = sum(b - a for t in tasks for p in t.parts for a, b in rows_of(p.task))
    edges = {(p.task.place, e.row_group) for t in tasks for p in t.parts for e in p.edges}
    assert read + sum(GROUP for _ in edges) == index.rows[keep].sum()


def test_whole_row_groups_are_dealt_once_and_cut_ones_to_their_neighbours(tmp_path: Path) -> None:
    store, deltas, keys = make(tmp_path, (4000, 700, 90))
    index = snapshot(store, deltas)
    keep = np.ones(len(index), bool)
    shorten = shorten_columns([pa.int32()])
    found = cut_into_splits(DeltaIndex(index, deltas, store, keep), KeyRanges.everything(), Wish(9), shorten=shorten)
    tasks = assign(found.splits, index, keep, deltas)
    for place, own in enumerate(keys):
        whole = [r for t in tasks for p in t.parts if p.task.place == place for r in rows_of(p.task)]
        covered = np.concatenate([np.arange(a, b) for a, b in whole])
        assert len(covered) == len(set(covered.tolist()))
        edges = {e.first for t in tasks for p in t.parts if p.task.place == place for e in p.edges}
        assert set(range(len(own))) - set(covered.tolist()) == {
            i for first in edges for i in range(first, min(first + GROUP, len(own)))
        }
        for t in tasks:
            for p in t.parts:
                for a, b in rows_of(p.task) if p.task.place == place else ():
                    assert t.lo is None or t.lo <= own[a]
                    assert t.hi is None or own[b - 1] < t.hi


def test_a_file_that_lies_inside_is_read_whole(tmp_path: Path) -> None:
    store, deltas, _ = make(tmp_path, (400, 30))
    index = snapshot(store, deltas)
    keep = np.ones(len(index), bool)
    found = cut_into_splits(DeltaIndex(index, deltas, store, keep), KeyRanges.everything(), Wish(1))
    (task,) = assign(found.splits, index, keep, deltas)
    assert all(p.task.rows is None and not p.edges for p in task.parts)


@pytest.mark.parametrize("small", [True, False])
def test_what_is_counted_as_read_is_what_was_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    if not small:  # else an index is one read, with its end
        monkeypatch.setattr(index_reader, "_TAIL_READ", 2000)
    store, deltas, _ = make(tmp_path, (4000, 700))
    index = snapshot(store, deltas)
    keep = np.ones(len(index), bool)
    first, again = (DeltaIndex(index, deltas, store, keep) for _ in range(2))
    assert isinstance(store, CountingStore)
    store.counts.clear()
    cut_into_splits(first, KeyRanges.everything(), Wish(9), Precision(0.0))
    leaves = [k for k in METADATA._values if isinstance(k, tuple) and k[1] == 0]
    assert first.nodes_read == (0 if small else len(leaves))
    assert (first.rounds_read == 0) == (store.counts["reads"] == 0) == small
    assert first.rounds_read <= store.counts["reads"]
    store.counts.clear()
    cut_into_splits(again, KeyRanges.everything(), Wish(9), Precision(0.0))
    assert (again.nodes_read, again.rounds_read, store.counts["reads"]) == (0, 0, 0)


@pytest.mark.parametrize("wanted", [[3, 4, 5, 90], [0], list(range(100))])
def test_leaves_are_read_in_few_requests_and_stay_in_memory(tmp_path: Path, wanted: list[int]) -> None:
    from parquetry.storage.index_reader import open_index

    store, deltas, _ = make(tmp_path, (4000,))
    METADATA.clear()
    reader = open_index(store, deltas[0].index)
    one_by_one = [(reader.leaf(n).starts, reader.leaf(n).ends) for n in wanted]
    METADATA.clear()
    together = open_index(store, deltas[0].index).leaves(wanted)
    assert [(n.starts, n.ends) for n in together] == one_by_one
