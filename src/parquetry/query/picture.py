"""Draws a table's layout: which columns, over which ranges, with which queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from parquetry.errors import SchemaError
from parquetry.layouts.draw import draw_svg
from parquetry.layouts.draw_features import feature_lines
from parquetry.model.box import Box, Interval
from parquetry.model.layout import learned_blocks
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import columns_of
from parquetry.model.schema import TableSchema
from parquetry.model.state import TableState
from parquetry.model.types import is_nested
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.store import Store


def draw_table(t: TableState, store: Store, columns: Sequence[str] | None, workload: Sequence[LoggedQuery]) -> str:
    """The SVG of the table's layout. Without ``columns``, the two of the layout that most queries filter."""
    if t.layout is None:
        raise SchemaError(f"'{t.name}' has the plain key order, which has no blocks to draw; run 'relayout' first")
    spec = t.layout
    chosen = list(columns) if columns else _busiest(_drawable(t, spec.columns), workload)
    if len(chosen) != 2:
        raise SchemaError(f"a picture needs two columns; '{t.name}' is laid out on {', '.join(spec.columns)}")
    domains = {c: _domain(t, store, c, t.schema) for c in chosen}
    featured = bool(feature_lines(spec, ()))  # their conditions may be on other columns
    shown = [q for q in workload if featured or columns_of(q.predicate) & set(chosen)]
    learned = learned_blocks(spec)
    cells = f" in {spec.blocks:,} cells" if spec.blocks > learned else ""
    title = f"{t.name}: {spec.learner}, {learned:,} blocks{cells}, {len(shown)} queries"
    return draw_svg(spec, chosen[0], chosen[1], domains, shown, title, _extents(t, store, chosen))


def _extents(t: TableState, store: Store, columns: Sequence[str]) -> dict[int, Box]:
    """The smallest and largest values of the rows in each block of the present layout, from the indexes alone."""
    deltas = [d for d in t.deltas if d.layout_id == t.layout_id]
    found: dict[int, Box] = {}
    for table in open_snapshot(store, deltas, t.schema).tables if deltas else ():
        stats = [
            [table.stat(kind, c, t.schema.column(c).arrow).to_pylist() for kind in ("min", "max")] for c in columns
        ]
        for i, block in enumerate(table.batch["block"].to_pylist()):
            box = Box({c: Interval(lows[i], highs[i]) for c, (lows, highs) in zip(columns, stats, strict=True)})
            found[block] = found[block].hull(box) if block in found else box
    return found


def _drawable(t: TableState, first: Sequence[str]) -> list[str]:
    """The layout's columns; where it has one only, a feature's, others that rows can be placed by."""
    others = () if len(first) > 1 else (*t.schema.key, *(c.name for c in t.schema.columns if not is_nested(c.arrow)))
    return list(dict.fromkeys([*first, *others]))


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
