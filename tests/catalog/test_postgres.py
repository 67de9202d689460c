"""A PostgreSQL whose defaults are not ours, and clients that stop or vanish inside a commit: nobody waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from parquetry.catalog import Catalog, database
from parquetry.errors import CatalogError, CatalogNotWritable
from tests.catalog.building import create, ingest

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[2]

# Holds the clock inside a commit until it is stopped.
COMMIT = """
import sys, time
from parquetry import failpoints
from parquetry.catalog import Catalog, database
from tests.catalog.building import add
database._SESSION["idle_in_transaction_session_timeout"] = "1s"
catalog = Catalog.open(sys.argv[1])
table = catalog.state().table("sales")
def wait(name):
    if name == "commit.in_transaction":
        print("inside", flush=True)
        time.sleep(3)
failpoints.reach = wait
catalog.commit([add(table, "stopped")], kind="ingest")
"""


@pytest.fixture
def catalog(postgres_url: str) -> Iterator[Catalog]:
    made = Catalog.create(postgres_url)
    yield made
    made.close()


def settings(catalog: Catalog) -> dict[str, str]:
    with catalog._db.read() as conn:
        return {row.name: row.setting for row in conn.execute(sa.text("SELECT name, setting FROM pg_settings"))}


def test_every_connection_states_its_timeouts(catalog: Catalog) -> None:
    found = settings(catalog)
    assert found["lock_timeout"] == str(database.BUSY_SECONDS * 1000)
    assert found["idle_in_transaction_session_timeout"] == str(database.STOPPED_SECONDS * 1000)
    assert found["statement_timeout"] == str(database.STATEMENT_SECONDS * 1000)
    with catalog._db.read() as conn:  # their values say nothing over a Unix socket, but they are stated
        stated = conn.execute(sa.text("SELECT name FROM pg_settings WHERE source = 'session'")).scalars().all()
    assert {f"tcp_keepalives_{what}" for what in ("idle", "interval", "count")} | {"tcp_user_timeout"} <= set(stated)
    assert database.STOPPED_SECONDS < database.BUSY_SECONDS, "who waits outlasts whom it waits for"
    with catalog._db.engine.connect() as conn:
        told = conn.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
    for name in ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"):
        assert int(told[name]) > 0, "a server that vanished is noticed"


def test_a_url_may_say_otherwise(postgres_url: str) -> None:
    Catalog.create(postgres_url).close()
    given = postgres_url.replace("options=", "options=-clock_timeout%3D7s%20")
    catalog = Catalog.open(given)
    found = settings(catalog)
    assert found["lock_timeout"] == "7000"
    assert found["statement_timeout"] == str(database.STATEMENT_SECONDS * 1000)
    catalog.close()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_commits_work_whatever_isolation_the_server_defaults_to(postgres_url: str, level: str) -> None:
    stated = level.replace(" ", "%5C%20")
    url = postgres_url.replace("options=", f"options=-cdefault_transaction_isolation%3D{stated}%20")
    catalog = Catalog.create(url)
    with psycopg.connect(url.replace("+psycopg", "")) as plain:
        assert plain.execute("SHOW transaction_isolation").fetchone() == (level,), "the server's default is another one"
    table = create(catalog)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda i: ingest(catalog, table, f"label {i}"), range(40)))
    assert sorted(c.t for c in done) == list(range(1, 41))
    catalog.close()


def test_a_client_that_is_stopped_inside_its_commit_holds_nobody_up_for_long(
    catalog: Catalog, postgres_url: str
) -> None:
    table = create(catalog)
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", COMMIT, postgres_url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **paths}
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"inside\n"
        client.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        ingest(catalog, table, "waits")
        assert time.monotonic() - started < database.BUSY_SECONDS
        client.send_signal(signal.SIGCONT)
        _, said = client.communicate(timeout=60)
    assert client.returncode == 1
    assert b"ended the transaction of this process, which was stopped" in said
    assert {label.label for label in catalog.labels(table.table_id)} == {"waits"}


def test_a_lock_that_nobody_gives_back_is_an_error_in_the_end(
    catalog: Catalog, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog)
    monkeypatch.setitem(database._SESSION, "lock_timeout", "300ms")
    impatient = Catalog.open(postgres_url)
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with catalog._db.write() as conn:
            conn.execute(sa.text("SELECT * FROM parquetry_clock FOR UPDATE"))
            held.set()
            over.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    with pytest.raises(CatalogError, match="is busy"):
        ingest(impatient, table, "a")
    over.set()
    holder.join()
    ingest(impatient, table, "a")
    impatient.close()


def test_a_statement_that_takes_too_long_is_told(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Catalog.create(postgres_url).close()
    monkeypatch.setitem(database._SESSION, "statement_timeout", "50ms")
    catalog = Catalog.open(postgres_url)
    with pytest.raises(CatalogError, match="took longer than .* nothing was changed"), catalog._db.read() as conn:
        conn.execute(sa.text("SELECT pg_sleep(2)"))
    catalog.close()


def test_a_catalog_that_this_user_may_only_read_says_so(catalog: Catalog, postgres_url: str) -> None:
    table = create(catalog)
    ingest(catalog, table, "a")
    read_only = postgres_url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    reader = Catalog.open(read_only)
    assert reader.state() == catalog.state()
    with pytest.raises(CatalogNotWritable, match="may not be written"):
        ingest(reader, table, "b")
    with pytest.raises(CatalogNotWritable, match="may not be written"):
        reader.pin(reader.version(), "me", 60)
    reader.close()
