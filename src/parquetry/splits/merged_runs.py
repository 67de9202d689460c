"""The sorted runs of several deltas as one run, in parts that are cut from their indexes (NA-31, NA-43, PP-40).

All runs are cut at the same keys, so each part is merged by itself: nothing is shuffled, and no row goes through the
JVM. A part reads its rows of every run; DuckDB brings them into order, on disk where they are too many for memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.layouts.routing.route import Route, compiled
from parquetry.layouts.write_rows import routes_here
from parquetry.model.delta import Delta
from parquetry.model.state import TableState
from parquetry.model.types import is_nested
from parquetry.splits.assignment import SplitPart, SplitTask, assign
from parquetry.splits.cut import cut_into_splits, without_empty
from parquetry.splits.delta_index import DeltaIndex
from parquetry.splits.other_orders import KeyOrder
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish
from parquetry.splits.shorten_key import between_values, shorten_columns
from parquetry.splits.split_rows import StoredTable, rows_inside
from parquetry.splits.worker_duckdb import connect_in_worker
from parquetry.storage.checked_file import footer_of
from parquetry.storage.merge import BLOCK, ORDER, quote
from parquetry.storage.scan.arrow import stored_rows
from parquetry.storage.scan.scan import layout_of, plan_scan
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.store import Store

_BATCH_ROWS = 65_536
_READ_AGAIN = 2  # a part has at least so many row groups of each run on average: those at its ends are read twice
_READ_BY_ALL = 8  # parts that may read everything, which costs less than to write it on one core


@dataclass(frozen=True, eq=False)
class MergedRuns:
    """Gives the rows of a part in order, as batches; sent to executors by pickling."""

    table: StoredTable
    tasks: tuple[SplitTask, ...]

    def __call__(self, part: int) -> Iterator[pa.RecordBatch]:
        """The stored rows of the part by block and key, with ``__block`` under a layout, and ``__order`` of keyed
        tables by which equal keys merge."""
        task, schema = self.tasks[part], self.table.scan.table.schema
        rows = self._stored(task)
        if len({p.task.place for p in task.parts}) < 2:
            yield from rows
            return
        order = [*([BLOCK] if BLOCK in self._schema.names else []), *schema.key]
        yield from in_order(rows, self._schema, order)

    @property
    def _schema(self) -> pa.Schema:
        table = self.table.scan.table
        more = [(ORDER, pa.int64())] if table.schema.keyed else []
        more += [(BLOCK, pa.int32())] if self._layout is not None else []
        return pa.schema([*table.schema.arrow, *(pa.field(name, kind) for name, kind in more)])

    @property
    def _layout(self) -> Any:
        return layout_of(self.table.scan.table, self.table.order.layout_id)

    def _stored(self, task: SplitTask) -> Iterator[pa.RecordBatch]:
        schema, route = self._schema, self._route()
        for part in task.parts:
            for rows in self._of_file(part, task):
                made = {name: rows.column(name) for name in rows.column_names}
                if ORDER in schema.names:
                    made[ORDER] = pa.repeat(pa.scalar(part.task.place, pa.int64()), rows.num_rows)
                if route is not None:
                    made[BLOCK] = pa.array(route(rows), pa.int32())
                yield from pa.table([made[name] for name in schema.names], schema=schema).to_batches(_BATCH_ROWS)

    def _route(self) -> Route | None:
        return None if self._layout is None else compiled(self._layout, self.table.scan.table.schema.arrow)

    def _of_file(self, part: SplitPart, task: SplitTask) -> Iterator[pa.Table]:
        """The part's rows of a file, one row group at a time."""
        scan, store = self.table.scan, self.table.store
        file = self.table.files[part.task.file.path]
        footer = footer_of(store, file)
        whole = part.task.rows is None
        wanted = [(0, part.task.file.rows)] if whole else rows_inside(part, task, self.table)
        first = 0
        for g in range(footer.num_row_groups):
            stop = first + footer.row_group(g).num_rows
            inside = [(max(a, first), min(b, stop)) for a, b in wanted if a < stop and b > first]
            if inside:
                rows, _ = stored_rows(store, scan.table, part.task.schema_id, file, [g], scan.columns)
                for a, b in inside:
                    yield rows.slice(a - first, b - a)
            first = stop


def in_order(rows: Iterator[pa.RecordBatch], schema: pa.Schema, by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows sorted by these columns, on disk where they are too many for a worker's memory."""
    order = ", ".join(f"{quote(name)} NULLS FIRST" for name in by)
    with connect_in_worker() as connection:
        connection.register("rows", pa.RecordBatchReader.from_batches(schema, rows))
        yield from connection.sql(f"SELECT * FROM rows ORDER BY {order}").to_arrow_reader(_BATCH_ROWS)


def cut_runs(store: Store, table: TableState, deltas: Sequence[Delta], parts: int) -> MergedRuns | None:
    """The runs of ``deltas``, oldest first, in about so many even parts; None where they do not all lie in the order
    of the table's layout, or only Spark can route or sort the rows."""
    layout = table.layout
    if not all(_in_its_order(table, d) for d in deltas):
        return None
    if layout is not None and (layout.extra or not routes_here(layout)):
        return None
    if any(is_nested(c.arrow) for c in table.schema.columns):
        return None
    return MergedRuns(*cut_deltas(store, table, deltas, parts, table.schema.names))


def _in_its_order(table: TableState, delta: Delta) -> bool:
    """Whether a delta lies in the order of the table's layout, which may be one that is just being made."""
    if delta.layout_id == table.layout_id:
        return True
    plain = delta.layout_id == 0 or table.layouts.get(delta.layout_id, table) is None
    return table.layout is None and plain


def cut_deltas(
    store: Store,
    table: TableState,
    deltas: Sequence[Delta],
    parts: int,
    columns: Sequence[str],
    between: int | None = None,
) -> tuple[StoredTable, tuple[SplitTask, ...]]:
    """The stored rows of deltas in one order, cut at the same keys into about so many even parts.

    ``between``: only between values of so many leading key columns.
    """
    index = open_snapshot(store, deltas, table.schema)
    keep = np.ones(len(index), bool)
    parts = min(parts, _READ_BY_ALL + len(index) // (_READ_AGAIN * len(deltas)))
    kinds = [table.schema.column(k).arrow for k in table.schema.key]
    shorten = shorten_columns(kinds) if between is None else between_values(kinds[:between])
    cut = cut_into_splits(DeltaIndex(index, deltas, store, keep), KeyRanges.everything(), Wish(parts), shorten=shorten)
    scan = plan_scan(replace(table, deltas=()), (), columns, merge=False, visible=False)
    files = {path: index.file(path) for path in index.paths}
    tasks = assign(without_empty(cut.splits), index, keep, deltas)
    return StoredTable(store, scan, files, KeyOrder(table.layout_id)), tuple(tasks)
