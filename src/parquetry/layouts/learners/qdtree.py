"""Qd-tree, greedy: cuts at the bounds of logged queries, the largest saving first (PW-24, 3.5-16)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from parquetry.errors import SchemaError
from parquetry.layouts.learners.grow import Part, Split, best_cut, grow, weight_of
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import encode
from parquetry.model.layout import TreeLayout
from parquetry.model.logged_query import LoggedQuery

VARIANTS = ("history", "extended")


def learn_qdtree(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> TreeLayout:
    """A tree that is best, greedily, for the logged queries themselves ("history") or extended by δ ("extended")."""
    variant = options.variant or "history"
    if variant not in VARIANTS:
        raise SchemaError(f"qdtree has the variants {' and '.join(VARIANTS)}, not '{variant}'")
    encoded = encode(sample, workload, options, extended=variant == "extended")
    block_rows = options.sample_block_rows

    def decide(part: Part) -> Split | None:
        if part.rows < 2 * block_rows or not len(part.queries):
            return None
        cut = best_cut(encoded, part, block_rows)
        return cut.split if cut and cut.cost < part.rows * weight_of(encoded, part.queries) else None

    how = {"block_rows": options.block_rows, "variant": variant, **encoded.delta}
    return grow(encoded, "qdtree", decide, how)
