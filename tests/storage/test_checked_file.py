"""How often a data file is read: a small one once, a large one only where it is asked for."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquetry.model.delta import Delta, StoredFile
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.storage.cache import METADATA
from parquetry.storage.checked_file import SMALL_BYTES, CheckedFile, check_chunks
from parquetry.storage.index import build_index
from parquetry.storage.scan.arrow import read_row_groups
from parquetry.storage.snapshot_index import data_files
from parquetry.storage.store import checksum
from parquetry.storage.writer import RunWriter
from tests.storage.store_doubles import CountingStore

SCHEMA = TableSchema(
    (Column("k", "bigint"), Column("s", "string"), Column("v", "bigint"), Column("f", "double")), ("k",)
)


def table(n: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(n), pa.int64()),
            "s": [f"{i * 7919 % n} text" for i in range(n)],
            "v": pa.array([i * i for i in range(n)], pa.int64()),
            "f": [i / 3 for i in range(n)],
        }
    )


def stored(folder: Path, n: int, group_rows: int) -> tuple[CountingStore, CheckedFile]:
    """One delta of ``n`` rows, and nothing of it in memory."""
    store = CountingStore(str(folder))
    settings = Settings(row_group_rows=group_rows)
    (made,) = [b.to_pylist()[0] for b in RunWriter(store, "1/d", SCHEMA, settings)(iter(table(n).to_batches()))]
    data = build_index(pickle.loads(made["groups"]), SCHEMA, 10, 1000)
    store.write("1/d/index.pqx", data)
    files = (StoredFile(made["path"], made["bytes"], made["checksum"], made["rows"]),)
    delta = Delta(
        "d", 1, 1, 1, 0, n, made["bytes"], 1, 0, StoredFile("1/d/index.pqx", len(data), checksum(data)), files
    )
    METADATA.clear()
    (file,) = data_files(store, delta)
    assert store.counts["opened"] == 0
    store.counts.clear()
    return store, file


@pytest.mark.parametrize("columns", [["k"], ["k", "f"], ["k", "s", "v", "f"]])
def test_a_lookup_in_a_small_delta_is_one_read(tmp_path: Path, columns: list[str]) -> None:
    store, file = stored(tmp_path, 800, 122_880)
    assert file.bytes <= SMALL_BYTES
    rows, size = read_row_groups(store, file, [0], columns)
    assert rows.to_pylist() == table(800).select(columns).to_pylist()
    assert store.counts == {"reads": 1, "bytes_read": size}
    assert size == file.bytes


def test_in_a_larger_one_what_lies_side_by_side_is_one_read_and_the_footer_is_read_once(tmp_path: Path) -> None:
    store, file = stored(tmp_path, 20_000, 122_880)
    assert file.bytes > SMALL_BYTES
    for again in (0, 1):
        store.counts.clear()
        rows, size = read_row_groups(store, file, [0], ["k", "s", "v"])
        assert rows.to_pylist() == table(20_000).select(["k", "s", "v"]).to_pylist()
        assert store.counts["reads"] == 2 - again
    assert store.counts["bytes_read"] == size
    store.counts.clear()
    read_row_groups(store, file, [0], ["k", "f"])
    assert store.counts["reads"] == 2


def test_no_byte_of_other_row_groups_is_read(tmp_path: Path) -> None:
    store, file = stored(tmp_path, 20_000, 1_000)
    footer = pq.read_metadata(store.url(file.path))
    read_row_groups(store, file, [0], ["k"])
    store.counts.clear()
    rows, size = read_row_groups(store, file, [3, 4, 11], ["s", "v"])
    expected = [table(20_000).slice(1_000 * g, 1_000).select(["s", "v"]) for g in (3, 4, 11)]
    assert rows.to_pylist() == pa.concat_tables(expected).to_pylist()
    chunks = sum(footer.row_group(g).column(i).total_compressed_size for g in (3, 4, 11) for i in (1, 2))
    assert size == chunks == store.counts["bytes_read"]


def test_what_another_reader_reads_is_compared_once(tmp_path: Path) -> None:
    store, file = stored(tmp_path, 20_000, 1_000)
    for wanted, times in (([1, 2], 1), ([1, 2], 0), ([2, 3], 1)):
        check_chunks(store, file, [0], ["k"])
        store.counts.clear()
        check_chunks(store, file, wanted, ["k", "v"])
        assert (store.counts["reads"] > 0) == bool(times)
    METADATA.clear()
