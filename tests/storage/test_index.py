"""The B-tree finds what a linear search finds, sizes add up on every level, and only needed nodes are read."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.errors import StorageError
from parquetry.model.delta import StoredFile
from parquetry.model.keys import block_prefix, encode_value, successor
from parquetry.model.schema import Column, TableSchema
from parquetry.storage.cache import METADATA, Cache
from parquetry.storage.index import BOUND_LENGTH, KEY_BYTES, RowGroup, build_index, overlapping
from parquetry.storage.index_reader import IndexReader, open_index
from parquetry.storage.snapshot_index import SnapshotIndex
from parquetry.storage.store import checksum
from tests.storage.store_doubles import CountingStore

SCHEMA = TableSchema(
    (Column("k", "string"), Column("f", "double"), Column("d", "decimal(9,2)"), Column("l", "array<int>")), ("k",)
)


def key(text: str, block: int = 0) -> bytes:
    return block_prefix(block) + encode_value(text, pa.string())


def group(ordinal: int, keys: list[str], block: int = 0, **stats: Any) -> RowGroup:
    """A row group of these sorted keys, with two rows per data block."""
    starts = tuple(key(k, block) for k in keys[::2])
    rows = tuple(len(keys[i : i + 2]) for i in range(0, len(keys), 2))
    return RowGroup(0, ordinal, len(keys), 10 * len(keys), block, starts, rows, key(keys[-1], block), **stats)


def reader_of(data: bytes, log: list[tuple[int, int]] | None = None) -> IndexReader:
    def read(offset: int, length: int) -> bytes:
        if log is not None:
            log.append((offset, length))
        return data[offset : offset + length]

    return IndexReader(read, len(data))


def make_reader(groups: list[RowGroup], inner_capacity: int = 3) -> IndexReader:
    return reader_of(build_index(groups, SCHEMA, 10, inner_capacity))


def found_by(reader: IndexReader, lo: bytes, hi: bytes | None) -> range:
    """The row groups that may hold keys of ``[lo, hi)``."""
    table = reader.row_groups()
    return overlapping(table.starts, table.ends, lo, hi)


TEXTS = st.text("ab\x00é", max_size=3)


@given(st.lists(TEXTS, min_size=1, max_size=60), st.integers(1, 8), st.integers(2, 4), TEXTS, TEXTS)
@settings(max_examples=200, deadline=None)
def test_a_binary_search_finds_exactly_the_row_groups_that_a_linear_one_finds(
    texts: list[str], cut: int, capacity: int, lo: str, hi: str
) -> None:
    texts.sort()
    pieces = [texts[i : i + cut] for i in range(0, len(texts), cut)]
    reader = make_reader([group(i, piece) for i, piece in enumerate(pieces)], capacity)
    a, b = key(lo), key(hi)
    expected = [i for i, p in enumerate(pieces) if key(p[-1]) >= a and key(p[0]) < b]
    assert list(found_by(reader, a, b)) == expected
    assert list(found_by(reader, a, None)) == [i for i, p in enumerate(pieces) if key(p[-1]) >= a]
    holding = [i for i, p in enumerate(pieces) if lo in p]
    assert set(holding) <= set(found_by(reader, a, successor(a)))


def test_sizes_and_bounds_add_up_on_every_level() -> None:
    groups = [
        group(i, [f"{i:03d}{c}" for c in "abcde"], mins={"d": Decimal(i)}, maxs={"d": Decimal(i + 5)}, nulls={"d": 1})
        for i in range(20)
    ]
    reader = make_reader(groups)
    assert reader.levels == 4  # leaves, 20 row groups in 7 nodes, 7 entries in 3, 3 in the root
    assert (reader.root.rows, reader.root.bytes, reader.root.level) == (100, 1000, 4)
    assert (reader.root.start, reader.root.end) == (key("000a"), key("019e") + b"\0")
    front = [reader.root]
    while front[0].level:
        nodes = [reader.children(e) for e in front]
        for parent, node in zip(front, nodes, strict=True):
            assert int(node.rows.sum()) == parent.rows
            assert int(node.bytes.sum()) == parent.bytes
            assert node.starts[0] == parent.start
            assert node.ends[-1] == parent.end
            assert all(s < e for s, e in zip(node.starts, node.ends, strict=True))
        front = [n.entry(i) for n in nodes for i in range(len(n))]
        if nodes[0].batch is not None and nodes[0].level == 2:
            first = nodes[0].batch.slice(0, 1).to_pylist()[0]
            assert (first["min.d"], first["max.d"], first["nulls.d"]) == (Decimal("0.00"), Decimal("7.00"), 3)
    assert len(front) == 60
    assert front[0].child is None
    with pytest.raises(ValueError, match="no children"):
        reader.children(front[0])


def test_the_row_groups_are_one_read_and_a_leaf_is_one_more() -> None:
    groups = [group(i, [f"{i:05d}", f"{i:05d}x"]) for i in range(5_000)]
    data = build_index(groups, SCHEMA, 10, 20)
    log: list[tuple[int, int]] = []
    reader = reader_of(data, log)
    log.clear()
    assert list(found_by(reader, key("00123"), key("00123") + b"\0")) == [123]
    assert len(log) == 1
    log.clear()
    assert list(found_by(reader, key("00124"), key("00125"))) == [124]
    assert log == []
    assert reader.leaf(123).starts == [key("00123")]
    assert len(log) <= 2  # its parent node, and itself
    assert sum(n for _, n in log) < len(data) / 10


def test_what_is_read_of_the_leaves_is_counted() -> None:
    groups = [group(i, [f"{i:05d}", f"{i:05d}x"]) for i in range(5_000)]
    reader = reader_of(build_index(groups, SCHEMA, 10, 20))
    assert reader.fetch_leaves([7, 9, 4_000]) == 4  # the one between comes with them
    assert reader.fetch_leaves([7, 8, 9, 4_000]) == 0
    assert reader.fetch_leaves([]) == 0


def test_equal_keys_across_row_groups_are_all_found() -> None:
    reader = make_reader([group(0, ["a", "b", "b", "b"]), group(1, ["b", "b"]), group(2, ["b", "c"])])
    assert list(found_by(reader, key("b"), successor(key("b")))) == [0, 1, 2]
    assert reader.leaf(1).ends[0] > reader.leaf(1).starts[0]


def test_gaps_between_row_groups_are_known() -> None:
    reader = make_reader([group(0, ["a", "c"]), group(1, ["m", "p"])])
    assert list(found_by(reader, key("d"), key("e"))) == []
    assert list(found_by(reader, key("z"), None)) == []
    assert list(found_by(reader, b"", key("a"))) == []


def test_blocks_come_before_keys() -> None:
    reader = make_reader([group(0, ["m", "z"], block=1), group(1, ["a", "n"], block=2)])
    assert list(found_by(reader, key("n", 2), None)) == [1]
    assert reader.row_groups().batch["block"].to_pylist() == [1, 2]


def test_very_long_keys_are_cut_outwards() -> None:
    long = "x" * 5_000
    reader = make_reader([group(0, ["a", long + "1"]), group(1, [long + "2", long + "9"]), group(2, ["z"])])
    table = reader.row_groups()
    assert all(len(k) <= KEY_BYTES for k in [*table.starts, *table.ends])
    assert table.starts == sorted(table.starts)
    assert table.ends == sorted(table.ends)
    for text, holder in ((long + "1", 0), (long + "5", 1), ("z", 2)):
        assert holder in found_by(reader, key(text), key(text) + b"\0")
    assert 2 not in found_by(reader, key(long), key(long + "9"))


def test_bounds_of_long_values_are_cut_outwards() -> None:
    top = "\U0010ffff"
    cases = [("a" * 99, "a" * 99), ("b", "b" * 63 + top * 9), ("c", top * 99), ("d", "\ud7ff" * 99), (None, None)]
    groups = [group(i, [f"{i}"], mins={"k": lo}, maxs={"k": hi}) for i, (lo, hi) in enumerate(cases)]
    batch = make_reader(groups).row_groups().batch
    lows, highs = batch["min.k"].to_pylist(), batch["max.k"].to_pylist()
    assert lows[0] == "a" * BOUND_LENGTH
    assert highs[0] == "a" * 63 + "b"
    assert highs[1] == "b" * 62 + "c"
    assert highs[2] is None
    assert highs[3] == "\ud7ff" * 63 + "\ue000"
    assert (lows[4], highs[4]) == (None, None)


def test_nan_and_unknown_values_stay_apart_on_upper_levels() -> None:
    def stats(lo: Any, hi: Any, nulls: Any, nan: Any) -> dict[str, Any]:
        return {"mins": {"f": lo}, "maxs": {"f": hi}, "nulls": {"f": nulls}, "nans": {"f": nan}}

    known, all_nan, all_null = (
        stats(1.0, 2.0, 0, False),
        stats(math.nan, math.nan, 0, None),
        stats(None, None, 1, False),
    )
    groups = [group(i, [str(i)], **s) for i, s in enumerate([known, all_null, known, all_nan, known, known])]
    reader = make_reader(groups)
    upper = reader.entries(2, 0).batch
    assert upper is not None
    assert upper["min.f"].to_pylist() == [1.0, None]
    assert upper["max.f"].to_pylist() == [2.0, None]
    assert upper["nan.f"].to_pylist() == [False, True]
    assert upper["nulls.f"].to_pylist() == [1, 0]


def test_a_column_added_later_is_null_in_old_deltas() -> None:
    old = make_reader([group(0, ["a", "b"])]).row_groups()
    later = SCHEMA.add_column(Column("day", "date"))
    new = reader_of(
        build_index([group(0, ["c"], mins={"day": date(2020, 1, 1)}, nulls={"day": 0})], later, 10, 3)
    ).row_groups()
    index = SnapshotIndex([old, new], later)
    assert index.nulls("day").tolist() == [2, 0]
    assert index.nulls("f").tolist() == [-1, -1]
    assert index.rows.tolist() == [2, 1]
    assert index.delta.tolist() == [0, 1]


def test_an_index_that_does_not_follow_from_a_sorted_run_is_refused() -> None:
    with pytest.raises(ValueError, match="order of the run"):
        build_index([group(0, ["b"]), group(1, ["a"])], SCHEMA, 10, 10)
    with pytest.raises(ValueError, match="add up"):
        build_index([group(0, ["a", "b", "c"])], SCHEMA, 1, 10)
    with pytest.raises(ValueError, match="without rows"):
        build_index([], SCHEMA, 10, 10)


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: d[:40], lambda d: b"", lambda d: d[:-20] + b"x" * 20])
def test_a_damaged_index_is_one_clear_error(damage: Callable[[bytes], bytes]) -> None:
    data = build_index([group(0, ["a"])], SCHEMA, 10, 10)
    with pytest.raises(StorageError, match="parquetry verify"):
        reader_of(damage(data)).row_groups()


def test_damage_in_a_node_is_found_when_it_is_read() -> None:
    data = build_index([group(0, ["a"])], SCHEMA, 10, 10)
    inner = reader_of(data)._nodes[0]
    with pytest.raises(StorageError, match="damaged"):
        reader_of(data[: inner[0]] + b"\x07" * (inner[1] - inner[0]) + data[inner[1] :]).row_groups()


def test_a_stored_index_is_read_once_per_process(tmp_path: Path) -> None:
    store = CountingStore(str(tmp_path))
    data = build_index([group(0, ["a", "b"])], SCHEMA, 10, 10)
    store.write("1/x/index.pqx", data)
    file = StoredFile("1/x/index.pqx", len(data), checksum(data))
    for _ in range(3):
        reader = open_index(store, file)
        assert len(reader.row_groups()) == 1
        assert reader.leaf(0).rows.tolist() == [2]
    assert store.counts["reads"] == 1  # a small index comes whole with its footer
    METADATA.clear()


def test_concurrent_misses_load_once_and_a_failure_is_not_kept() -> None:
    cache = Cache(1 << 20)
    loads: list[int] = []

    def load() -> str:
        loads.append(1)
        time.sleep(0.05)
        return "value"

    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(cache.get("k", load, len))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == ["value"] * 8
    assert len(loads) == 1
    with pytest.raises(ZeroDivisionError):
        cache.get("bad", lambda: 1 // 0, lambda _: 1)
    assert cache.get("bad", lambda: 5, lambda _: 1) == 5


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["load", "weigh", "keep"])
def test_an_error_anywhere_in_a_load_leaves_nobody_waiting(error: type[BaseException], where: str) -> None:
    cache = Cache(1 << 20)
    started = threading.Event()
    keep = cache._keep

    def fail(*_: Any) -> Any:
        started.set()
        time.sleep(0.05)  # the other one waits by now
        raise error

    def first() -> None:
        with pytest.raises(error):
            cache.get("k", fail if where == "load" else lambda: "lost", fail if where == "weigh" else len)

    if where == "keep":
        cache._keep = lambda *kept: keep(*kept) if started.is_set() else fail()  # type: ignore[method-assign]
    found: list[str] = []
    threads = [threading.Thread(target=first, daemon=True)]
    threads[0].start()
    assert started.wait(5)
    threads.append(threading.Thread(target=lambda: found.append(cache.get("k", lambda: "value", len)), daemon=True))
    threads[1].start()
    for t in threads:
        t.join(5)
    # It loads by itself what another one could not, and is not told that somebody pressed Ctrl-C.
    assert found == ["value"]
    assert cache.get("k", lambda: "again", len) == "value"


def test_the_least_recently_used_value_leaves_first() -> None:
    cache = Cache(3 << 19)
    loads: list[str] = []

    def get(name: str) -> str:
        def load() -> str:
            loads.append(name)
            return name

        return cache.get(name, load, lambda _: 1 << 19)

    for name in "abacab":
        get(name)
    assert loads == ["a", "b", "c", "b"]


def test_what_is_kept_weighs_what_it_takes() -> None:
    """Many small values are more than their bytes: of a few rows, most is what their arrays are besides."""
    cache = Cache(1 << 20)
    for i in range(10_000):
        cache.get(i, lambda: b"", lambda _: 1)
    assert len(cache._values) <= 512
