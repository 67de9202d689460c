"""Commits and opening cost the same whatever the catalog's history, on SQLite and on PostgreSQL."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from benchmarks.scale._history import Shape, add_history, add_queries, advance, compact, ingest, made, refresh
from parquetry.catalog import Catalog

SHAPE = Shape(tables=3, views=2)
LIVE = ("clock", "meta", "pins")  # a row or a few, for ever; pins that have ended go with the next one
ACTS: dict[str, Callable[[Catalog, str], Any]] = {
    "open": lambda catalog, url: opened(url),
    "ingest": lambda catalog, url: ingest(catalog, "t0"),
    "refresh": lambda catalog, url: refresh(catalog, "v0"),
    "advance": lambda catalog, url: advance(catalog),
    "compact": lambda catalog, url: compact(catalog, "t0"),
    "pin": lambda catalog, url: catalog.unpin(catalog.pin(catalog.version(), "me", 60)),
    "label": lambda catalog, url: catalog.label(1, "batch"),
    "lag": lambda catalog, url: catalog.hidden_since(catalog.state().qt),
    "horizon": lambda catalog, url: catalog.lift_horizon(0.0),
}


def opened(url: str) -> None:
    again = Catalog.open(url)
    again.state()
    again.close()


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """All that is sent to any database."""
    seen: list[tuple[str, Any]] = []

    def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        seen.append((statement, parameters[0] if many and parameters else parameters))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    catalog = made(url, SHAPE)
    for table, _ in itertools.product(range(SHAPE.tables), range(3)):
        ingest(catalog, SHAPE.table(table))
    for view in range(SHAPE.views):
        refresh(catalog, SHAPE.view(view))
    advance(catalog)
    yield catalog
    catalog.close()


def grow(catalog: Catalog, commits: int) -> None:
    add_history(catalog, commits, until=1e9, every_s=1.0)
    add_queries(catalog, commits // 10, until=1e9, every_s=1.0)
    if not catalog._db.sqlite:
        with catalog._db.single() as conn:
            conn.exec_driver_sql("ANALYZE")


def prepare(catalog: Catalog, act: str) -> None:
    """There is something to do."""
    for _ in range(2):
        advance(catalog)
        for table in range(SHAPE.tables):
            ingest(catalog, SHAPE.table(table))
        for view in range(SHAPE.views if act != "refresh" else 0):
            refresh(catalog, SHAPE.view(view))
        if act == "refresh":
            break
    catalog.state()


def tidy(catalog: Catalog) -> None:
    for view in range(SHAPE.views):
        refresh(catalog, SHAPE.view(view))


@pytest.mark.parametrize("act", ACTS)
def test_no_statement_looks_through_history(catalog: Catalog, url: str, act: str) -> None:
    grow(catalog, 20_000)
    prepare(catalog, act)
    with statements() as seen:
        ACTS[act](catalog, url)
    assert seen
    for statement, parameters in seen:
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "INSERT", "WITH") and "pg_catalog" not in statement:
            check = _check_sqlite if catalog._db.sqlite else _check_postgres
            check(catalog, statement, parameters)


def _check_sqlite(catalog: Catalog, statement: str, parameters: Any) -> None:
    with catalog._db.engine.connect() as conn:
        for *_, step in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all():
            scanned = step.removeprefix("SCAN parquetry_").split()[0] if step.startswith("SCAN parquetry_") else None
            assert scanned is None or scanned in LIVE, (step, statement)


def _check_postgres(catalog: Catalog, statement: str, parameters: Any) -> None:
    """The rows that a statement looks at, whether it takes them or not."""
    with catalog._db.engine.connect() as conn:
        conn.exec_driver_sql("SET LOCAL enable_seqscan = off")  # a table with few rows is not worth an index to it
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        try:
            found = conn.exec_driver_sql(explained, parameters).scalar_one()
        except sa.exc.IntegrityError:
            return  # a row that is there since the statement was first run
        finally:
            conn.rollback()
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    assert _looked_at(plan) < 500, (statement, plan)


def _looked_at(plan: dict[str, Any]) -> float:
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    return float(plan["Actual Loops"] * own) + sum(_looked_at(p) for p in plan.get("Plans", ()))


@contextmanager
def steps_of_sqlite() -> Iterator[list[int]]:
    """Counts the steps of SQLite's machine, in tens, of all connections that are made meanwhile."""
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    def watch(dbapi: Any, _record: Any) -> None:
        dbapi.set_progress_handler(count, 10)

    sa.event.listen(sa.Pool, "connect", watch)
    try:
        yield steps
    finally:
        sa.event.remove(sa.Pool, "connect", watch)


def test_each_costs_as_many_steps_after_a_long_history_as_after_a_short_one(tmp_path: Any) -> None:
    found: dict[int, dict[str, int]] = {}
    for commits in (300, 30_000):
        url = f"sqlite:///{tmp_path / str(commits)}.db"
        with steps_of_sqlite() as steps:
            catalog = made(url, SHAPE)
            grow(catalog, commits)
            found[commits] = {}
            for name, act in ACTS.items():
                tidy(catalog)
                prepare(catalog, name)
                before = steps[0]
                act(catalog, url)
                found[commits][name] = steps[0] - before
            catalog.close()
    for name, short in found[300].items():
        assert found[30_000][name] <= 1.2 * short + 20, (name, found)
