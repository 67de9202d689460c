"""The local executor: DuckDB in this process, over the same Parquet files, for plans that Spark answers identically."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pyarrow as pa

from parquetry.errors import QueryError, StorageError
from parquetry.query.damage import find_damage
from parquetry.query.local_plan import LocalPlan
from parquetry.query.plan import Plan, TablePlan
from parquetry.storage.merge import ORDER, merge_sql, quote
from parquetry.storage.store import Store

PUSH_KEY_FILTER = "push_key_filter"


class LocalExecutor:
    """One DuckDB instance per warehouse, one cursor per thread; footers of data files stay in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._connection: Any = None
        self._per_thread = threading.local()

    def run(self, plan: Plan) -> tuple[pa.Table, dict[str, int]]:
        """The rows, and what was really read: bytes and row groups as DuckDB counted them."""
        import duckdb

        assert isinstance(plan.bound.local, LocalPlan)
        (t,) = plan.tables.values()
        statement = local_statement(plan, self._store)
        cursor = self._cursor()
        try:
            table = cursor.sql(statement).to_arrow_table()
        except duckdb.Error as e:
            first = str(e).splitlines()[0]
            if isinstance(e, duckdb.IOException):
                unreadable = f"cannot read a data file: {first}; run 'parquetry verify' to see what is affected"
                raise find_damage(plan, self._store) or StorageError(unreadable) from e
            raise find_damage(plan, self._store) or QueryError(f"the query failed: {first}") from e
        table = table.cast(plan.bound.local.schema)
        return table, _measured(cursor, t)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
                self._per_thread = threading.local()

    def _cursor(self) -> Any:
        cursor = getattr(self._per_thread, "cursor", None)
        if cursor is None:
            cursor = self._per_thread.cursor = self._connect().cursor()
            cursor.execute("SET enable_profiling = 'no_output'")
        return cursor

    def _connect(self) -> Any:
        import duckdb

        with self._lock:
            if self._connection is None:
                self._connection = duckdb.connect(config={"threads": os.cpu_count() or 1})
                # Data files never change once published, so their footers may be remembered.
                self._connection.execute("SET GLOBAL parquet_metadata_cache = true")
                self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
            return self._connection


def local_statement(plan: Plan, store: Store) -> str:
    """The DuckDB text of the plan: the user's query over the kept files, equal keys merged where needed."""
    local = plan.bound.local
    assert isinstance(local, LocalPlan)
    (t,) = plan.tables.values()
    schema = t.state.schema
    columns = set(local.columns) | (set(schema.key) if t.merge else set())
    if t.merge and schema.sequence:
        columns.add(schema.sequence)
    names = [n for n in schema.names if n in columns] or [schema.key[0]]
    source = _stored_rows(t, names, store)
    if t.merge:
        filtered = None if PUSH_KEY_FILTER in plan.off else local.key_filter(schema)
        rows = f"(SELECT * FROM ({source}) WHERE {filtered})" if filtered else f"({source})"
        source = merge_sql(schema, rows, columns=names)
    return local.sql(f"({source})")


def _stored_rows(t: TablePlan, names: list[str], store: Store) -> str:
    """A UNION ALL of Parquet scans; a column that a delta is too old to have is null there."""
    schemas = t.state.schemas
    scans: dict[tuple[int, int], list[str]] = {}
    for place, d in enumerate(t.deltas):
        for f in d.files:
            if f.path in t.files:
                scans.setdefault((place if t.merge else 0, d.schema_id), []).append(store.url(f.path))
    selects = []
    for (place, schema_id), paths in scans.items():
        had = set(schemas[schema_id].names)
        columns = [quote(n) if n in had else f"CAST(NULL AS {_duck_type(t, n)}) AS {quote(n)}" for n in names] + (
            [f"{place} AS {ORDER}"] if t.merge else []
        )
        listed = ", ".join("'" + p.replace("'", "''") + "'" for p in paths)
        # A folder above the warehouse may be called k=5: no reason to take 5 for the column k.
        selects.append(f"SELECT {', '.join(columns)} FROM read_parquet([{listed}], hive_partitioning = false)")
    if not selects:
        columns = [f"CAST(NULL AS {_duck_type(t, n)}) AS {quote(n)}" for n in names] + [f"0 AS {ORDER}"]
        return f"SELECT {', '.join(columns)} WHERE false"
    return " UNION ALL ".join(selects)


def _duck_type(t: TablePlan, name: str) -> str:
    kind = t.state.schema.column(name).type
    return {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "string": "VARCHAR", "binary": "BLOB"}.get(
        kind, kind
    )


def _measured(cursor: Any, t: TablePlan) -> dict[str, int]:
    profile = json.loads(cursor.get_profiling_information(format="json"))
    scanned = _sum_of(profile.get("operator", []), "row_groups_scanned")
    rows = t.rows if scanned >= t.groups_read else round(t.rows * scanned / t.groups_read)
    return {
        "bytes_read": int(profile.get("io", {}).get("total_bytes_read", 0)),
        "rows_scanned": rows,
        "blocks_read": min(scanned, t.groups_read),
        "files_read": len(t.files),
    }


def _sum_of(operators: list[dict[str, Any]], name: str) -> int:
    return sum(int(o.get(name, 0)) + _sum_of(o.get("children", []), name) for o in operators)
