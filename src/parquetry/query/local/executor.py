"""The local executor: DuckDB in this process, over the same Parquet files, for plans that Spark answers identically."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from parquetry.errors import QueryError, StorageError
from parquetry.query.compile.plain_select import LocalPlan, Refusal
from parquetry.query.compile.whole import WholeQuery
from parquetry.query.local.held_rows import HeldRows
from parquetry.query.local.prepared import Held, LeftToSpark, Prepared, run
from parquetry.query.local.reader import Source, file_source, held_source, measured
from parquetry.query.planning.bind import BoundQuery
from parquetry.query.planning.damage import find_damage
from parquetry.query.planning.plan import Plan, TablePlan
from parquetry.spark import machine_memory
from parquetry.storage.merge import quote
from parquetry.storage.scan.duck import table_sql
from parquetry.storage.store import Store

_MANY_ROWS = 100_000  # of a result
_MOST_FIGURES = 64  # of one text, over as many states of its tables
_MOST_READY = 8  # sets of statements that were prepared for later
_CORES = os.cpu_count() or 1

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
        self._ready: list[Prepared] = []
        # What plans read, by the first run of each; files never change, so it is the same in any other.
        self._read: WeakKeyDictionary[BoundQuery, dict[Hashable, dict[str, int]]] = WeakKeyDictionary()
        self.held = HeldRows(store, lambda: self._connect(1).cursor())

    def run(self, plan: Plan) -> tuple[pa.Table, dict[str, int]]:
        """The rows, and what was really read: bytes and row groups."""
        import duckdb

        local = plan.bound.local
        assert not isinstance(local, Refusal)
        sources: list[Source] = []
        try:
            text = self._text(plan, self.held.of(plan), sources)
            table = self._execute(text, sources, plan)
        except (duckdb.Error, pa.ArrowException, OSError) as e:
            first = str(e).splitlines()[0]
            errors = [s.error for s in sources if s.error is not None]
            for told in errors:
                if isinstance(told, StorageError):  # DuckDB has wrapped it
                    raise told from None
            failed = bool(errors)
            if not isinstance(e, duckdb.Error) or isinstance(e, duckdb.IOException) or failed:
                unreadable = f"cannot read a data file: {first}; run 'parquetry verify' to see what is affected"
                raise find_damage(plan, self._store) or StorageError(unreadable) from e
            if damage := find_damage(plan, self._store):
                raise damage from e
            full = isinstance(e, duckdb.OutOfMemoryException)
            if plan.wanted == "auto" and (full or isinstance(local, WholeQuery)):
                raise LeftToSpark(first) from e
            raise QueryError(f"the query failed: {first}") from e
        return table.rename_columns(local.schema.names).cast(local.schema), self.read_by(plan)

    def statements(self) -> Prepared:
        """For statements that are prepared now and run later, by any thread."""
        made = Prepared(self._connect(1).cursor())
        for ready in self._ready:
            with ready.lock:
                ready.forget()
        self._ready = [*[r for r in self._ready if r.alive()][-_MOST_READY:], made]
        return made

    def prepare(self, plan: Plan, statements: Prepared) -> None:
        """Does all of a run but to execute it, if its rows are in memory."""
        import duckdb

        sources: list[Source] = []
        held = self.held.of(plan, asked=False)
        if held:
            text = self._text(plan, held, sources)
            with suppress(duckdb.Error), statements.lock:  # a query will tell what is wrong
                statements.get(text, [h for s in sources for h in s.held])
                self.read_by(plan).update(measured(None, sources, self._store))

    def _text(self, plan: Plan, held: Mapping[str, list[Held]], sources: list[Source]) -> str:
        """The statement; what it reads is added to ``sources``."""

        def rows_of(t: TablePlan, named: Sequence[str]) -> str:
            scan, name = t.scan(named), f"__picked_{len(sources)}"
            source = held_source(scan, held) if held else file_source(scan, self._store, pick=plan.picks, name=name)
            sources.append(source)
            return table_sql(scan, source.sql, merged=source.merged, key_filter=t.key_filter)

        return local_statement(plan, rows_of)

    def _execute(self, text: str, sources: Sequence[Source], plan: Plan) -> pa.Table:
        """Runs the statement, and notes what it read unless an earlier run of the plan did.

        DuckDB binds a relation's text twice and tells what it read. Executed at once it is bound once, but its rows are
        copied once more and no figures are left: that is for few rows whose figures are known.
        """
        read, held = self.read_by(plan), [h for s in sources for h in s.held]
        at_once = all(s.counted for s in sources) or read.get("rows_out", _MANY_ROWS) < _MANY_ROWS
        threads = 1 if sources and all(s.small for s in sources) else _CORES
        table: pa.Table
        cursor = None
        if held and plan.times > 1:
            table = self._from_memory(text, held)
        else:
            cursor = self._cursor(threads, profiled=not at_once)
            streams = {name: stream for s in sources for name, stream in s.streams.items()}
            if len(sources) > 1:  # DuckDB orders joins by numbers of rows, which a stream does not tell
                streams = {
                    name: run(cursor, "sql", "FROM __picked", __picked=stream).materialize()
                    for name, stream in streams.items()
                }
            table = run(cursor, "execute" if at_once else "sql", text, held, **streams).to_arrow_table()
        if not read:
            read.update(measured(cursor, sources, self._store))
        read.setdefault("rows_out", table.num_rows)
        return table

    def _from_memory(self, text: str, held: Sequence[Held]) -> pa.Table:
        """Runs a statement that is prepared already, or prepares it on this thread's own cursor."""
        own = self._own()
        if text not in own:
            for ready in self._ready:
                if text in ready and ready.lock.acquire(blocking=False):
                    try:
                        return ready.run(text, held)
                    finally:
                        ready.lock.release()
        return own.run(text, held)

    def read_by(self, plan: Plan) -> dict[str, int]:
        """The figures of a plan over these deltas; empty before its first run."""
        mine = self._read.setdefault(plan.bound, {})
        key = plan.off, tuple(t.delta_ids for t in plan.tables.values())
        if key not in mine and len(mine) >= _MOST_FIGURES:
            mine.clear()
        return mine.setdefault(key, {})

    def close(self) -> None:
        self.held.close()
        self._ready = []
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

    def _own(self) -> Prepared:
        if not hasattr(self._per_thread, "prepared"):
            self._per_thread.prepared = Prepared(self._cursor(1))
        own: Prepared = self._per_thread.prepared
        return own

    def _connect(self, threads: int) -> Any:
        import duckdb

        with self._lock:
            if threads not in self._connections:
                # What does not fit is left to Spark, which spills; half of the memory is for Spark and its workers.
                bound = {"memory_limit": f"{machine_memory() >> 21}MB", "temp_directory": ""}
                connection = self._connections[threads] = duckdb.connect(config={"threads": threads, **bound})
                # Data files never change once published, so their footers may be remembered.
                connection.execute("SET GLOBAL parquet_metadata_cache = true")
                connection.execute("SET GLOBAL TimeZone = 'UTC'")
                # Else every fortieth small query gives memory back to the system, and the next one faults it in again.
                connection.execute("SET GLOBAL allocator_background_threads = true")
            return self._connections[threads]


def local_statement(plan: Plan, rows_of: Callable[[TablePlan, Sequence[str]], str]) -> str:
    """The DuckDB text of the plan: the user's query over what ``rows_of`` gives of each table, in these columns."""
    local = plan.bound.local
    if isinstance(local, WholeQuery):
        return local.sql({m.number: f"({rows_of(plan.tables[m.table], m.columns)})" for m in local.mentions})
    assert isinstance(local, LocalPlan)
    by_id = {t.state.table_id: t for t in plan.tables.values()}
    joined = [(by_id.pop(j.table_id), j) for j in local.joined]
    (own,) = by_id.values()
    rows = rows_of(own, local.columns)
    for t, j in joined:
        named = [column for column, _ in j.columns]
        listed = ", ".join(f"{quote(column)} AS {quote(name)}" for column, name in j.columns)
        rows = f"SELECT * FROM ({rows}) CROSS JOIN (SELECT {listed} FROM ({rows_of(t, named)}))"
    return local.sql(f"({rows})")
