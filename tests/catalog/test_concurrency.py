"""Many threads and processes on one catalog, and processes that die in the middle of a commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, CommitConflict
from parquetry.failpoints import FAILPOINTS, VARIABLE, reach
from tests.catalog.building import compact, create, ingest

ROOT = Path(__file__).parents[2]

# Ingests labels FIRST…LAST-1 with four threads; every label is tried twice.
INGEST = """
import sys, uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from parquetry.catalog import Catalog
from tests.catalog.building import add
url, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
catalog = Catalog.open(url)
table = catalog.state().table("sales")
def ingest(number):
    edit = add(table, f"label {number}")
    edit = replace(edit, delta=replace(edit.delta, delta_id=uuid.uuid4().hex))
    return catalog.commit([edit], kind="ingest").repeated
with ThreadPoolExecutor(4) as pool:
    done = list(pool.map(ingest, [n for n in range(first, last) for _ in range(2)]))
assert sum(done) >= (last - first) // 2, done
"""


def start(url: str, first: int, last: int, **environment: str) -> subprocess.Popen[bytes]:
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", INGEST, url, str(first), str(last)]
    return subprocess.Popen(command, env={**os.environ, **paths, **environment})


def test_no_commit_of_two_processes_with_four_threads_each_is_lost(catalog: Catalog, url: str) -> None:
    table = create(catalog)
    # The ranges overlap: labels 20…39 are ingested by both, and by two threads of each.
    workers = [start(url, 0, 40), start(url, 20, 60)]
    assert [w.wait(60) for w in workers] == [0, 0]
    labels = catalog.labels(table.table_id)
    assert sorted(label.t for label in labels) == list(range(1, 61))
    assert {label.label for label in labels} == {f"label {n}" for n in range(60)}
    state = catalog.state()
    assert [(d.t_lo, d.t_hi) for d in state.table("sales").deltas] == [(t, t) for t in range(1, 61)]
    assert (state.clock, state.version) == (60, 61)


def test_readers_pin_what_vacuum_leaves(catalog: Catalog, url: str) -> None:
    """A reader that got its pin finds every delta of its version; one that came too late is told to try again."""
    table = create(catalog)
    pinned = 0

    def read(reader: int) -> int:
        mine, found = Catalog.open(url), 0
        for _ in range(10):
            state = mine.state()
            try:
                pin = mine.pin(state.version, f"reader {reader}", 30)
            except CatalogError:
                continue
            assert {d.delta_id for d in state.table("sales").deltas} <= mine.known_delta_ids()
            assert mine.state_at(state.version) == state
            mine.unpin(pin)
            found += 1
        mine.close()
        return found

    def churn() -> None:
        for i in range(15):
            ingest(catalog, table, f"label {i}")
            removed = catalog.commit([compact(catalog.state().table("sales").deltas, table)], kind="compact").version
            dead = catalog.garbage(removed, catalog.now() + 1)
            try:
                catalog.forget([d.delta_id for d in dead], removed)
            except CommitConflict:
                continue

    with ThreadPoolExecutor(4) as pool:
        writer = pool.submit(churn)
        pinned = sum(pool.map(read, range(3)))
        writer.result()
    assert pinned > 0


@pytest.mark.faults
@pytest.mark.parametrize("point", ["commit.in_transaction", "commit.done"])
def test_a_kill_during_a_commit_leaves_all_of_it_or_nothing(catalog: Catalog, url: str, point: str) -> None:
    table = create(catalog)
    assert start(url, 0, 4, **{VARIABLE: point}).wait(60) == -signal.SIGKILL
    labels = catalog.labels(table.table_id)
    state = catalog.state()
    assert len(labels) == len(state.table("sales").deltas) == state.clock == state.version - 1
    assert len(labels) >= 1 if point == "commit.done" else not labels
    assert start(url, 0, 4).wait(60) == 0
    assert [label.t for label in catalog.labels(table.table_id)] == [1, 2, 3, 4]


@pytest.mark.faults
def test_a_failpoint_may_wait_for_its_nth_time() -> None:
    code = "from parquetry.failpoints import reach; [print(i, flush=True) or reach('commit.done') for i in range(9)]"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), VARIABLE: "commit.done:3"}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert (killed.returncode, killed.stdout.split()) == (-signal.SIGKILL, [b"0", b"1", b"2"])


def test_a_failpoint_is_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(name and what for name, what in FAILPOINTS)
    reach("commit.done")
    monkeypatch.setenv(VARIABLE, "commit.doen")
    with pytest.raises(ValueError, match="unknown failpoint 'commit.doen'"):
        reach("commit.done")
