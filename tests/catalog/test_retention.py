"""The catalog is bounded by its retention policy, and keeps what a reader, a repeated label or a person may need."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.scale._history import (
    Shape,
    add_history,
    add_queries,
    advance,
    compact,
    ingest,
    made,
    new_delta,
    refresh,
)
from parquetry.catalog import Catalog, QueryRow, retention
from parquetry.catalog import tables as sql
from parquetry.errors import SchemaError
from parquetry.model.retention import Retention
from parquetry.model.settings import Settings
from parquetry.model.state import AddDelta, ChangeSettings, PublishLayout
from tests.catalog import building

SHAPE = Shape(tables=3, views=2)
DAY = 24 * 3600
NONE = Retention(0, 0, DAY, 0, 0, 0)


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    catalog = made(url, SHAPE)
    yield catalog
    catalog.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_LEAST_PAUSE_S", 0.0)


def minute(catalog: Catalog) -> None:
    """What happens while one batch comes to each table."""
    for number in range(SHAPE.tables):
        ingest(catalog, SHAPE.table(number))
    for number in range(SHAPE.views):
        refresh(catalog, SHAPE.view(number))
    advance(catalog)
    for number in range(SHAPE.tables):
        compact(catalog, SHAPE.table(number))
    for number in range(SHAPE.views):
        compact(catalog, SHAPE.view(number))


def sizes(catalog: Catalog) -> dict[str, int]:
    with catalog._db.read() as conn:
        return {
            t.name.removeprefix("parquetry_"): conn.execute(sa.select(sa.func.count()).select_from(t)).scalar_one()
            for t in sql.metadata.sorted_tables
        }


def trim(catalog: Catalog, kept: Retention) -> retention.Trimmed:
    """As vacuum does, once the files are gone."""
    horizon = catalog.lift_horizon(catalog.now() - kept.grace_s)
    catalog.forget([d.delta_id for d in catalog.garbage(horizon)], horizon)
    return catalog.trim(kept, horizon)


def test_nothing_grows_with_time_alone(catalog: Catalog) -> None:
    now = time.time()
    catalog._db.now = lambda conn: now  # type: ignore[method-assign]
    kept = Retention(grace_s=2 * 60, history_s=5 * 60, labels_s=DAY, queries_s=10 * 60, queries_rows=20)
    seen = []
    for i in range(40):
        now += 60 if i % 2 else DAY / 10
        minute(catalog)
        changed = ChangeSettings(catalog.state().table("t0").table_id, Settings(max_query_deltas=2 + i % 5))
        catalog.commit([changed], kind="tune")
        catalog.acquire(f"attempt:lost {i}", "dead", 1)
        catalog.pin(catalog.version(), "dead", 1)
        catalog.log_queries([QueryRow.of(now, "SELECT 1", ["t0"], [], {}) for _ in range(5)])
        trim(catalog, kept)
        seen.append(sizes(catalog))
    largest = {name: max(s[name] for s in seen[:30]) for name in seen[0]}
    assert all(n <= largest[name] for s in seen[30:] for name, n in s.items()), (largest, seen[-1])
    assert seen[-1]["labels"] > SHAPE.tables * 10, "labels stay for a day here"
    assert seen[-1]["queries"] <= 20


def test_what_can_be_read_and_the_state_stay_as_they_are(catalog: Catalog, url: str) -> None:
    for _ in range(4):
        minute(catalog)
    pinned = catalog.state()
    catalog.pin(pinned.version, "reader", 60)
    for _ in range(3):
        minute(catalog)
    newest = catalog.state()
    time.sleep(0.01)
    trimmed = trim(catalog, NONE)
    assert trimmed.commits > 0
    assert trimmed.others > 0
    again = Catalog.open(url)
    assert again.state() == newest == catalog.state()
    assert again.state_at(pinned.version) == pinned
    again.close()
    minute(catalog)
    assert trim(catalog, NONE).commits == 0, "the reader still holds its version"


def test_commits_that_define_something_stay(catalog: Catalog) -> None:
    for _ in range(3):
        minute(catalog)
    before = {r.version: r for r in catalog.history()}
    time.sleep(0.01)
    trim(catalog, NONE)
    left = {r.version: r for r in catalog.history()}
    assert {r.kind for r in left.values()} >= {"create catalog", "create table", "create view"}
    assert all(before[v] == r for v, r in left.items()), "with all that they changed"
    horizon = max(before)
    assert {r.kind for v, r in left.items() if v < horizon - 1} == {"create catalog", "create table", "create view"}
    assert catalog.made_at().keys() == catalog.state().tables.keys()


def test_a_label_is_known_as_long_as_it_is_promised(catalog: Catalog) -> None:
    now = time.time()
    catalog._db.now = lambda conn: now  # type: ignore[method-assign]
    table = catalog.state().table("t2")

    def batch(label: str) -> bool:
        edit = AddDelta(table.table_id, label, "d", 10, new_delta(table))
        return catalog.commit([edit], kind="ingest").repeated

    for label in ("first", "second"):
        assert not batch(label)
        now += 10
    advance(catalog)
    kept = Retention(grace_s=0, history_s=0, labels_s=DAY)
    now += DAY - 60
    assert trim(catalog, kept).labels == 0
    assert batch("first")
    now += 120
    assert trim(catalog, kept).labels == 1
    assert not batch("first"), "forgotten, so it is a new batch"
    assert batch("second"), "the last one stays: it tells how far the table has come"
    with pytest.raises(SchemaError, match="labels_s"):
        Retention(labels_s=3600)


def test_labels_of_hidden_batches_stay(catalog: Catalog) -> None:
    now = time.time()
    catalog._db.now = lambda conn: now  # type: ignore[method-assign]
    for _ in range(3):
        ingest(catalog, "t2")
    since = now
    now += 100 * DAY
    trim(catalog, NONE)
    assert catalog.hidden_since(catalog.state().qt) == since


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        (Retention(), 3000),
        (Retention(queries_rows=1234), 1234),
        (Retention(queries_s=2 * 3600), 120),
        (Retention(queries_rows=0), 0),
        (Retention(queries_s=0), 0),
    ],
)
def test_the_log_is_bounded_by_age_and_rows(catalog: Catalog, kept: Retention, left: int) -> None:
    add_queries(catalog, 3000, until=catalog.now() - 30, every_s=60.0)
    assert catalog.trim(kept, 0).queries == 3000 - left
    assert len(catalog.queries(10_000)) == left
    assert catalog.trim(kept, 0).queries == 0


def test_the_log_is_bounded_by_bytes(catalog: Catalog) -> None:
    rows = [QueryRow.of(time.time(), "x" * (10_000 if i == 5 else 100), ["t"], [], {}) for i in range(10)]
    catalog.log_queries(rows)
    catalog.trim(Retention(queries_bytes=5_000), 0)
    assert [len(q["sql"]) for q in catalog.queries(100)] == [100] * 4


def test_layouts_stay_while_a_delta_is_written_in_them(catalog: Catalog) -> None:
    table = building.create(catalog, "sales")
    for cut in range(3):
        catalog.commit([PublishLayout(table.table_id, building.cut_at(cut))], kind="relayout")
        now = catalog.state().table("sales")
        delta = building.delta(table, layout=now.layout_id)
        if cut < 2:
            catalog.commit([AddDelta(table.table_id, f"label {cut}", "d", 1, delta)], kind="ingest")
    building.ingest(catalog, table, "more")
    advance(catalog)
    first, *_ = deltas = catalog.state().table("sales").deltas
    catalog.commit([building.compact(deltas[:1], table)], kind="compact")
    state = catalog.state()
    assert len(state.table("sales").layouts) == 1
    time.sleep(0.01)
    trim(catalog, NONE)
    fresh = Catalog.open(str(catalog._db._url.render_as_string(hide_password=False)))
    assert fresh.state() == state
    fresh.close()
    assert sizes(catalog)["layouts"] == 2, "the one of the replaced delta is gone"
    catalog.commit([PublishLayout(table.table_id, building.cut_at(9))], kind="relayout")
    assert catalog.state().table("sales").layout_id == state.table("sales").layout_id + 1


@contextmanager
def written_rows() -> Iterator[list[int]]:
    """The rows that each transaction changes."""
    per_transaction: list[int] = []

    def begin(conn: Any) -> None:
        per_transaction.append(0)

    def count(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if statement.split()[0] in ("DELETE", "UPDATE", "INSERT"):
            per_transaction[-1] += max(0, cursor.rowcount)

    sa.event.listen(sa.Engine, "begin", begin)
    sa.event.listen(sa.Engine, "after_cursor_execute", count)
    try:
        yield per_transaction
    finally:
        sa.event.remove(sa.Engine, "begin", begin)
        sa.event.remove(sa.Engine, "after_cursor_execute", count)


def garbage(catalog: Catalog, count: int) -> None:
    """Replaced deltas, straight into the tables."""
    minute(catalog)
    version = catalog.version()
    state = catalog.state().table("t0")
    rows = [new_delta(state, 1, 1) for _ in range(count)]
    names = ("delta_id", "table_id", "t_lo", "t_hi", "level", "rows", "bytes", "schema_id", "layout_id")
    with catalog._db.write() as conn:
        described = [{n: getattr(d, n) for n in names} | {"added_version": 1, "removed_version": version} for d in rows]
        conn.execute(sql.deltas.insert(), described)
        listed = [
            {"delta_id": d.delta_id, "position": i, "path": f.path, "bytes": 1, "checksum": "c", "rows": 1}
            for d in rows
            for i, f in enumerate((d.index, *d.files), start=-1)
        ]
        conn.execute(sql.files.insert(), listed)


def test_no_transaction_of_vacuum_or_a_trim_is_long(catalog: Catalog) -> None:
    garbage(catalog, 5000)
    add_history(catalog, 10_000, until=catalog.now() - 60 * DAY, every_s=1.0)
    add_queries(catalog, 5000, until=catalog.now() - 60 * DAY, every_s=1.0)
    advance(catalog)
    time.sleep(0.01)
    with written_rows() as rows:
        trim(catalog, NONE)
    assert sum(rows) > 35_000
    assert max(rows) <= retention.BATCH_ROWS + 10


def test_a_writer_gets_its_turn_while_rows_are_forgotten(
    catalog: Catalog, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process's writer waits for its turn as this one does: it has no place in the queue of threads."""
    monkeypatch.setattr(retention, "_LEAST_PAUSE_S", 0.05)
    garbage(catalog, 6000)
    other = Catalog.open(url)
    waited: list[float] = []
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            started = time.monotonic()
            ingest(other, "t2")
            waited.append(time.monotonic() - started)

    time.sleep(0.01)
    writer = threading.Thread(target=write)
    writer.start()
    horizon = catalog.lift_horizon(catalog.now())
    catalog.forget([d.delta_id for d in catalog.garbage(horizon)], horizon)
    over.set()
    writer.join()
    other.close()
    assert len(waited) >= 5, "it wrote all the while"
    assert catalog.garbage(horizon) == []


def test_the_policy_is_kept_with_the_catalog(catalog: Catalog, url: str) -> None:
    assert catalog.retention() == Retention()
    catalog.set_retention(catalog.retention().changed({"history_s": 60}))
    again = Catalog.open(url)
    assert again.retention() == Retention(history_s=60)
    again.close()
    with pytest.raises(SchemaError, match="unknown retention setting 'nope'"):
        Retention().changed({"nope": 1})
    with pytest.raises(SchemaError, match="history_s"):
        Retention(history_s=-1)
