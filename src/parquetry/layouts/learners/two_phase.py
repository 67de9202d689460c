"""Two-phase partitioning: the join column on the upper levels, a robust tree below each part (RB-24).

Blocks that way hold narrow ranges of the join column, so that a block of one table joins with few of the other; the
lower levels still skip by filters. How many levels the join column gets is weighed with the queries' own filters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from parquetry.errors import UnknownColumn
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.robust import described, encode_data, grow_robust, levels_of, variant_of
from parquetry.layouts.learners.sample import Sample
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import TreeLayout
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import Anything
from parquetry.workload.boxes import to_boxes

_GROUPS = 16  # that a join of the table is thought to have: for as many workers, or because memory is bounded
_MOST_QUERIES = 200
_FEW_ROWS = 20_000  # of the sample are enough to compare trees


def learn_two_phase(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> TreeLayout:
    """Medians of ``join`` on ``join_levels`` levels, then hyper partitioning on the other columns.

    Unless said, the levels are those that cost the workload's queries least, as joins on ``join``; half of them if
    there are no queries, and in the paper's variant always.
    """
    encoded = encode_data(sample, options)
    columns = options.columns or sample.column_names
    join = options.join or next(iter(columns), None)
    if join is not None and join not in columns:
        raise UnknownColumn(join, "the columns to cut on", list(columns))
    levels = levels_of(encoded, options)
    filtering = [q for q in workload if not isinstance(q.predicate, Anything)][-_MOST_QUERIES:]
    if options.join_levels is not None:
        upper = options.join_levels
    elif join is None or not filtering or variant_of(options) == "paper":
        upper = math.ceil(levels / 2)
    else:
        upper = _cheapest(sample, filtering, options, join, levels)
    how = {**described(options, levels), "join": join, "join_levels": upper}
    return grow_robust(encoded, "two_phase", options, how, levels, join, upper)


def _cheapest(
    sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions, join: str, levels: float
) -> int:
    """Of a few numbers of levels the one whose joins read least; of equally good ones the largest."""
    rows = min(sample.num_rows, _FEW_ROWS)
    few = sample.take(np.linspace(0, sample.num_rows - 1, rows).astype(np.int64)) if rows else sample
    rate = options.sample_rate * rows / max(1, sample.num_rows)
    fewer = replace(options, sample_rate=rate)
    encoded = encode_data(few, fewer)
    whole = math.ceil(levels)
    tried = sorted({0, whole // 4, math.ceil(levels / 2), -(-3 * whole // 4), whole}, reverse=True)
    return min(tried, key=lambda upper: _cost(few, encoded, workload, fewer, join, levels, upper))


def _cost(
    rows: pa.Table,
    encoded: Sample,
    workload: Sequence[LoggedQuery],
    options: LearnOptions,
    join: str,
    levels: float,
    upper: int,
) -> float:
    """What the queries read of the table, and of another one as large whose blocks overlap in the join column.

    A group reads those of the other's that its ranges meet: with more groups than ranges, some of them repeatedly.
    """
    spec = grow_robust(encoded, "two_phase", options, {}, levels, join, upper)
    sizes = np.bincount(route_numpy(spec, rows), minlength=spec.blocks) / max(1, rows.num_rows)
    known = RegionTable(regions(spec))
    total = 0.0
    for q in workload:
        match = known.might_match(to_boxes(q.predicate).boxes)
        read = float(sizes[match].sum())
        groups = min(_GROUPS, int(np.count_nonzero(match)))
        total += q.weight * (read + max(1.0, groups / 2**upper))
    return round(total, 9)
