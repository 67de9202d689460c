"""The local executor: DuckDB in this process, over the same Parquet files, for plans that Spark answers identically."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from parquetry.errors import QueryError, StorageError
from parquetry.query.damage import find_damage
from parquetry.query.hot_files import HotFiles
from parquetry.query.local_plan import LocalPlan
from parquetry.query.local_source import NAME as PICK_ROW_GROUPS
from parquetry.query.local_source import Source, measured, source_of
from parquetry.query.plan import Plan, TablePlan
from parquetry.query.prepared import Prepared
from parquetry.storage.merge import merge_sql, quote
from parquetry.storage.store import Store
from parquetry.views.project import visible_columns, visible_rows

PUSH_KEY_FILTER = "push_key_filter"
_MANY_ROWS = 100_000  # of a result
_CORES = os.cpu_count() or 1
_EXECUTE = compile("cursor.execute(text)", __name__, "eval")

# See LocalExecutor._execute: the rows that are copied are few.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning)


class LocalExecutor:
    """Two DuckDB instances per warehouse, with cursors for every thread; footers of data files stay in memory.

    One uses all cores. The other has one thread, for what is too small to share: a second thread has to be woken up
    first, and waits for a core when maintenance uses them all.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._connections: dict[int, Any] = {}
        self._per_thread = threading.local()
        self.hot = HotFiles(store, lambda: self._cursor(1))

    def run(self, plan: Plan) -> tuple[pa.Table, dict[str, int]]:
        """The rows, and what was really read: bytes and row groups."""
        import duckdb

        assert isinstance(plan.bound.local, LocalPlan)
        with self.hot.of(plan) as hot:
            sources: list[Source] = []

            def scan(t: TablePlan, columns: Sequence[str]) -> str:
                pick = PICK_ROW_GROUPS not in plan.off
                sources.append(source_of(t, columns, self._store, pick=pick, hot=hot))
                return sources[-1].sql

            try:
                table = self._execute(local_statement(plan, scan), sources, plan)
            except (duckdb.Error, pa.ArrowException, OSError) as e:
                first = str(e).splitlines()[0]
                failed = any(s.error for s in sources)
                if not isinstance(e, duckdb.Error) or isinstance(e, duckdb.IOException) or failed:
                    unreadable = f"cannot read a data file: {first}; run 'parquetry verify' to see what is affected"
                    raise find_damage(plan, self._store) or StorageError(unreadable) from e
                raise find_damage(plan, self._store) or QueryError(f"the query failed: {first}") from e
        return table.cast(plan.bound.local.schema), plan.read

    def _execute(self, text: str, sources: Sequence[Source], plan: Plan) -> pa.Table:
        """Runs the statement. ``plan.read`` is filled with what it read, unless an earlier run of the plan did.

        DuckDB binds a relation's text twice and tells what it read. Executed at once it is bound once, but its rows are
        copied once more and no figures are left: that is for few rows whose figures are known.
        """
        read = plan.read
        at_once = all(s.counted for s in sources) or read.get("rows_out", _MANY_ROWS) < _MANY_ROWS
        threads = 1 if sources and all(s.small for s in sources) else _CORES
        cursor = self._cursor(threads, profiled=not at_once)
        streams = {name: stream for s in sources for name, stream in s.streams.items()}
        if not at_once:
            made = cursor.sql(text)
        elif streams:
            # DuckDB finds Arrow data by the name of a variable around the call; to register it takes 0.8 ms.
            made = eval(_EXECUTE, {"cursor": cursor, "text": text, **streams})
        else:
            made = cursor.execute(self._prepared(threads).get(text, asked=plan.uses.times))
        table: pa.Table = made.to_arrow_table()
        if not read:
            read.update(measured(cursor, sources, self._store), rows_out=table.num_rows)
        return table

    def close(self) -> None:
        self.hot.close()
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections = {}
            self._per_thread = threading.local()

    def _cursor(self, threads: int, *, profiled: bool = False) -> Any:
        cursors: dict[tuple[int, bool], Any] = self._per_thread.__dict__.setdefault("cursors", {})
        if (threads, profiled) not in cursors:
            cursor = cursors[threads, profiled] = self._connect(threads).cursor()
            if profiled:
                cursor.execute("SET enable_profiling = 'no_output'")
        return cursors[threads, profiled]

    def _prepared(self, threads: int) -> Prepared:
        kept: dict[int, Prepared] = self._per_thread.__dict__.setdefault("prepared", {})
        if threads not in kept:
            kept[threads] = Prepared(self._cursor(threads))
        return kept[threads]

    def _connect(self, threads: int) -> Any:
        import duckdb

        with self._lock:
            if threads not in self._connections:
                connection = self._connections[threads] = duckdb.connect(config={"threads": threads})
                # Data files never change once published, so their footers may be remembered.
                connection.execute("SET GLOBAL parquet_metadata_cache = true")
                connection.execute("SET GLOBAL TimeZone = 'UTC'")
                # Else every fortieth small query gives memory back to the system, and the next one faults it in again.
                connection.execute("SET GLOBAL allocator_background_threads = true")
            return self._connections[threads]


def columns_read(t: TablePlan, named: Iterable[str]) -> list[str]:
    """The stored columns that the columns named by a query need: what they are made of, and what merging compares."""
    schema = t.state.schema
    columns = set(t.stored_columns(named)) | (set(schema.key) if t.merge else set())
    if t.merge and schema.sequence:
        columns.add(schema.sequence)
    return [n for n in schema.names if n in columns] or [schema.key[0]]


def local_statement(plan: Plan, scan: Callable[[TablePlan, Sequence[str]], str]) -> str:
    """The DuckDB text of the plan: the user's query over the stored rows, equal keys merged where needed.

    ``scan`` gives a relation with these stored columns of a table.
    """
    local = plan.bound.local
    assert isinstance(local, LocalPlan)
    by_id = {t.state.table_id: t for t in plan.tables.values()}
    joined = [(by_id.pop(j.table_id), j) for j in local.joined]
    (own,) = by_id.values()
    filtered = None if PUSH_KEY_FILTER in plan.off else local.key_filter(own.state.schema)
    rows = _rows(own, local.columns, scan, filtered)
    for t, j in joined:
        named = [column for column, _ in j.columns]
        listed = ", ".join(f"{quote(column)} AS {quote(name)}" for column, name in j.columns)
        rows = f"SELECT * FROM ({rows}) CROSS JOIN (SELECT {listed} FROM ({_rows(t, named, scan, None)}))"
    return local.sql(f"({rows})")


def _rows(
    t: TablePlan, named: Sequence[str], scan: Callable[[TablePlan, Sequence[str]], str], filtered: str | None
) -> str:
    """The rows of a table as a query sees them; ``filtered`` is a condition on the key."""
    columns = columns_read(t, named)
    rows = scan(t, columns)
    if t.merge:
        rows = f"(SELECT * FROM ({rows}) WHERE {filtered})" if filtered else f"({rows})"
        rows = merge_sql(t.state.schema, rows, columns=columns)
    return visible_sql(t, rows, named) if t.state.view is not None else rows


def visible_sql(t: TablePlan, rows: str, wanted: Sequence[str]) -> str:
    """A view's stored rows as the query names them: groups without rows left out, averages divided."""
    assert t.state.view is not None
    spec = t.state.view.spec
    columns = [] if t.stored else visible_columns(spec, quote, duck=True, wanted=wanted)
    there = visible_rows(spec, quote)
    return f"SELECT {', '.join(columns) or '*'} FROM ({rows})" + (f" WHERE {there}" if there else "")
