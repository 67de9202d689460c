"""The warehouse's folder: whatever its name, private where it has secrets, on the disk before it is used."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import parquetry
from parquetry.errors import WarehouseError
from parquetry.storage import durable
from parquetry.storage.store import Store

ODD_NAMES = [
    "a?b",
    "?",
    "100%",
    "a%41",
    "%2F..",
    "a#b",
    "k=5",
    "a*b[1]{c}?",
    "it's",
    'a "b"',
    "back\\slash",
    "ünï 日本",
    "a:b",
]


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_warehouse_is_in_the_folder_that_was_named_and_nowhere_else(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "here" / name / "warehouse"
    for _ in range(2):
        with parquetry.connect(folder) as wh:
            if not wh.tables():
                wh.create_table("t", "k int", key=["k"])
            assert [t["table"] for t in wh.tables()] == ["t"]
            assert wh.verify() == []
    made = {p for p in tmp_path.rglob("*") if p.is_file()}
    assert {p.parent for p in made} == {folder}
    assert folder / "catalog.db" in made


@pytest.mark.parametrize(
    "address",
    ["s3://bucket/wh", "s3a://bucket/wh", "hdfs:///wh", "gs://b/w", "abfss://c@a/w", "dbfs:/mnt/wh", "http://x/y",
     "file:///tmp/wh", "S3://bucket", "x-y.z+1://a"],
)  # fmt: skip
def test_an_address_is_refused_and_nothing_is_made(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for named in (address, Path(address)):
        for create in (True, False):
            with pytest.raises(WarehouseError, match="address|only folders of this machine"):
                parquetry.connect(named, create=create)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["", "  ", "a\0b", "line\nbreak", "not-utf8-\udc80"])
def test_a_path_that_names_nothing_is_refused(path: str) -> None:
    with pytest.raises(WarehouseError):
        parquetry.connect(path)


def test_a_folder_that_looks_like_an_address_can_be_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parquetry.connect("./s3:/bucket").close()
    assert (tmp_path / "s3:" / "bucket" / "parquetry.json").exists()


def test_what_holds_secrets_is_its_owners_alone(tmp_path: Path) -> None:
    with parquetry.connect(tmp_path / "wh") as wh:
        wh.create_table("t", "k int", key=["k"])
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "wh").iterdir() if p.is_file()}
    assert {"catalog.db", "catalog.db-wal", "parquetry.json"} <= set(modes)
    assert set(modes.values()) == {0o600}, modes


def test_a_catalog_elsewhere_is_its_owners_alone_too(tmp_path: Path) -> None:
    with parquetry.connect(tmp_path / "wh", catalog=f"sqlite:///{tmp_path / 'elsewhere.db'}") as wh:
        wh.create_table("t", "k int", key=["k"])
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.glob("elsewhere.db*")}
    assert {"elsewhere.db", "elsewhere.db-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}, modes


class Watched:
    """What is synced and renamed, in order, with the mode that a file had when it was renamed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, ...]] = []
        fsync, replace = os.fsync, os.replace

        def synced(descriptor: int) -> None:
            self.events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
            fsync(descriptor)

        def renamed(source: str | Path, target: str | Path) -> None:
            self.events.append(("rename", str(target), oct(stat.S_IMODE(os.stat(source).st_mode))))
            replace(source, target)

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "replace", renamed)


def test_the_description_is_synced_renamed_and_synced_again_and_never_readable_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    parquetry.connect(tmp_path / "wh").close()
    description = str(tmp_path / "wh" / "parquetry.json")
    at = watched.events.index(("rename", description, "0o600"))
    assert watched.events[at - 1] == ("sync", description.replace(".json", ".tmp"))
    assert watched.events[at + 1] == ("sync", str(tmp_path / "wh"))


def test_the_folder_above_every_new_folder_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    parquetry.connect(tmp_path / "a" / "b" / "wh").close()
    for above in ("", "a", "a/b", "a/b/wh"):
        assert ("sync", str(tmp_path / above).rstrip("/")) in watched.events
    watched.events.clear()
    Store(str(tmp_path / "data")).write("t1/d1/f", b"x")
    for above in ("", "data", "data/t1", "data/t1/d1"):
        assert ("sync", str(tmp_path / above).rstrip("/")) in watched.events


def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(NotADirectoryError):
        durable.make_folders(tmp_path / "f")
    with pytest.raises(NotADirectoryError):
        durable.make_folders(tmp_path / "f" / "g")
