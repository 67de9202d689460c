"""Draws a table's layout: which columns, over which ranges, with which queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from parquetry.errors import SchemaError
from parquetry.layouts.draw import draw_svg
from parquetry.model.layout import layout_from_json
from parquetry.model.predicate import columns_of
from parquetry.model.schema import TableSchema
from parquetry.model.state import TableState
from parquetry.model.workload import LoggedQuery
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.store import Store


def draw_table(t: TableState, store: Store, columns: Sequence[str] | None, workload: Sequence[LoggedQuery]) -> str:
    """The SVG of the table's layout. Without ``columns``, the two of the layout that most queries filter."""
    if t.layout is None:
        raise SchemaError(f"'{t.name}' has the plain key order, which has no blocks to draw; run 'relayout' first")
    spec = layout_from_json(t.layout)
    chosen = list(columns) if columns else _busiest(spec.columns, workload)
    if len(chosen) != 2:
        raise SchemaError(f"a picture needs two columns; '{t.name}' is laid out on {', '.join(spec.columns)}")
    domains = {c: _domain(t, store, c, t.schema) for c in chosen}
    shown = [q for q in workload if columns_of(q.predicate) & set(chosen)]
    learned = int(spec.options.get("learned_blocks", spec.blocks))
    cells = f" in {spec.blocks:,} cells" if spec.blocks > learned else ""
    title = f"{t.name}: {spec.learner}, {learned:,} blocks{cells}, {len(shown)} queries"
    return draw_svg(spec, chosen[0], chosen[1], domains, shown, title)


def _busiest(columns: Sequence[str], workload: Sequence[LoggedQuery]) -> list[str]:
    uses = {c: sum(c in columns_of(q.predicate) for q in workload) for c in columns}
    return sorted(columns, key=lambda c: (-uses[c], columns.index(c)))[:2]


def _domain(t: TableState, store: Store, column: str, schema: TableSchema) -> tuple[Any, Any]:
    """The column's lowest and highest value, from the indexes alone."""
    arrow = schema.column(column).arrow
    index = open_snapshot(store, t.deltas, schema)
    lows = [pc.min(table.stat("min", column, arrow)).as_py() for table in index.tables]
    highs = [pc.max(table.stat("max", column, arrow)).as_py() for table in index.tables]
    known = [v for v in lows if v is not None], [v for v in highs if v is not None]
    if not known[0] or not known[1]:
        raise SchemaError(f"column '{column}' of '{t.name}' has no values to draw; choose another")
    return min(known[0]), max(known[1])
