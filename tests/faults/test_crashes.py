"""Killed at every named point and reopened: no row is lost or doubled, and trying again completes.

Every case starts from a copy of one warehouse, kills a process that works on it, and then checks the same promises.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import parquetry
from parquetry.catalog import tables as sql
from parquetry.catalog.leases import ATTEMPT
from parquetry.failpoints import FAILPOINTS
from parquetry.warehouse import Warehouse
from tests.faults.driver import LABEL, LAYOUT, batch, die
from tests.postgres import postgres  # noqa: F401  fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.faults

# (operation, table, failpoint); the number after a colon says which time it is reached.
CASES = [
    ("ingest", "upserted", "commit.in_transaction"),
    ("ingest", "upserted", "commit.done"),
    ("ingest", "upserted", "ingest.start"),
    ("ingest", "upserted", "write.files"),
    ("ingest", "upserted", "write.index"),
    ("ingest", "upserted", "ingest.before_commit"),
    ("ingest", "upserted", "ingest.committed"),
    ("ingest", "appended", "commit.in_transaction"),
    ("ingest", "appended", "commit.done"),
    ("ingest", "appended", "ingest.before_commit"),
    # The first commit of maintain publishes QTs of tables, the second takes a delta into a view.
    ("maintain", "", "commit.in_transaction:1"),
    ("maintain", "", "commit.done:1"),
    ("maintain", "", "commit.in_transaction:2"),
    ("maintain", "", "commit.done:2"),
    ("maintain", "", "compact.start"),
    ("maintain", "", "write.files"),
    ("maintain", "", "write.index"),
    ("maintain", "", "compact.before_commit"),
    ("maintain", "", "compact.before_commit:2"),
    ("maintain", "", "compact.committed"),
    ("maintain", "", "view.start"),
    ("maintain", "", "view.before_commit"),
    ("maintain", "", "view.before_commit:2"),
    ("maintain", "", "view.committed"),
    ("relayout", "appended", "relayout.before_commit"),
    ("relayout", "upserted", "commit.in_transaction"),
    ("relayout", "appended", "commit.done"),
    ("vacuum", "", "vacuum.start"),
    ("vacuum", "", "vacuum.files"),
    ("vacuum", "", "vacuum.files:2"),
    ("vacuum", "", "vacuum.rows"),
    ("vacuum", "", "vacuum.orphans"),
]
COMMITTED = {"commit.done", "ingest.committed"}
TABLES = ("appended", "upserted")
VIEWS = {
    "by_key": "SELECT k, sum(v) AS v, count(*) AS n FROM appended WHERE k < 900 GROUP BY k",
    "by_text": "SELECT s, max(v) AS v, count(*) AS n FROM upserted GROUP BY s",
}


def test_every_failpoint_has_a_case() -> None:
    tried = {failpoint.partition(":")[0] for _, _, failpoint in CASES}
    assert tried == {name for name, _ in FAILPOINTS}


def build(folder: Path, spark: SparkSession, catalog: str | None = None, batches: int = 4) -> None:
    """Two tables with two visible and two hidden batches each, ready to be compacted."""
    with parquetry.connect(folder, catalog=catalog, spark=spark) as wh:
        for table in TABLES:
            model = "append" if table == "appended" else "upsert"
            # At most two deltas per query, so that every maintain has something to compact.
            small = {"max_query_deltas": 2, "compaction_width": 2, "row_group_rows": 128}
            wh.create_table(table, "k int, s string, v bigint", key=["k"], model=model, settings=small)
        for name, definition in VIEWS.items():
            wh.create_view(name, definition, settings={"max_query_deltas": 2, "compaction_width": 2})
        for number in range(batches):
            for table in TABLES:
                wh.ingest(table, batch(table, number), label=f"batch {number}")
            if number == 1:
                wh.maintain()


@pytest.fixture(scope="module")
def template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "wh"
    build(folder, spark)
    return folder


@pytest.fixture(scope="module")
def template_with_garbage(template: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("garbage") / "wh"
    shutil.copytree(template, folder)
    with parquetry.connect(folder, spark=spark) as wh:
        wh.maintain()
        assert wh.catalog.garbage(wh.catalog.version(), wh.catalog.now()), "compaction should have replaced deltas"
        wh.store.write("1/ffffffffffffffffffffffffffffffff/part-lost.parquet", b"what a dead attempt left")
    return folder


WRITING = [c for c in CASES if c[0] != "vacuum"]


@pytest.mark.parametrize(("operation", "table", "failpoint"), WRITING, ids=lambda value: str(value) or "all")
def test_killed_while_writing(
    operation: str, table: str, failpoint: str, template: Path, tmp_path: Path, spark: SparkSession
) -> None:
    folder = Path(shutil.copytree(template, tmp_path / "wh"))
    die(folder, operation, table, failpoint, spark if operation == "relayout" else None)
    check_survival(folder, spark, operation, table, failpoint)


@pytest.mark.parametrize("number", range(3))
def test_killed_while_spark_writes(
    number: int, machine_seed: int, template: Path, tmp_path: Path, spark: SparkSession
) -> None:
    """Of the same cases some, drawn by --machine-seed: every write is a Spark job."""
    operation, table, failpoint = random.Random(machine_seed).sample(WRITING, 3)[number]
    folder = Path(shutil.copytree(template, tmp_path / "wh"))
    with parquetry.connect(folder, create=False, spark=spark) as wh:
        for name in (*TABLES, *VIEWS):
            wh.change_settings(name, in_process_bytes=0)
    die(folder, operation, table, failpoint, spark)
    check_survival(folder, spark, operation, table, failpoint)


def test_killed_together_with_its_own_spark(template: Path, tmp_path: Path, spark: SparkSession) -> None:
    folder = Path(shutil.copytree(template, tmp_path / "wh"))
    with parquetry.connect(folder, create=False, spark=spark) as wh:
        wh.change_settings("upserted", in_process_bytes=0)
    die(folder, "ingest", "upserted", "ingest.before_commit", None)
    check_survival(folder, spark, "ingest", "upserted", "ingest.before_commit")


@pytest.mark.postgres
@pytest.mark.parametrize("failpoint", ["commit.in_transaction", "commit.done"])
def test_killed_while_committing_to_postgres(
    failpoint: str,
    postgres: Callable[[], str],  # noqa: F811
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    build(tmp_path / "wh", spark, catalog=postgres(), batches=2)
    die(tmp_path / "wh", "ingest", "upserted", failpoint, None)
    check_survival(tmp_path / "wh", spark, "ingest", "upserted", failpoint, batches=2)


@pytest.mark.parametrize("failpoint", [c[2] for c in CASES if c[0] == "vacuum"])
def test_killed_while_vacuuming(
    failpoint: str, template_with_garbage: Path, tmp_path: Path, spark: SparkSession
) -> None:
    folder = Path(shutil.copytree(template_with_garbage, tmp_path / "wh"))
    die(folder, "vacuum", "", failpoint, None)
    with parquetry.connect(folder, create=False, spark=spark) as wh:
        check_content(wh, batches=4)
        wh.vacuum(grace_s=0)
        assert stored(wh) == published(wh)
        assert not wh.catalog.garbage(wh.catalog.version(), wh.catalog.now() + 1)
        check_content(wh, batches=4)


def test_a_dead_attempt_is_kept_while_its_lease_lives_and_removed_after(
    template: Path, tmp_path: Path, spark: SparkSession
) -> None:
    folder = Path(shutil.copytree(template, tmp_path / "wh"))
    die(folder, "ingest", "appended", "write.index", None)
    with parquetry.connect(folder, create=False, spark=spark) as wh:
        known = wh.catalog.known_delta_ids()
        orphans = {path for path in stored(wh) if path.split("/")[1] not in known}
        assert len(orphans) == 2, "a data file and its index"
        assert wh.catalog.live_resources(ATTEMPT)
        assert wh.vacuum(grace_s=0).orphans == 0
        end_leases(wh)
        assert wh.vacuum().orphans == 0, "the grace period is a day"
        assert wh.vacuum(grace_s=0, dry_run=True).orphans == len(orphans)
        assert wh.vacuum(grace_s=0).orphans == len(orphans)
        assert stored(wh) == published(wh)


def check_survival(
    folder: Path, spark: SparkSession, operation: str, table: str, failpoint: str, batches: int = 4
) -> None:
    point = failpoint.partition(":")[0]
    with parquetry.connect(folder, create=False, spark=spark) as wh:
        crashed = [table] if operation == "ingest" and point in COMMITTED else []
        check_content(wh, batches, crashed)
        if operation == "ingest":
            again = wh.ingest(table, batch(table, 9), label=LABEL)
            assert again.repeated == (point in COMMITTED)
            crashed = [table]
            check_content(wh, batches, crashed)
        wh.maintain()  # the dead one's lease may still keep it from compacting, which is no error
        end_leases(wh)
        if operation == "relayout":
            wh.relayout(table, "kdtree", options=LAYOUT)
        wh.maintain()
        assert wh.freshness()["qt"] == wh.catalog.state().clock
        check_content(wh, batches, crashed)
        wh.vacuum(grace_s=0)
        assert stored(wh) == published(wh)
        check_content(wh, batches, crashed)


def check_content(wh: Warehouse, batches: int, crashed: list[str] | None = None) -> None:
    """All files are as the catalog says, and a query sees exactly the batches committed up to the QT."""
    assert wh.verify() == []
    state = wh.catalog.state()
    for table in TABLES:
        labels = {f"batch {n}": n for n in range(batches)} | ({LABEL: 9} if table in (crashed or ()) else {})
        known = wh.catalog.labels(state.table(table).table_id)
        assert [label.label for label in known] == list(labels)
        visible = [labels[label.label] for label in known if label.t <= state.qt]
        found = wh.sql(f"SELECT k, s, v FROM {table}", executor="local").rows()
        assert counted(found) == expected(table, visible)
    for view, definition in VIEWS.items():
        found = wh.sql(f"SELECT * FROM {view}", executor="local").rows()
        assert counted(found) == counted(wh.sql(definition, executor="local", off=["views"]).rows())


def expected(table: str, numbers: list[int]) -> Counter[Any]:
    rows = [row for n in numbers for row in batch(table, n).to_pylist()]
    return counted({r["k"]: r for r in rows}.values() if table == "upserted" else rows)


def counted(rows: Any) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in rows)


def stored(wh: Warehouse) -> set[str]:
    return {path for path, *_ in wh.store.list()}


def published(wh: Warehouse) -> set[str]:
    deltas = [d for t in wh.catalog.state().tables.values() for d in t.deltas]
    return {f.path for d in deltas for f in (*d.files, d.index)}


def end_leases(wh: Warehouse) -> None:
    """As if two minutes had passed since the process died."""
    with wh.catalog._db.write() as conn:
        for table in (sql.leases, sql.pins):
            conn.execute(table.update().values(expires_at=sa.literal(0.0)))
