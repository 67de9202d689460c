"""Catalogs as years of commits leave them: rows of history written in bulk, and the commits of a minute."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import sqlalchemy as sa

from parquetry.catalog import Catalog
from parquetry.catalog import tables as sql
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import AddDelta, AddViewDelta, AdvanceQT, CreateTable, Edit, ReplaceDeltas, TableState
from parquetry.model.view import ViewColumn, ViewSource, ViewSpec

SCHEMA = TableSchema((Column("id", "bigint", False), Column("price", "decimal(15,2)")), ("id",))
VIEW_SCHEMA = TableSchema((Column("id", "bigint"), Column("n", "bigint")), ("id",), "aggregate", {"n": "sum"})
_numbers = itertools.count()


@dataclass(frozen=True)
class Shape:
    """How many tables and views a warehouse has."""

    tables: int = 50
    views: int = 20

    def table(self, number: int) -> str:
        return f"t{number % self.tables}"

    def view(self, number: int) -> str:
        return f"v{number % self.views}"


def made(url: str, shape: Shape) -> Catalog:
    """A new catalog with tables and views that hold nothing."""
    catalog = Catalog.create(url)
    catalog.commit([CreateTable(shape.table(i), SCHEMA, Settings()) for i in range(shape.tables)], kind="create table")
    state = catalog.state()
    columns = (ViewColumn("id", "bigint", "group", "id"), ViewColumn("n", "bigint", "count", "*"))
    for i in range(shape.views):
        table = state.table(shape.table(i))
        text = f"SELECT id, count(*) AS n FROM {table.name} GROUP BY id"
        spec = ViewSpec(text, (ViewSource(table.table_id, table.name),), columns, "", "merge")
        catalog.commit([CreateTable(shape.view(i), VIEW_SCHEMA, Settings(), spec)], kind="create view")
    return catalog


def new_delta(table: TableState, t_lo: int = 0, t_hi: int = 0) -> Delta:
    number = f"{table.table_id}-{next(_numbers)}"
    index = StoredFile(f"data/{table.table_id}/{number}/index.pqx", 100, "c0")
    part = StoredFile(f"data/{table.table_id}/{number}/part-0.parquet", 1000, "c1", 10)
    return Delta(number, table.table_id, t_lo, t_hi, 0, 10, 1000, table.schema_id, 0, index, (part,))


def ingest(catalog: Catalog, table: str) -> None:
    """One batch under the lease of its attempt."""
    state = catalog.state().table(table)
    delta = new_delta(state)
    lease = catalog.acquire(f"attempt:{delta.delta_id}", "bench", 60)
    assert lease is not None
    batch = AddDelta(state.table_id, f"batch {delta.delta_id}", "d", 10, delta)
    catalog.commit([batch], kind="ingest", lease=lease, detail={"table": table})
    catalog.release(lease)


def refresh(catalog: Catalog, view: str) -> None:
    """The next delta of a view, up to the newest batch of its table."""
    state = catalog.state()
    table = state.table(view)
    assert table.view is not None
    built, source = table.view.built, table.view.spec.sources[0].table_id
    waiting = [d for t in state.tables.values() if t.table_id == source for d in t.deltas if d.t_lo > built]
    if waiting:
        until = waiting[-1].t_hi
        edit = AddViewDelta(table.table_id, built, until, new_delta(table, waiting[0].t_lo, until))
        catalog.commit([edit], kind="refresh view", detail={"view": view})


def advance(catalog: Catalog) -> None:
    """The QT of the database and of all tables, to what there is."""
    state = catalog.state()
    tables = {t.table_id: state.clock for t in state.tables.values()}
    catalog.commit([AdvanceQT(tables, state.clock)], kind="advance", detail={"qt": state.clock})


def compact(catalog: Catalog, table: str) -> None:
    """All visible deltas of a table become one."""
    state = catalog.state()
    found = state.table(table)
    old = [d for d in found.deltas if d.t_hi <= state.qt]
    if len(old) > 1:
        new = replace(new_delta(found, old[0].t_lo, old[-1].t_hi), level=1)
        edits: list[Edit] = [ReplaceDeltas(found.table_id, tuple(d.delta_id for d in old), new)]
        catalog.commit(edits, kind="compact", detail={"table": table})


def add_history(catalog: Catalog, commits: int, *, until: float, every_s: float, live: bool = True) -> None:
    """As many commits as they would have been made up to a time, one ``every_s`` seconds: every second one a batch, the
    others by turns refreshes, advances and compactions whose deltas are vacuumed already.

    Written straight to the tables. ``live`` makes the newest of them the present: everything is visible.
    """
    db = catalog._db
    state = catalog.state()
    tables = sorted(t.table_id for t in state.tables.values() if t.view is None)
    views = sorted(t.table_id for t in state.tables.values() if t.view is not None) or tables
    values = {
        "commits": commits,
        "v": state.version,
        "t": state.clock,
        "start": until - commits * every_s,
        "every": every_s,
        "tables": len(tables),
        "first_table": tables[0],
        "views": len(views),
        "first_view": views[0],
    }
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :commits) "
    table, view = "(:first_table + (i / 2) % :tables)", "(:first_view + (i / 6) % :views)"
    json = "NULL" if db.sqlite else "CAST(NULL AS json)"
    told = """'{"label": "batch of a minute", "t": 1, "delta_id": "0123456789abcdef0123456789abcdef", "rows_in": 1}'"""
    detail = told if db.sqlite else f"CAST({told} AS json)"
    kind = (
        "CASE WHEN i % 2 = 0 THEN 'ingest' WHEN (i / 2) % 3 = 0 THEN 'refresh view' "
        "WHEN (i / 2) % 3 = 1 THEN 'advance' ELSE 'compact' END"
    )
    moved, refreshed = "i % 2 = 1 AND (i / 2) % 3 = 1", "i % 2 = 1 AND (i / 2) % 3 = 0"
    rows = {
        "versions (version, at, t, kind, detail)": (
            f"SELECT :v + i, :start + i * :every, :t + i / 2, {kind}, {json} FROM n"
        ),
        "changes (version, table_id, edit, detail)": f"SELECT :v + i, {table}, {kind}, {detail} FROM n",
        "labels (table_id, label, t, digest, rows_in, version, at)": (
            f"SELECT {table}, 'batch of a minute ' || (:t + i / 2), :t + i / 2, '0123456789abcdef', 10, :v + i, "
            ":start + i * :every FROM n WHERE i % 2 = 0"
        ),
        "queryable (table_id, qt, added_version, removed_version)": (
            f"SELECT 0, :t + i / 2, :v + i, :v + i + 6 FROM n WHERE {moved} AND i + 6 <= :commits "
            f"UNION ALL SELECT {table}, :t + i / 2, :v + i, :v + i + 6 FROM n WHERE {moved} AND i + 6 <= :commits"
        ),
        "built (table_id, until, added_version, removed_version)": (
            f"SELECT {view}, :t + i / 2, :v + i, :v + i + 6 FROM n WHERE {refreshed} AND i + 6 <= :commits"
        ),
    }
    with db.write(durable=False) as conn:
        db.take_time(conn)
        for into, select in rows.items():
            name = f"parquetry_{into}"
            conn.execute(sa.text(f"INSERT INTO {name} {numbers}{select}"), values)
        if live:
            end = {"version": state.version + commits, "t": state.clock + commits // 2}
            conn.execute(sql.clock.update().values(**end, visible=end["version"]))
            q, b = sql.queryable, sql.built
            conn.execute(
                q.update().where(q.c.removed_version.is_(None)).values(qt=end["t"], added_version=end["version"])
            )
            built = b.update().where(b.c.removed_version.is_(None))
            conn.execute(built.values(until=end["t"], added_version=end["version"]))


def add_queries(catalog: Catalog, count: int, *, until: float, every_s: float) -> None:
    """So many rows of the query log, of about 500 bytes each."""
    db = catalog._db
    stats = '\'{"executor": "local", "qt": 17, "view": null, "deltas": 3, "blocks_total": 12, "blocks_read": 2}\''
    shape = '\'[{"table": "t1", "columns": ["id", "price"], "filters": [["id", "=", 17]]}]\''
    cast = "{}" if db.sqlite else "CAST({} AS json)"
    text = (
        "INSERT INTO parquetry_queries (at, sql, tables, executor, stats, shape) "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count) "
        "SELECT :start + i * :every, 'SELECT sum(price) FROM t1 WHERE id BETWEEN 17 AND 4711 AND price > ' || i, "
        f"""'["t1"]', 'local', {cast.format(stats)}, {cast.format(shape)} FROM n"""
    )
    with db.write(durable=False) as conn:
        db.take_time(conn)
        conn.execute(sa.text(text), {"count": count, "start": until - count * every_s, "every": every_s})
