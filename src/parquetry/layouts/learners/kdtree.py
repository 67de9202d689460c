"""k-d tree: halves at the median, columns taking turns (RB-01…RB-04, PW-24). It knows the data, not the queries."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from parquetry.errors import SchemaError
from parquetry.layouts.learners.grow import CutAt, Part, grow, median_cut
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import encode
from parquetry.model.layout import TreeLayout
from parquetry.model.logged_query import LoggedQuery

VARIANTS = ("skip", "stop")


def learn_kdtree(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> TreeLayout:
    """Blocks of at least ``block_rows`` and, where the data can be cut, less than twice that.

    Variant "skip" passes over a column that cannot be halved; "stop" cuts below the median only and ends where that
    cannot be done, as the paper's baseline does (3.5-15).
    """
    variant = options.variant or "skip"
    if variant not in VARIANTS:
        raise SchemaError(f"kdtree has the variants {' and '.join(VARIANTS)}, not '{variant}'")
    encoded = encode(sample, workload, options, extended=False)
    block_rows, columns = options.sample_block_rows, len(encoded.columns)

    def decide(part: Part) -> CutAt | None:
        if part.rows < 2 * block_rows:
            return None
        for turn in range(columns if variant == "skip" else min(columns, 1)):
            column = (part.level + turn) % columns
            position = median_cut(part.places[column], block_rows, literal=variant == "stop")
            if position is not None:
                return CutAt(column, position)
        return None

    return grow(encoded, "kdtree", decide, {"block_rows": options.block_rows, "variant": variant})
