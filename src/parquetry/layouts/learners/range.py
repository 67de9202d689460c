"""Range partitioning: equal numbers of rows between cuts of one column, what people do by hand (WP-23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from parquetry.layouts.learners.grow import CutAt, Part, grow, median_cut
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import choose_columns, encode
from parquetry.model.layout import TreeLayout
from parquetry.model.logged_query import LoggedQuery


def learn_range(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> TreeLayout:
    """Ranges of the first column that was named; else of a date or time that the workload filters, else of the first
    column that it filters. No range has fewer than ``block_rows`` rows."""
    columns = choose_columns(sample, workload, options)
    if options.columns is None:
        columns.sort(key=lambda c: not pa.types.is_temporal(sample.schema.field(c).type))
    encoded = encode(sample, (), replace(options, columns=tuple(columns[:1])), extended=False)
    block_rows = options.sample_block_rows

    def decide(part: Part) -> CutAt | None:
        if not encoded.columns or part.rows < 2 * block_rows:
            return None
        position = median_cut(part.places[0], block_rows)
        return None if position is None else CutAt(0, position)

    return grow(encoded, "range", decide, {"block_rows": options.block_rows})
