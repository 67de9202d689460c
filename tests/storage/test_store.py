"""A store publishes whole files, explains failures in one line, and has doubles with the same interface."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquetry.errors import StorageError
from parquetry.storage.store import Sink, Store, checksum, explain_os_error
from tests.storage.store_doubles import CountingStore, FaultyStore, SlowStore


@pytest.fixture(params=["path", "uri"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(str(tmp_path) if request.param == "path" else f"file://{tmp_path}")


def test_what_is_written_is_read(store: Store) -> None:
    store.write("a/b/c.bin", b"0123456789")
    assert store.read("a/b/c.bin") == b"0123456789"
    assert store.read("a/b/c.bin", 3, 4) == b"3456"
    assert store.size("a/b/c.bin") == 10
    assert store.exists("a/b/c.bin")
    assert not store.exists("a/x")
    assert store.checksum_of("a/b/c.bin") == checksum(b"0123456789")
    with store.open_input("a/b/c.bin") as f:
        assert f.read() == b"0123456789"
    assert Path(store.url("a/b/c.bin")).read_bytes() == b"0123456789"


def test_listing_goes_below_a_folder_and_a_missing_one_is_empty(store: Store) -> None:
    store.write("t/1/b", b"xx")
    store.write("t/1/a", b"x")
    store.write("u/z", b"")
    listed = store.list("t")
    assert [(path, size) for path, size, _ in listed] == [("t/1/a", 1), ("t/1/b", 2)]
    assert listed[0][2].tzinfo is not None
    assert len(store.list()) == 3
    assert store.list("none") == []


def test_deleting_twice_is_no_error(store: Store) -> None:
    store.write("d/f", b"x")
    for _ in range(2):
        store.delete("d/f")
        store.delete_dir("d")
    assert store.list() == []


def test_a_failed_write_leaves_nothing(store: Store) -> None:
    def write_half() -> None:
        with store.open_output("d/f") as sink:
            sink.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert store.list() == []


def test_a_file_is_invisible_until_it_is_complete(store: Store) -> None:
    with store.open_output("d/f") as sink:
        sink.write(b"half")
        assert not store.exists("d/f")
    assert store.read("d/f") == b"half"


def test_a_sink_takes_parquet_and_knows_size_and_checksum(store: Store) -> None:
    table = pa.table({"a": list(range(10_000))})
    with store.open_output("d/f.parquet") as sink, pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table, row_group_size=3_000)
    assert sink.size == store.size("d/f.parquet")
    assert sink.checksum == store.checksum_of("d/f.parquet")
    with store.open_input("d/f.parquet") as f:
        assert pq.read_table(f).equals(table)


def test_missing_and_short_files_name_the_file_and_the_remedy(store: Store) -> None:
    with pytest.raises(StorageError, match="'gone' is missing.*parquetry verify"):
        store.read("gone")
    with pytest.raises(StorageError, match="'gone' is missing"):
        store.size("gone")
    with pytest.raises(StorageError, match="'gone' is missing"):
        store.checksum_of("gone")
    store.write("short", b"abc")
    with pytest.raises(StorageError, match="ends at byte 3, 5 bytes too early"):
        store.read("short", 1, 7)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_explained() -> None:
    with pa.OSFile("/dev/full", "wb") as f, pytest.raises(OSError) as full:
        f.write(b"x")
    assert "free space and run the same command again" in str(explain_os_error(full.value, "f"))


class FullDisk:
    def write(self, data: memoryview) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_explained_through_a_parquet_writer() -> None:
    table = pa.table({"a": [1]})
    with pytest.raises(StorageError, match="no space left.*'d/f'.*nothing was committed"):
        pq.write_table(table, Sink(FullDisk(), "d/f"))


def test_errors_of_the_writing_block_stay_what_they_are(store: Store) -> None:
    with pytest.raises(FileNotFoundError, match="input"), store.open_output("d/f"):
        raise FileNotFoundError("input")


def test_an_address_of_an_unknown_kind_is_one_clear_error() -> None:
    with pytest.raises(StorageError, match="cannot open the storage root"):
        Store("nosuch://x/y").exists("f")


def test_stores_pickle_as_their_address(store: Store) -> None:
    store.write("f", b"x")
    copy = pickle.loads(pickle.dumps(store))
    assert type(copy) is Store
    assert copy.read("f") == b"x"


def test_a_counting_store_counts(tmp_path: Path) -> None:
    store = CountingStore(str(tmp_path))
    store.write("f", b"abc")
    store.read("f", 1, 1)
    store.delete("f")
    assert store.counts == {"writes": 1, "bytes_written": 3, "reads": 1, "bytes_read": 1, "deletes": 1}


def test_a_faulty_store_fails_the_chosen_write_only(tmp_path: Path) -> None:
    store = FaultyStore(str(tmp_path), fail_at=2, error=OSError(errno.ENOSPC, "No space left on device"))
    store.write("a", b"abcd")
    with pytest.raises(StorageError, match="no space left.*nothing was committed"):
        store.write("b", b"abcd")
    store.write("c", b"abcd")
    assert [path for path, _, _ in store.list()] == ["a", "c"]


def test_a_faulty_store_can_truncate_unnoticed(tmp_path: Path) -> None:
    store = FaultyStore(str(tmp_path), fail_at=1, truncate=True)
    store.write("a", b"abcd")
    assert store.read("a") == b"ab"


def test_a_slow_store_gives_the_same_bytes(tmp_path: Path) -> None:
    store = SlowStore(str(tmp_path), 0.001)
    store.write("a", b"abcd")
    assert store.read("a") == b"abcd"
    assert pickle.loads(pickle.dumps(store)).seconds == 0.001


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "..", "a/..", "/etc/passwd", "a//b", "./a", "a/./b", "a/", "a\0b"]
)
def test_a_path_that_leads_elsewhere_is_refused_before_anything_is_touched(path: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = Store(str(root))
    store.write("a/b", b"x")
    (tmp_path / "x").write_text("mine")
    for act in (
        store.read,
        store.open_input,
        store.checksum_of,
        store.size,
        store.exists,
        store.url,
        store.list,
        store.delete,
        store.delete_dir,
        lambda p: store.write(p, b"y"),
    ):
        with pytest.raises(StorageError, match="inside the storage root"):
            act(path)
    assert (tmp_path / "x").read_text() == "mine"
    assert [p for p, *_ in store.list()] == ["a/b"]


def test_the_root_itself_is_never_removed(store: Store) -> None:
    store.write("a/b", b"x")
    with pytest.raises(StorageError):
        store.delete_dir("")
    assert store.exists("a/b")


@pytest.mark.parametrize("path", ["a/..b", "a/b..", "...", ".hidden", "a b/ü?%#'"])
def test_odd_names_inside_the_root_are_names(path: str, store: Store) -> None:
    store.write(path, b"x")
    assert store.read(path) == b"x"
    assert [p for p, *_ in store.list()] == [path]
