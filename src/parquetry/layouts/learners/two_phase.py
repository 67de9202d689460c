"""Two-phase partitioning: the join column on the upper levels, a robust tree below each part (RB-24).

Blocks that way hold narrow ranges of the join column, so that a block of one table joins with few of the other; the
lower levels still skip by filters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from parquetry.errors import UnknownColumn
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.robust import described, encode_data, grow_robust, levels_of
from parquetry.model.layout import TreeLayout
from parquetry.model.logged_query import LoggedQuery


def learn_two_phase(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> TreeLayout:
    """Medians of ``join`` on ``join_levels`` levels, then hyper partitioning on the other columns."""
    encoded = encode_data(sample, options)
    columns = options.columns or sample.column_names
    join = options.join or next(iter(columns), None)
    if join is not None and join not in columns:
        raise UnknownColumn(join, "the columns to cut on", list(columns))
    levels = levels_of(encoded, options)
    upper = math.ceil(levels / 2) if options.join_levels is None else options.join_levels
    how = {**described(options, levels), "join": join, "join_levels": upper}
    return grow_robust(encoded, "two_phase", options, how, levels, join, upper)
