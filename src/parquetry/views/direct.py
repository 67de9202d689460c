"""A small delta of a table read by the very task that writes the view's: no row passes through the JVM.

Only for views of plain columns of one table: whatever is computed or filtered is left to Spark, whose meaning counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from parquetry.model.delta import Delta
from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.schema import TableSchema
from parquetry.model.state import TableState
from parquetry.model.types import is_float
from parquetry.model.view import ViewSpec
from parquetry.storage.checked_file import CheckedFile, footer_of
from parquetry.storage.merge import ORDER
from parquetry.storage.scan.arrow import stored_rows
from parquetry.storage.scan.scan import read_tasks
from parquetry.storage.snapshot_index import data_files
from parquetry.storage.spark_text import quote
from parquetry.storage.store import Store

_EVERY_ROW = "*"


@dataclass(frozen=True)
class DirectReader:
    """The rows of ``files``, each as a group of its own: what ``classes.initial_values`` makes of them on Spark."""

    store: Store
    table: TableState
    files: tuple[tuple[int, CheckedFile], ...]  # with the numbers of their schemas
    schema: TableSchema  # of the view
    values: tuple[tuple[str, str, bool], ...]  # of each stored column: its name, the table's column, and if it counts

    def __call__(self, _part: int) -> Iterator[pa.RecordBatch]:
        wanted = sorted({source for _, source, _ in self.values} - {_EVERY_ROW})
        for schema_id, file in self.files:
            groups = range(footer_of(self.store, file).num_row_groups)
            rows, _ = stored_rows(self.store, self.table, schema_id, file, groups, wanted)
            yield from self._grouped(rows).to_batches()

    def _grouped(self, table: pa.Table) -> pa.Table:
        made = {name: self._value(table, source, counts, name) for name, source, counts in self.values}
        made[ORDER] = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
        return pa.table({name: made[name] for name in (*self.schema.names, ORDER)})

    def _value(self, table: pa.Table, source: str, counts: bool, name: str) -> pa.ChunkedArray | pa.Array:
        if source == _EVERY_ROW:
            return pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
        column = table.column(source)
        if counts:
            return pc.is_valid(column).cast(pa.int64())
        # Not every integer is a double: an average rounds them, as Spark does.
        return column.cast(self.schema.column(name).arrow, safe=False)


def direct_reader(store: Store, view: TableState, table: TableState, deltas: Sequence[Delta]) -> DirectReader | None:
    """What reads these deltas for the view; None where Spark has to."""
    assert view.view is not None
    spec = view.view.spec
    if spec.where or spec.how != "merge" or len(spec.sources) > 1 or view.layout is not None or table.view is not None:
        return None
    values = _values(spec, {quote(c.name.lower()): c.name for c in table.schema.columns})
    floats = any(is_float(view.schema.column(k).arrow) for k in view.schema.key)  # of which some are equal yet differ
    if values is None or floats:
        return None
    checked = {file.path: file for d in deltas for file in data_files(store, d)}
    files = tuple((task.schema_id, checked[task.file.path]) for task in read_tasks(deltas))
    return DirectReader(store, replace(table, deltas=()), files, view.schema, values)


def _values(spec: ViewSpec, columns: dict[str, str]) -> tuple[tuple[str, str, bool], ...] | None:
    named = {c.argument for c in spec.columns} - {_EVERY_ROW}
    if not named <= columns.keys() or any(v.kind == DISTINCT for v in spec.values):
        return None
    groups = [(c.name, columns[c.argument], False) for c in spec.groups]
    sources = {row: columns[argument] for row, argument in spec.arguments.items()}
    return (*groups, *((v.name, sources.get(v.row, _EVERY_ROW), v.kind == "count") for v in spec.values))
