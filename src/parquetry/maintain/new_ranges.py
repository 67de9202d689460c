"""New calendar ranges of a nested layout: learned when a compaction rewrites their rows anyway (WP-19).

Until then they lie in the last range, so ingest never waits for a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from parquetry.errors import ParquetryError
from parquetry.layouts.nested import extend_nested
from parquetry.model.delta import Delta
from parquetry.model.layout import NestedLayout, block_rows
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.state import TableState
from parquetry.model.types import is_nested
from parquetry.storage.index_reader import open_index
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import sample_rows
from parquetry.storage.spark_text import literal, quote
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_ROWS = 250_000  # of the new ranges' rows

Workload = Callable[[str], Sequence[LoggedQuery]]
"""The newest logged queries of a table, by its name."""


def with_new_ranges(
    spark: Callable[[], SparkSession], store: Store, table: TableState, deltas: Sequence[Delta], workload: Workload
) -> NestedLayout | None:
    """The table's layout with parts for calendar units that ``deltas`` bring; None when it stays as it is.

    Whether there are such rows is known from the indexes; only then a sample of these rows is drawn. A layout with
    extra blocks stays: its older deltas would lose theirs.
    """
    spec = table.layout
    if not isinstance(spec, NestedLayout) or spec.extra:
        return None
    until, enough = spec.until, block_rows(spec)
    if until is None or enough is None:
        return None
    rows = _rows_from(store, table, deltas, spec.column, until)
    if rows < enough:
        return None
    inside = spec.inside["columns"]
    if inside is None:  # whatever queries filter
        inside = [c.name for c in table.schema.columns if not is_nested(c.arrow)]
    columns = list(dict.fromkeys([spec.column, *inside]))
    rate = min(1.0, SAMPLE_ROWS / rows)
    newer = f"{quote(spec.column)} >= {literal(until)}"
    sample = sample_rows(spark(), store, plan_scan(table, deltas), columns, rate=rate, where=newer)
    try:
        return extend_nested(spec, sample, rate, workload(table.name))
    except ParquetryError:
        return None  # the rows stay in the last range: no reason to hold a compaction up


def _rows_from(store: Store, table: TableState, deltas: Sequence[Delta], column: str, start: object) -> int:
    """At most so many rows of the deltas have a value of at least ``start``, by their indexes."""
    arrow = table.schema.column(column).arrow
    found = 0
    for delta in deltas:
        groups = open_index(store, delta.index).row_groups()
        highs = groups.stat("max", column, arrow)
        reaches = pc.fill_null(pc.greater_equal(highs, pa.scalar(start, arrow)), False)
        found += int(groups.rows[reaches.to_numpy(zero_copy_only=False)].sum())
    return found
