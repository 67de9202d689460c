"""Z-order and Hilbert: blocks of equal size along a space-filling curve. What people use today, as a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.layouts.coding.curve import curve_values
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import encode
from parquetry.model.layout import CurveLayout
from parquetry.model.logged_query import LoggedQuery

_MOST_BITS = 10  # per column: 1,024 ranks are finer than any block


def learn_curve(
    curve: str, sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions
) -> CurveLayout | None:
    """Equal stretches of the curve over ranks of the chosen columns; None when no column can be cut."""
    encoded = encode(sample, workload, options, extended=False)
    if not encoded.columns:
        return None
    bits = min(_MOST_BITS, 62 // len(encoded.columns))
    boundaries: dict[str, tuple[Any, ...]] = {}
    for d, (column, line) in enumerate(zip(encoded.columns, encoded.lines, strict=True)):
        # A boundary is the first value of its rank; a row between two boundaries of the line counts with the lower one.
        ordered = np.sort(encoded.places[d])
        wanted = np.linspace(0, len(ordered) - 1, (1 << bits) + 1).astype(np.int64)[1:-1]
        index = np.unique(ordered[wanted] // 2 - 1)
        few = np.unique(ordered // 2 - 1)
        index = few if len(few) < 1 << bits else index
        boundaries[column] = tuple(line.boundary(i) for i in index[index >= 0].tolist())
    how = {"block_rows": options.block_rows}
    uncut = CurveLayout(curve, encoded.columns, curve, bits, boundaries, (), how)
    values = np.sort(curve_values(uncut, sample))
    blocks = max(1, len(values) // options.sample_block_rows)
    at = np.linspace(0, len(values), blocks + 1).astype(np.int64)[1:-1]
    cuts = np.unique(values[at])
    cuts = cuts[(cuts > values[0])] if len(values) else cuts
    return CurveLayout(curve, encoded.columns, curve, bits, boundaries, tuple(cuts.tolist()), how)
