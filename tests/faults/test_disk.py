"""Storage that is full, read-only or failing: one line that says so, nothing committed, and trying again works."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import parquetry
from parquetry.errors import CatalogNotWritable, ParquetryError, StorageError
from parquetry.maintain import merge_deltas
from parquetry.storage.store import Sink, Store, explain_os_error
from parquetry.warehouse import Warehouse
from tests.ingest.refusing import one_line, refused
from tests.storage.store_doubles import FaultyStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.faults


class FullStore(Store):
    """A disk without room for the second half of any data file; can be sent to tasks, unlike FaultyStore."""

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        with super().open_output(path) as sink:
            yield sink
            if path.endswith(".parquet"):
                raise explain_os_error(OSError(errno.ENOSPC, "No space left on device"), path)


def rows(n: int, first: int = 0) -> pa.Table:
    keys = range(first, first + n)
    return pa.table(
        {"k": pa.array(keys, pa.int32()), "s": [f"{k * 7919 % 1000003} not well compressed {k}" for k in keys]}
    )


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with parquetry.connect(tmp_path / "wh", spark=spark) as made:
        made.create_table("t", "k int, s string", key=["k"], settings={"compaction_width": 2})
        made.ingest("t", rows(10), label="first")
        made.maintain()
        yield made


def test_no_room_for_a_data_file(wh: Warehouse) -> None:
    real = wh.store
    wh.store = FullStore(real.root)
    refused(wh, lambda: wh.ingest("t", rows(10, 10), label="x"), StorageError, "no space left", "free space")
    wh.store = real
    assert not wh.ingest("t", rows(10, 10), label="x").repeated
    check(wh, 20)


def test_no_room_for_the_index(wh: Warehouse) -> None:
    # Only the index is written by the driver, so a store that counts its writes is enough.
    from parquetry.ingest import ingest as module

    full = OSError(errno.ENOSPC, "No space left on device")

    class IndexFails(FaultyStore):
        def __reduce__(self) -> tuple[Any, ...]:
            return Store, (self.root,)

    store = IndexFails(wh.store.root, 1, error=full)
    act = lambda: module.ingest(wh.catalog, store, lambda: wh.spark, "t", rows(10, 10), label="x", executor="spark")  # noqa: E731
    refused(wh, act, StorageError, "no space left", "index.pqx")
    assert store.writes == 1
    check(wh, 10)


def test_no_room_for_a_compaction(wh: Warehouse) -> None:
    for first in (10, 20, 30):
        wh.ingest("t", rows(10, first))
    real = wh.store
    wh.store = FullStore(real.root)
    before = wh.deltas("t")
    with pytest.raises(ParquetryError) as caught:
        wh.maintain()
    one_line(caught.value, StorageError, "no space left")
    assert [d["delta"] for d in wh.deltas("t")] == [d["delta"] for d in before]
    wh.store = real
    wh.maintain()
    assert len(wh.deltas("t")) < len(before)
    check(wh, 40)


def mount(folder: Path, options: str) -> None:
    ran = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"this user may not mount: {ran.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of two megabytes; other tests stand in for it where mounting is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "size=2m")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, spark: SparkSession) -> None:
    with parquetry.connect(small_disk / "wh", spark=spark) as wh:
        wh.create_table("t", "k int, s string", key=["k"])
        wh.ingest("t", rows(10), label="first")
        filler = small_disk / "filler"
        filler.write_bytes(bytes(room(small_disk) - 200_000))
        refused(wh, lambda: wh.ingest("t", rows(60_000, 10), label="x"), StorageError, "no space left", "free")
        filler.unlink()
        wh.ingest("t", rows(1000, 10), label="x")
        wh.maintain()
        check(wh, 1010)


def test_a_full_disk_under_the_catalog(small_disk: Path, spark: SparkSession) -> None:
    with parquetry.connect(small_disk / "wh", spark=spark) as wh:
        wh.create_table("t", "k int, s string", key=["k"])
        wh.ingest("t", rows(10), label="first")
        wh.maintain()
        wide = ", ".join(f"column_{i} string" for i in range(3000))
        filler = small_disk / "filler"
        filler.write_bytes(bytes(room(small_disk)))
        refused(
            wh, lambda: wh.create_table("wide", f"k int, {wide}", key=["k"]), CatalogNotWritable, "full", "make room"
        )
        assert wh.sql("SELECT count(*) AS n FROM t", executor="local").rows() == [{"n": 10}]
        filler.unlink()
        wh.create_table("wide", f"k int, {wide}", key=["k"])
        check(wh, 10)
    # Whoever connects while the disk is full can read, too, and is told why there is no writing.
    filler.write_bytes(bytes(room(small_disk)))
    with parquetry.connect(small_disk / "wh", spark=spark) as wh:
        assert wh.sql("SELECT count(*) AS n FROM t", executor="local").rows() == [{"n": 10}]
        refused(wh, lambda: wh.create_table("u", "k int", key=["k"]), CatalogNotWritable, "full", "make room")
    filler.unlink()
    with parquetry.connect(small_disk / "wh", spark=spark) as wh:
        wh.create_table("u", "k int", key=["k"])
        check(wh, 10)


def room(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def test_a_limit_on_file_sizes(wh: Warehouse, tmp_path: Path) -> None:
    """What a quota does: the process may write, but no file beyond a size. It runs where mounting is not allowed."""
    wh.close()
    program = f"""
import resource, sys
import parquetry
from parquetry.errors import ParquetryError
from parquetry.storage.store import Store
wh = parquetry.connect({str(tmp_path / "wh")!r}, create=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    wh.store.write("1/big/part-x.parquet", bytes(200_000))
except ParquetryError as e:
    print(type(e).__name__, e)
print(wh.store.list("1/big"), wh.verify())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert ran.returncode == 0, ran.stderr
    refusal, left = ran.stdout.strip().splitlines()
    assert refusal.startswith("StorageError cannot access '1/big/part-x.parquet'")
    assert left == "[] []"


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Makes a folder and all in it read-only; for root by mounting it so, for others by its permissions."""
    if os.geteuid() == 0:
        ran = subprocess.run(["mount", "--bind", "-o", "ro", str(folder), str(folder)], capture_output=True, text=True)
        if ran.returncode:
            pytest.skip(f"root ignores permissions, and may not mount here: {ran.stderr.strip()}")
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    everything = [folder, *folder.rglob("*")]
    modes = [(p, p.stat().st_mode) for p in everything]
    for p in everything:
        p.chmod(p.stat().st_mode & ~0o222)
    try:
        yield
    finally:
        for p, mode in modes:
            p.chmod(mode)


def test_a_read_only_data_folder(wh: Warehouse) -> None:
    with read_only(wh.folder / "data"):
        refused(wh, lambda: wh.ingest("t", rows(10, 10), label="x"), StorageError, "no permission")
        check(wh, 10)
    assert not wh.ingest("t", rows(10, 10), label="x").repeated
    check(wh, 20)


def test_a_read_only_warehouse(wh: Warehouse, spark: SparkSession) -> None:
    wh.close()
    with read_only(wh.folder):
        with parquetry.connect(wh.folder, spark=spark) as opened:
            for executor in ("local", "spark"):
                assert opened.sql("SELECT count(*) AS n FROM t", executor=executor).rows() == [{"n": 10}]
            with pytest.raises(ParquetryError) as caught:
                opened.ingest("t", rows(10, 10), label="x")
        one_line(caught.value, CatalogNotWritable, "catalog.db", "may not be written to")
    with parquetry.connect(wh.folder, spark=spark) as opened:
        check(opened, 10)


def test_a_folder_where_no_warehouse_can_be_made(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    with read_only(parent), pytest.raises(ParquetryError) as caught:
        parquetry.connect(parent / "wh")
    assert "cannot make a warehouse" in str(caught.value)
    assert list(parent.iterdir()) == []


def check(wh: Warehouse, count: int) -> None:
    wh.maintain()
    assert wh.sql("SELECT count(*) AS n, count(DISTINCT k) AS d FROM t", executor="local").rows() == [
        {"n": count, "d": count}
    ]
    assert wh.verify() == []
    deltas = [d for t in wh.catalog.state().tables.values() for d in t.deltas]
    removed = wh.catalog.garbage(wh.catalog.version(), wh.catalog.now() + 1)
    named = {f.path for d in (*deltas, *removed) for f in (*d.files, d.index)}
    assert {path for path, *_ in wh.store.list()} == named, "nothing was left behind"


@pytest.mark.parametrize(
    ("settings", "dealt", "told"),
    [
        ({}, False, "bytes too early"),
        ({"in_process_bytes": 0}, False, "bytes too early"),
        ({"in_process_bytes": 0}, True, "30 rows are stored but 20 could be read"),
    ],
    ids=["process", "parts", "dealt out anew"],
)
def test_a_compaction_never_makes_a_loss_final(
    wh: Warehouse, settings: dict[str, int], dealt: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dealt:
        monkeypatch.setattr(merge_deltas, "cut_runs", lambda *_: None)
    wh.change_settings("t", compaction_width=2, **settings)
    wh.ingest("t", rows(10, 10))
    wh.ingest("t", rows(10, 20))
    deltas = wh.catalog.state().table("t").deltas
    Path(wh.store.url(deltas[-1].files[0].path)).write_bytes(b"")  # Spark reads an empty file as no rows
    with pytest.raises(ParquetryError) as caught:
        wh.maintain()
    one_line(caught.value, StorageError, told, "verify")
    assert wh.catalog.state().table("t").deltas == deltas
    assert not wh.catalog.garbage(wh.catalog.version(), wh.catalog.now() + 1)
