"""Which features a layout learns from the query log: mined from its conditions, chosen by what they let skip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.errors import SchemaError
from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.learners.mining import Mined, mine
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import choose_columns
from parquetry.layouts.pruning.features import Evaluator
from parquetry.model.layout import Feature
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import (
    Opaque,
)

VARIANTS = ("greedy", "paper")
_GREEDY_ROWS = 20_000  # of the sample, to estimate what a feature lets queries skip (3.4-3)


def choose_features(
    sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions
) -> tuple[tuple[Feature, ...], int]:
    """Workload analysis: the features, and how many distinct queries and items were too many to look at."""
    variant = options.variant or VARIANTS[0]
    if variant not in VARIANTS:
        raise SchemaError(f"warp has the variants {' and '.join(VARIANTS)}, not '{variant}'")
    allowed = choose_columns(sample, workload, options)
    if options.columns is None:
        allowed += [c for q in workload for o in q.opaque for c in o.columns if c in sample.column_names]
    mined = mine(workload, frozenset(c for c in allowed if _varies(sample.column(c))), widen=variant == "greedy")
    choose = _choose_greedily if variant == "greedy" else _choose_as_printed
    return tuple(mined.feature(at) for at in choose(mined, sample, options)), mined.left_out


def _varies(column: pa.ChunkedArray) -> bool:
    """Whether a feature could tell rows apart by this column: min/max and null counts do the rest."""
    ends = pc.min_max(column)
    return bool(ends["min"].is_valid) and (column.null_count > 0 or ends["min"] != ends["max"])


def _choose_as_printed(mined: Mined, sample: pa.Table, options: LearnOptions) -> list[int]:
    """The most frequent sets, without those that are more special than one already chosen (WP-04)."""
    order = sorted(range(len(mined.sets)), key=lambda s: (-mined.support[s], len(mined.sets[s]), s))
    chosen: list[int] = []
    for s in order:
        if len(chosen) == options.features:
            break
        if not any(mined.subsumes(general, s) for general in chosen):
            chosen.append(s)
    return chosen


def _choose_greedily(mined: Mined, sample: pa.Table, options: LearnOptions) -> list[int]:
    """Always the set that lets the queries skip most rows beyond those they can skip by the sets already chosen.

    The gain of a set only falls as others are chosen, so a set is priced again only when it comes first.
    """
    if not mined.sets or not sample.num_rows:
        return []
    step = max(1, sample.num_rows // _GREEDY_ROWS)
    rows = sample.take(np.arange(0, sample.num_rows, step)) if step > 1 else sample
    items = [Feature(opaque=(i,)) if isinstance(i, Opaque) else Feature(i) for i in mined.items]
    holds = np.packbits(Evaluator(items, rows.schema).bits(rows), axis=1)
    misses = np.array([~np.bitwise_and.reduce(holds[list(s)]) for s in mined.sets])
    left = np.repeat(np.packbits(np.ones(rows.num_rows, bool))[None, :], len(mined.queries), axis=0)
    weight = mined.weight
    covered = [np.flatnonzero(c) for c in mined.covers]

    def gain(s: int) -> float:
        skipped = np.bitwise_count(left[covered[s]] & misses[s]).sum(axis=1, dtype=np.int64)
        return float(skipped @ weight[covered[s]])

    waiting = [(gain(s), s) for s in _most_special(mined, misses)]
    return _lazily(waiting, gain, left, misses, covered, options.features)


def _most_special(mined: Mined, misses: Numbers) -> list[int]:
    """Of the sets that cover the same queries, the one that fewest rows satisfy."""
    rows = np.bitwise_count(misses).sum(axis=1, dtype=np.int64)
    best: dict[bytes, int] = {}
    for s in sorted(range(len(mined.sets)), key=lambda s: (-rows[s], len(mined.sets[s]), s)):
        best.setdefault(np.packbits(mined.covers[s]).tobytes(), s)
    return sorted(best.values())


def _lazily(
    waiting: list[tuple[float, int]],
    gain: Callable[[int], float],
    left: Numbers,
    misses: Numbers,
    covered: Sequence[Numbers],
    most: int,
) -> list[int]:
    import heapq

    heap = [(-g, s) for g, s in waiting if g > 0]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < most:
        _, s = heapq.heappop(heap)
        now = gain(s)
        if now <= 0:
            continue
        if heap and -heap[0][0] > now:
            heapq.heappush(heap, (-now, s))
            continue
        chosen.append(s)
        left[covered[s]] &= ~misses[s]
    return chosen
