"""What a connection reads is pinned as long as it is read, whatever happens to its pin, and no longer."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, CatalogNotWritable, QueryError
from parquetry.query.planning import snapshots as snapshots_module
from parquetry.query.planning.snapshots import Snapshot, Snapshots
from tests.catalog.building import compact, create, ingest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    made = Catalog.create(f"sqlite:///{tmp_path / 'catalog.db'}")
    yield made
    made.close()


@pytest.fixture
def snapshots(catalog: Catalog) -> Iterator[Snapshots]:
    made = Snapshots(catalog)
    yield made
    made.close()


def expire(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pin ends, as if this process had been stopped for longer than it lasts."""
    later = snapshots_module._now() + 1000
    monkeypatch.setattr(snapshots_module, "_now", lambda: later)
    with catalog._db.write() as conn:
        conn.exec_driver_sql("UPDATE parquetry_pins SET expires_at = 0")
    assert catalog.oldest_pinned() is None


def vacuum(catalog: Catalog) -> int:
    time.sleep(0.002)
    return catalog.lift_horizon(catalog.now())


def test_after_an_expiry_new_queries_are_pinned_though_an_old_snapshot_is_held(
    catalog: Catalog, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog)
    ingest(catalog, table, "a")
    old = snapshots.take()
    ingest(catalog, table, "b")
    catalog.commit([compact(catalog.state().table("sales").deltas, table)], kind="compact")
    expire(catalog, monkeypatch)
    assert vacuum(catalog) > old.state.version
    new = snapshots.take()
    assert new.state.version == catalog.version()
    assert catalog.oldest_pinned() == new.state.version
    snapshots.move()
    ingest(catalog, table, "c")
    assert vacuum(catalog) == new.state.version, "it holds vacuum back"


def test_an_expired_pin_that_vacuum_has_not_passed_holds_its_version_again(
    catalog: Catalog, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(catalog)
    old = snapshots.take()
    expire(catalog, monkeypatch)
    ingest(catalog, table, "a")
    snapshots.take()
    assert catalog.oldest_pinned() == old.state.version


def test_versions_that_were_read_leave_nothing_behind(catalog: Catalog, snapshots: Snapshots) -> None:
    table = create(catalog)
    for i in range(20):
        ingest(catalog, table, f"label {i}")
        snapshots.take()
    snapshots.move()
    assert len(snapshots._in_use) == 0
    assert catalog.oldest_pinned() == catalog.version()


def test_a_finished_reader_may_read_again_until_vacuum_has_passed(catalog: Catalog, snapshots: Snapshots) -> None:
    table = create(catalog)
    released = Snapshot(snapshots.take().state)
    ingest(catalog, table, "a")
    again = snapshots.held(released)
    snapshots.move()
    assert catalog.oldest_pinned() == released.state.version
    del again
    snapshots.move()
    vacuum(catalog)
    with pytest.raises(QueryError, match="vacuumed meanwhile"):
        snapshots.held(released)


def test_a_snapshot_is_held_while_a_frame_lives(catalog: Catalog, snapshots: Snapshots) -> None:
    table = create(catalog)
    alive = [True]
    snapshots.hold_while(snapshots.take(), lambda: alive[0])
    before = catalog.version()
    ingest(catalog, table, "a")
    snapshots.move()
    assert catalog.oldest_pinned() == before
    alive.clear()
    alive.append(False)
    snapshots.move()
    assert catalog.oldest_pinned() == catalog.version()


def test_what_can_only_be_read_is_read_without_a_pin(
    catalog: Catalog, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(catalog)

    def refuse(*_: object) -> None:
        raise CatalogNotWritable("full")

    monkeypatch.setattr(catalog, "pin", refuse)
    assert snapshots.take().state == catalog.state()
    monkeypatch.setattr(catalog, "pin", lambda *_: (_ for _ in ()).throw(CatalogError("away")))
    with pytest.raises(CatalogError, match="away"):
        Snapshots(catalog).take()


def test_vacuum_names_who_holds_it_back(catalog: Catalog, snapshots: Snapshots) -> None:
    create(catalog)
    snapshots.take()
    snapshots.move()
    reader = catalog.oldest_reader()
    assert reader is not None
    assert (reader.holder.rpartition(":")[2], reader.version) == (str(os.getpid()), catalog.version())
    assert reader.since is not None
    assert abs(reader.since - time.time()) < 60
    assert f"process {os.getpid()} on " in str(reader)


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_forked_child_is_told_to_connect_itself(tmp_path: Path) -> None:
    ran = python(
        """
import os, sys, parquetry
from parquetry.errors import ParquetryError
wh = parquetry.connect(sys.argv[1])
wh.create_table("t", "k int", key=["k"])
assert wh.sql("SELECT count(*) AS n FROM t", executor="local").rows() == [{"n": 0}]
wh._engine.follower._none_runs.acquire()  # as another thread may hold it at the fork
child = os.fork()
if child == 0:
    for use in (lambda: wh.sql("SELECT 1 AS a"), wh.tables, lambda: wh.catalog.state()):
        try:
            use()
        except ParquetryError as e:
            print(e, flush=True)
    wh.close()
    os._exit(0)  # as multiprocessing ends its children
_, status = os.waitpid(child, 0)
wh._engine.follower._none_runs.release()
print(status, wh.sql("SELECT count(*) AS n FROM t", executor="local").rows())
wh.close()
""",
        str(tmp_path / "wh"),
    )
    assert ran.returncode == 0, ran.stderr
    *refused, last = ran.stdout.strip().splitlines()
    assert len(refused) == 3
    assert all("forked" in line and "call connect in the child" in line for line in refused)
    assert last == "0 [{'n': 0}]"


def test_a_connection_that_is_not_closed_ends_quietly_with_the_process(tmp_path: Path) -> None:
    ran = python(
        """
import sys, parquetry
wh = parquetry.connect(sys.argv[1])
wh.create_table("t", "k int, v int", key=["k"], model="upsert", settings={"compaction_width": 2})
for batch in range(3):
    wh.ingest("t", [{"k": k, "v": batch} for k in range(batch, 100)])
wh.maintain()
wh.sql("SELECT v FROM t WHERE k = 5", executor="local").rows()
result = wh.sql("SELECT count(*) AS n FROM t", executor="local")
print(result.rows())
""",
        str(tmp_path / "wh"),
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[{'n': 100}]\n", "")
    left = Catalog.open(f"sqlite:///{tmp_path / 'wh' / 'catalog.db'}")
    assert left.oldest_pinned() is None, "its pin is gone"
    assert len(left.queries(10)) == 2, "its queries are logged"
    left.close()


def test_connections_that_nobody_has_any_more_leave_no_threads_and_descriptors(tmp_path: Path) -> None:
    import parquetry

    others = set(threading.enumerate())  # of connections that other tests share
    parquetry.connect(tmp_path / "wh").create_table("t", "k int", key=["k"])

    def use() -> None:
        assert parquetry.connect(tmp_path / "wh").sql("SELECT count(*) AS n FROM t", executor="local").rows()

    def left() -> tuple[int, int]:
        end = time.monotonic() + 30
        while True:
            gc.collect()
            ours = [t for t in threading.enumerate() if t.name.startswith("parquetry") and t not in others]
            if not ours or time.monotonic() > end:
                return len(ours), len(os.listdir("/proc/self/fd"))
            time.sleep(0.05)

    use()
    _, before = left()
    for _ in range(5):
        use()
    threads, descriptors = left()
    assert threads == 0
    assert descriptors <= before + 2
