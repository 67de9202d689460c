"""A warehouse with tables and views filled without a JVM: the writer's task runs in this process."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa

from parquetry.model.delta import Delta, StoredFile
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import AddDelta, AddViewDelta, AdvanceQT, CreateTable, TableState
from parquetry.model.types import type_name
from parquetry.model.view import ROWS, ViewSpec
from parquetry.storage.delta_writer import INDEX_NAME, delta_directory, new_delta_id
from parquetry.storage.index import build_index
from parquetry.storage.store import checksum
from parquetry.storage.writer import RunWriter
from parquetry.views.define import read_definition
from parquetry.warehouse import Warehouse


def write(wh: Warehouse, t: TableState, rows: pa.Table, times: tuple[int, int] = (0, 0)) -> Delta:
    """``rows`` as one delta of ``t``, sorted here."""
    fitted = rows.select(t.schema.names).cast(pa.schema([(c.name, c.arrow) for c in t.schema.columns]))
    ordered = fitted.sort_by([(k, "ascending") for k in t.schema.key])
    delta_id, order = new_delta_id(), pa.array(range(rows.num_rows), pa.int64())
    batches = (ordered.append_column("__order", order) if t.schema.keyed else ordered).to_batches()
    task = RunWriter(wh.store, delta_directory(t.table_id, delta_id), t.schema, t.settings, None, 0, 0)
    (made,) = [b.to_pylist()[0] for b in task(iter(batches))]
    index = build_index(pickle.loads(made["groups"]), t.schema, t.settings.leaf_capacity, t.settings.inner_capacity)
    path = f"{delta_directory(t.table_id, delta_id)}/{INDEX_NAME}"
    wh.store.write(path, index)
    file = StoredFile(made["path"], made["bytes"], made["checksum"], made["rows"])
    stored = StoredFile(path, len(index), checksum(index))
    size = made["rows"], made["bytes"]
    return Delta(delta_id, t.table_id, *times, 0, *size, t.schema_id, t.layout_id, stored, (file,))


def ingest(wh: Warehouse, table: str, rows: pa.Table, label: str) -> None:
    t = wh.catalog.state().table(table)
    wh.catalog.commit([AddDelta(t.table_id, label, "", rows.num_rows, write(wh, t, rows))], kind="ingest")


def create_view(wh: Warehouse, name: str, sql: str, how: str = "merge") -> None:
    """A view over an append table whose query the local executor can run, which tells its types.

    ``how`` says what it stores; over an append table all three are right.
    """
    definition = read_definition(sql, wh.catalog.state())
    types = wh.sql(sql, executor="local", off=["views"]).arrow().schema.types
    columns = tuple(replace(c, type=type_name(t)) for c, t in zip(definition.columns, types, strict=True))
    spec = ViewSpec(sql, definition.sources, columns, definition.where, how)
    text = stored_query(spec, definition.tables[0].name)
    made = wh.sql(text, executor="local", off=["views"]).arrow().schema
    values = {s: c.function if c.function in ("min", "max") else "sum" for c in spec.aggregates for s in spec.stored(c)}
    values |= {ROWS: "sum"} if spec.hides_rows else {}
    stored = tuple(Column(f.name, type_name(f.type)) for f in made)
    model, merges = ("upsert", {}) if how == "replace" else ("aggregate", values)
    schema = TableSchema(stored, definition.key, model, merges, null_keys=True)
    wh.catalog.commit([CreateTable(name, schema, Settings(), spec)], kind="create view")


def stored_query(spec: ViewSpec, table: str, part: str = "") -> str:
    """The query whose answer is what the view stores, of all rows or of those that satisfy ``part``."""
    listed = [f"{c.argument} AS {c.name}" for c in spec.groups]
    for c in spec.aggregates:
        stored = spec.stored(c)
        if c.function == "avg":
            summed = f"CAST({c.argument} AS DOUBLE)" if c.type == "double" else c.argument
            listed += [f"sum({summed}) AS {stored[0]}", f"count({c.argument}) AS {stored[1]}"]
        else:
            listed.append(f"{c.function}({c.argument}) AS {stored[0]}")
            listed += [f"count({c.argument}) AS {s}" for s in stored[1:]]
    if spec.hides_rows:
        listed.append(f"count(*) AS {ROWS}")
    conditions = " AND ".join(c for c in (spec.where, part) if c)
    where = f" WHERE {conditions}" if conditions else ""
    return f"SELECT {', '.join(listed)} FROM {table}{where} GROUP BY {', '.join(c.argument for c in spec.groups)}"


def publish(wh: Warehouse) -> None:
    """Moves the QT to the clock. What views lack is aggregated here, in two deltas."""
    state = wh.catalog.state()
    qts = {t.table_id: state.clock for t in state.tables.values()}
    wh.catalog.commit([AdvanceQT(qts, state.clock)], kind="advance")
    for t in wh.catalog.state().tables.values():
        if t.view is None or t.view.built == state.clock:
            continue
        (table,) = (s.name for s in state.tables.values() if s.table_id == t.view.spec.sources[0].table_id)
        steps = [(t.view.built, state.clock, "")]
        if state.clock - t.view.built > 1:
            halves = (
                ("", "") if t.view.spec.how == "replace" else ("k < 10", "k >= 10")
            )  # what is replaced may come again
            steps = [(t.view.built, state.clock - 1, halves[0]), (state.clock - 1, state.clock, halves[1])]
        for built, until, part in steps:
            rows = wh.sql(stored_query(t.view.spec, table, part), executor="local", off=["views"]).arrow()
            delta = write(wh, t, rows, (built + 1, until)) if rows.num_rows else None
            wh.catalog.commit([AddViewDelta(t.table_id, built, until, delta)], kind="refresh view")
