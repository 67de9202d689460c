"""A small refresh in the process: what :class:`~parquetry.views.changes.Step` does on Spark, as one DuckDB statement.

Only for what both engines answer alike: the definition's expressions pass through the compiler of local queries, and
what that refuses, or DuckDB stops at, is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from parquetry.layouts.write_rows import few_bytes
from parquetry.model.delta import Delta
from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.schema import TableSchema
from parquetry.model.state import State, TableState
from parquetry.model.types import is_float, is_nested
from parquetry.model.view import ROWS, StoredValue, ViewSpec
from parquetry.splits.assignment import SplitTask
from parquetry.splits.merged_runs import cut_deltas
from parquetry.splits.split_rows import StoredTable, rows_of
from parquetry.splits.worker_duckdb import connect_in_worker
from parquetry.storage.merge import ORDER, quote
from parquetry.storage.scan.arrow import scanned_rows
from parquetry.storage.scan.duck import table_sql
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.store import Store
from parquetry.views.changes import rows_text

_BATCH_ROWS = 65_536
_MEMORY = "1GB"  # a join of little may be much: then DuckDB stops
_FROM, _UNTIL, _SIGN = "__from", "__until", "__sign"


class Compiled(Protocol):
    """A query as DuckDB text over marks, each of which stands for a mention of a table."""

    @property
    def schema(self) -> pa.Schema:
        """The names and types that Spark gives its columns."""
        ...

    def over(self, rows: Mapping[str, str]) -> str:
        """The text over these relations, by the tables' names."""
        ...


Compile = Callable[[str, Mapping[str, TableSchema]], Compiled | None]
"""Compiles Spark's SQL for DuckDB; None where only Spark can answer it."""


def refreshed_here(
    store: Store, state: State, view: TableState, deltas: Sequence[Delta], until: int, compile_: Compile
) -> pa.Table | None:
    """The view's stored rows of this step, with ``__order``; None where Spark has to make them."""
    step = _step_of(state, view, until)
    if step is None or not few_bytes(view, [d for i in range(len(step.tables)) for d in step.read(i)]):
        return None
    compiled = step.compiled(compile_)
    if compiled is None:
        return None
    import duckdb

    with duckdb.connect(config={"threads": 1, "memory_limit": _MEMORY}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for i, t in enumerate(step.tables):
            connection.register(f"t{i}", _stored(store, t, step.read(i)))
        try:
            made = connection.sql(step.text(compiled)).to_arrow_table()
        except duckdb.Error:
            return None  # Spark says why, or can
    made = made.cast(view.schema.arrow)
    return made.append_column(ORDER, pa.repeat(pa.scalar(0, pa.int64()), made.num_rows))


def refreshed_in_parts(
    store: Store,
    state: State,
    view: TableState,
    deltas: Sequence[Delta],
    until: int,
    compile_: Compile,
    shared: int,
    parts: int,
) -> RefreshedParts | None:
    """The groups of these ``deltas`` of one table in key order, in about so many parts of the view's order; None where
    Spark has to make them.

    The parts are cut between values of the ``shared`` leading key columns, so a group is in one of them (NA-31, NA-32).
    """
    step = _step_of(state, view, until)
    compiled = None if step is None else step.compiled(compile_)
    if step is None or compiled is None or step.spec.how != "merge" or len(step.tables) > 1:
        return None
    (table,) = step.tables
    stored, tasks = cut_deltas(store, table, deltas, parts, table.schema.names, shared)
    return RefreshedParts(stored, tasks, step.text_over(compiled, _MARK), view.schema)


_MARK = "\0rows\0"  # stands for the stored rows in a statement: no SQL text holds a zero byte


@dataclass(frozen=True, eq=False)
class RefreshedParts:
    """Gives the view's rows of a part, in order, as batches; sent to executors by pickling."""

    table: StoredTable
    tasks: tuple[SplitTask, ...]
    text: str
    schema: TableSchema  # of the view

    def __call__(self, part: int) -> Iterator[pa.RecordBatch]:
        import duckdb

        source = rows_of(self.tasks[part], self.table)
        by = ", ".join(f"{quote(k)} NULLS FIRST" for k in self.schema.key)
        with connect_in_worker() as connection:
            try:
                made = connection.sql(f"{self.text.replace(_MARK, f'({source.sql})')} ORDER BY {by}").to_arrow_table()
            except duckdb.IOException:
                raise
            except duckdb.Error as e:
                raise OnlySpark(str(e).splitlines()[0]) from e
        made = made.cast(self.schema.arrow)
        zeros = pa.repeat(pa.scalar(0, pa.int64()), made.num_rows)
        yield from made.append_column(ORDER, zeros).to_batches(_BATCH_ROWS)


class OnlySpark(Exception):
    """A value at which DuckDB stops, in a task of Spark's: its text is what tells the driver."""


def compiles(state: State, view: TableState, until: int, compile_: Compile) -> bool:
    """Whether DuckDB can make the view's groups as Spark does."""
    step = _step_of(state, view, until)
    return step is not None and step.compiled(compile_) is not None


def _step_of(state: State, view: TableState, until: int) -> _Step | None:
    """The refresh as DuckDB can do it; None where its answer could differ from Spark's."""
    assert view.view is not None
    spec = view.view.spec
    by_id = {t.table_id: t for t in state.tables.values()}
    tables = [by_id[s.table_id] for s in spec.sources]
    if any(t.view is not None for t in tables) or any(c.function == DISTINCT for c in spec.columns):
        return None
    if any(is_float(view.schema.column(k).arrow) for k in view.schema.key):  # of which some are equal yet differ
        return None
    if any(is_nested(c.arrow) for t in tables for c in t.schema.columns):
        return None
    return _Step(spec, tables, view.schema, view.view.built, until)


def _stored(store: Store, table: TableState, deltas: Sequence[Delta]) -> pa.Table:
    """The stored rows, with their place in the order of time and the timestamps of their delta."""
    parts = []
    for place, d in enumerate(deltas):
        rows = scanned_rows(store, plan_scan(table, [d], visible=False), [d]).select(list(table.schema.names))
        for name, value in ((ORDER, place), (_FROM, d.t_lo), (_UNTIL, d.t_hi)):
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
        parts.append(rows)
    if parts:
        return pa.concat_tables(parts)
    more = [pa.field(name, pa.int64()) for name in (ORDER, _FROM, _UNTIL)]
    return pa.schema([*table.schema.arrow, *more]).empty_table()


@dataclass(frozen=True)
class _Step:
    spec: ViewSpec
    tables: Sequence[TableState]
    schema: TableSchema  # of the view
    built: int
    until: int

    def read(self, i: int) -> list[Delta]:
        """The deltas of a source that the step needs: those that came, and for most views those before, too."""
        came_only = len(self.tables) == 1 and self.spec.how == "merge"
        return [d for d in self.tables[i].deltas if d.t_hi <= self.until and (not came_only or d.t_lo > self.built)]

    def compiled(self, compile_: Compile) -> Compiled | None:
        """The definition for DuckDB."""
        schemas = {s.alias: t.schema for s, t in zip(self.spec.sources, self.tables, strict=True)}
        return compile_(rows_text(self.spec), schemas)

    def text_over(self, compiled: Compiled, rows: str) -> str:
        """The groups of stored ``rows`` of the one table."""
        return self._selected(self._aggregated(self._rows(compiled, [rows]), signed=False))

    def text(self, compiled: Compiled) -> str:
        plus, minus = self._changed(compiled, plus=True), self._changed(compiled, plus=False)
        if self.spec.how == "merge":
            return self._selected(self._aggregated(" UNION ALL ".join(plus), signed=False))
        signed = [f"SELECT *, 1 AS {_SIGN} FROM ({p})" for p in plus]
        if self.spec.how == "retract":
            signed += [f"SELECT *, -1 AS {_SIGN} FROM ({m})" for m in minus]
            changed = self._aggregated(" UNION ALL ".join(signed), signed=True)
            values = [quote(n) for n in self.schema.names if n not in self._groups]
            moved = " OR ".join(f"coalesce({v}, 0) <> 0" for v in values)
            return self._selected(f"SELECT * FROM ({changed}) WHERE {moved}")
        return self._recomputed(compiled, " UNION ALL ".join([*plus, *minus]))

    def _selected(self, text: str) -> str:
        return f"SELECT {', '.join(map(quote, self.schema.names))} FROM ({text})"

    def _recomputed(self, compiled: Compiled, changed: str) -> str:
        """The aggregates, as of now, of the groups in ``changed``; without a row a group is stored as gone."""
        groups = [quote(g) for g in self._groups]
        same = " AND ".join(f"touched.{g} IS NOT DISTINCT FROM fresh.{g}" for g in groups)
        now = self._rows(compiled, [self._content(i, self.until) for i in range(len(self.tables))])
        touched = f"SELECT * FROM ({now}) AS fresh WHERE EXISTS (FROM touched WHERE {same})"
        fresh = self._aggregated(touched, signed=False)
        values = [n for n in self.schema.names if n not in self._groups]
        made = [f"touched.{g}" for g in groups]
        made += [f"coalesce({quote(v)}, 0) AS {quote(v)}" if v == ROWS else quote(v) for v in values]
        joined = f"SELECT {', '.join(made)} FROM touched LEFT JOIN ({fresh}) AS fresh ON {same}"
        return f"WITH touched AS (SELECT DISTINCT {', '.join(groups)} FROM ({changed})) {self._selected(joined)}"

    @cached_property
    def _groups(self) -> list[str]:
        return [c.name for c in self.spec.groups]

    def _changed(self, compiled: Compiled, *, plus: bool) -> list[str]:
        """The joined rows that are new (``plus``) or gone, one text for each source that changed."""
        found = []
        for i, t in enumerate(self.tables):
            came = any(self.built < d.t_lo and d.t_hi <= self.until for d in t.deltas)
            if not came or (not plus and not t.schema.keyed):
                continue
            if self.spec.how == "merge" or not t.schema.keyed:
                names = ", ".join(map(quote, t.schema.names))
                changed = f"SELECT {names} FROM t{i} WHERE {_FROM} > {self.built}"
            else:
                changed = self._content(i, self.until if plus else self.built, changed=True)
            before = [self._content(k, self.until) for k in range(i)]
            behind = [self._content(k, self.built) for k in range(i + 1, len(self.tables))]
            found.append(self._rows(compiled, [*before, changed, *behind]))
        return found

    def _content(self, i: int, at: int, *, changed: bool = False) -> str:
        """The rows of a table at a timestamp as a query sees them; only those of keys that the step ``changed``."""
        schema = self.tables[i].schema
        scan = plan_scan(self.tables[i], (), merge=schema.keyed)
        columns = [*scan.columns, ORDER] if scan.merge else scan.columns
        there = f"SELECT {', '.join(map(quote, columns))} FROM t{i} WHERE {_UNTIL} <= {at}"
        if changed:
            key = ", ".join(map(quote, schema.key))
            there += f" AND ({key}) IN (SELECT ({key}) FROM t{i} WHERE {_FROM} > {self.built})"
        return table_sql(scan, there)

    def _rows(self, compiled: Compiled, contents: Sequence[str]) -> str:
        """The groups and the aggregates' arguments of the joined rows."""
        names = [*self._groups, *self.spec.arguments]
        over = {s.alias: f"({c})" for s, c in zip(self.spec.sources, contents, strict=True)}
        return f"SELECT * FROM ({compiled.over(over)}) AS made({', '.join(map(quote, names))})"

    def _aggregated(self, rows: str, *, signed: bool) -> str:
        groups = [quote(g) for g in self._groups]
        made = [f"{self._value(v, signed)} AS {quote(v.name)}" for v in self.spec.values]
        return f"SELECT {', '.join([*groups, *made])} FROM ({rows}) GROUP BY {', '.join(groups)}"

    def _value(self, v: StoredValue, signed: bool) -> str:
        value = quote(v.row) if v.row else "1"
        if v.kind == "count":
            return _count(value, signed)
        if v.kind != "sum":
            return f"{v.kind}({value})"
        # An average of integers sums doubles as Spark does.
        summed = f"CAST({value} AS {v.type})" if v.type in ("double", "bigint") else value
        summed = f"CASE WHEN {_SIGN} > 0 THEN {summed} ELSE -{summed} END" if signed else summed
        return f"CAST(sum({summed}) AS {self.schema.column(v.name).type})"


def _count(value: str, signed: bool) -> str:
    if not signed:
        return f"count({value})"
    return f"CAST(sum(CASE WHEN {value} IS NOT NULL THEN {_SIGN} ELSE 0 END) AS bigint)"
