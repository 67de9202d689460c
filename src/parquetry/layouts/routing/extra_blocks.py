"""Which rows are copied into extra blocks (PW-22)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.positions import Positions
from parquetry.model.box import Box
from parquetry.model.layout import EXTRA_BASE


def rows_of(table: pa.Table, boxes: Sequence[Box]) -> list[Numbers]:
    """The ordinals of the rows inside each box. Columns are placed once for all boxes."""
    bounds: dict[str, list[object]] = {}
    for box in boxes:
        for column, i in box.intervals.items():
            bounds.setdefault(column, []).extend(v for v in (i.lo, i.hi) if v is not None)
    lines = {c: Positions.of(vs, table.schema.field(c).type) for c, vs in bounds.items()}
    places = {c: line.place(table.column(c)) for c, line in lines.items()}
    found = []
    for box in boxes:
        rows: Numbers = np.arange(table.num_rows)
        for column, interval in box.intervals.items():
            lo, hi = lines[column].range(interval)
            at = places[column][rows] if len(rows) < table.num_rows else places[column]
            rows = rows[(at >= lo) & (at <= hi)]
        found.append(rows)
    return found


def extra_blocks_of(extra: Sequence[Box], table: pa.Table) -> pa.ListArray:
    """The extra blocks that hold a copy of each row of ``table``; ``extra`` are their regions."""
    copies = rows_of(table, extra)
    rows, blocks = np.concatenate(copies), np.repeat(np.arange(len(extra)) + EXTRA_BASE, [len(c) for c in copies])
    order = np.argsort(rows, kind="stable")
    offsets = np.searchsorted(rows[order], np.arange(table.num_rows + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(blocks[order], pa.int32()))
