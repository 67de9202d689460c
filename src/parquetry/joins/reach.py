"""Reads what rows of a table reach through keys of others: small tables with one key column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.errors import ParquetryError
from parquetry.model.delta import Delta
from parquetry.model.reached import MOST_KEYS, Reached, can_be_key
from parquetry.model.state import State, TableState
from parquetry.model.through import steps_of
from parquetry.model.types import is_float, is_nested
from parquetry.storage.merge import ORDER
from parquetry.storage.scan.arrow import scanned_rows, stored_rows
from parquetry.storage.scan.duck import table_sql
from parquetry.storage.scan.scan import KeptGroups, TableScan, plan_scan, read_tasks
from parquetry.storage.snapshot_index import SnapshotIndex
from parquetry.storage.store import Store

SMALL = 1 << 17  # rows of a table that are evaluated for another whatever its size
_LESS = 4


def small_beside(rows: int, others: int) -> bool:
    """Whether so many rows are evaluated to read less of a table of ``others`` rows."""
    return rows <= max(SMALL, others // _LESS)


def reach(store: Store, state: State, rows: int, names: Iterable[str]) -> dict[str, Reached]:
    """The values behind these names in a table of ``rows`` rows, as far as every step leads to a table by its only key
    column, and to one that is small enough to be evaluated by a query."""
    found = {name: _reached(store, state, rows, name, steps_of(name)[1]) for name in sorted(set(names))}
    return {name: r for name, r in found.items() if r is not None}


def _reached(store: Store, state: State, rows: int, name: str, steps: Sequence[tuple[str, str]]) -> Reached | None:
    (table, column), *further = steps
    found = _column_by_key(store, state, rows, name, table, column)
    if found is None or not further:
        return found
    rest = _reached(store, state, rows, name, further)
    if rest is None or not can_be_key(found.values.type):
        return None
    return Reached(name, found.keys, rest.of_keys(found.values))


def _column_by_key(store: Store, state: State, rows: int, name: str, table: str, column: str) -> Reached | None:
    try:
        t = state.table(table)
        key, kind = t.schema.key, t.schema.column(column).arrow
    except ParquetryError:
        return None  # dropped since
    if len(key) != 1 or not can_be_key(t.schema.column(key[0]).arrow):
        return None
    if not 0 < t.rows <= MOST_KEYS or not small_beside(t.rows, rows):
        return None
    if t.view is not None or is_float(kind) or is_nested(kind):
        return None
    there = _merged(store, plan_scan(t, t.deltas, [key[0], column]))
    if there is None:
        return None
    return Reached.of(name, there.column(key[0]).combine_chunks(), there.column(column).combine_chunks().cast(kind))


def _merged(store: Store, scan: TableScan) -> pa.Table | None:
    """The rows as a query sees them; None where their values do not merge, which a query will tell."""
    deltas = scan.table.deltas
    if not scan.merge:
        return scanned_rows(store, scan, deltas, scan.columns)
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("stored", scanned_rows(store, scan, deltas, [*scan.columns, ORDER]))
        try:
            return connection.sql(table_sql(scan, "FROM stored")).to_arrow_table()
        except duckdb.Error:
            return None


def kept_rows(
    store: Store, table: TableState, deltas: Sequence[Delta], index: SnapshotIndex, keep: Any, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The stored rows of the kept row groups, older deltas first; equal keys are not merged."""
    groups = KeptGroups(index, np.asarray(keep)).row_groups()
    for task in read_tasks(deltas, groups):
        file = index.file(task.file.path)
        rows, _ = stored_rows(store, table, task.schema_id, file, groups[file.path], list(dict.fromkeys(columns)))
        yield rows
