"""Leases of processes that are dead end at once, and the end of a lease never undoes what was done under it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from parquetry.catalog import Catalog
from parquetry.catalog import tables as sql
from parquetry.catalog.leases import acquire
from parquetry.catalog.processes import known_dead, this_process
from parquetry.errors import CatalogError, LeaseLost
from tests.catalog.building import add, create

ROOT = Path(__file__).parents[2]
HOLDS = """
import sys, time
from parquetry.catalog import Catalog
catalog = Catalog.open(sys.argv[1])
assert catalog.acquire("rewrite:1", "the other", 3600) is not None
assert catalog.acquire("attempt:x", "the other", 3600) is not None
print("held", flush=True)
time.sleep(600)
"""

if not this_process():
    pytest.skip("this system tells too little of its processes", allow_module_level=True)


@pytest.fixture
def other(catalog: Catalog, url: str) -> subprocess.Popen[str]:
    """Another process, which holds two leases for an hour."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", HOLDS, url]
    started = subprocess.Popen(command, env={**os.environ, **paths}, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "held\n"
    return started


def test_a_lease_ends_with_its_process(catalog: Catalog, other: subprocess.Popen[str]) -> None:
    assert catalog.acquire("rewrite:1", "me", 60) is None
    assert catalog.at_work("rewrite:") == {"rewrite:1": "the other"}
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # not even its parent has to know
    assert catalog.at_work("rewrite:") == {}
    lease = catalog.acquire("rewrite:1", "me", 60)
    assert lease is not None
    assert lease.token == 2, "what the dead one might still send is fenced off"
    other.wait()
    assert catalog.at_work("rewrite:") == {"rewrite:1": "me"}


def test_a_process_that_is_only_stopped_keeps_its_lease(catalog: Catalog, other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGSTOP)
    assert catalog.acquire("rewrite:1", "me", 60) is None
    other.kill()
    other.wait()


def test_files_of_a_dead_process_are_kept_as_long_as_its_lease_lasts(
    catalog: Catalog, other: subprocess.Popen[str]
) -> None:
    """On a cluster its tasks may still be writing."""
    other.kill()
    other.wait()
    assert catalog.live_resources("attempt:") == {"attempt:x"}
    assert catalog.at_work("attempt:") == {}


@pytest.mark.parametrize("part", range(3))
def test_a_process_of_another_machine_may_well_live(catalog: Catalog, part: int) -> None:
    name = this_process().split("/")
    assert known_dead("/".join([*name[:4], "1"])), "the same number, given to another process before"
    name[part] += "x"
    holder = f"the other @ {'/'.join([*name[:4], '1'])}"
    with catalog._db.write() as conn:
        row = {"resource": "rewrite:1", "holder": holder, "token": 1, "expires_at": 1e12}
        conn.execute(sql.leases.insert().values(row))
    assert catalog.acquire("rewrite:1", "me", 60) is None


def test_a_lease_of_an_older_release_lasts_its_time(catalog: Catalog) -> None:
    with catalog._db.write() as conn:
        row = {"resource": "rewrite:1", "holder": "host:1:2", "token": 1, "expires_at": 1e12}
        conn.execute(sql.leases.insert().values(row))
    assert catalog.acquire("rewrite:1", "me", 60) is None
    assert catalog.at_work("rewrite:") == {"rewrite:1": "host:1:2"}


def test_work_that_is_committed_does_not_fail_when_its_lease_cannot_be_released(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise CatalogError("the catalog's database cannot be reached")

    table = create(catalog)
    lease = acquire(catalog._db, "work", "me", 60)
    assert lease is not None
    monkeypatch.setattr("parquetry.catalog.leases.release", away)
    with catalog.keep(lease, 60) as kept:
        catalog.commit([add(table, "a")], kind="ingest", lease=kept.lease)
    assert catalog.label(table.table_id, "a") is not None
    with pytest.raises(LeaseLost), catalog.keep(lease, 60):
        raise LeaseLost("what fails inside is told")
    with catalog._db.read() as conn:
        assert conn.execute(sa.select(sql.leases.c.resource)).scalars().all() == ["work"], "it ends by itself"
