"""WARP: features from the query log, rows with similar features together (paper 003: workload analysis, augmentation,
reduce, partitioning)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.errors import SchemaError
from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.tree_router import boundary_values
from parquetry.layouts.learners.cluster import cluster
from parquetry.layouts.learners.grow import CutAt, Part, Split, best_cut, grow, median_cut, spread, weight_of
from parquetry.layouts.learners.mining import Mined, mine
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import Sample, choose_columns, encode
from parquetry.layouts.pruning.features import Evaluator, FeatureTable, columns_used, number_of, pack
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import Cluster, Feature, FeatureLayout, Node
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import (
    And,
    Anything,
    IsNull,
    Nothing,
    NotNull,
    OneOf,
    Opaque,
    Or,
    Predicate,
    Range,
    restrict,
)
from parquetry.model.values import order_key

VARIANTS = ("greedy", "paper")
_GREEDY_ROWS = 20_000  # of the sample, to estimate what a feature lets queries skip (3.4-3)


def learn_warp(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> FeatureLayout:
    """Clusters of at least ``block_rows`` rows, told apart by at most ``features`` features (WP-27).

    Variant "greedy" chooses the features that let queries skip most; "paper" the most frequent predicate sets of which
    none is more special than another (WP-04, 3.4-3).
    """
    workload = asked(sample, workload) or workload
    features, left_out = choose_features(sample, workload, options)
    counts = options.count_vectors(features) if options.count_vectors else _count(features, sample, options)
    clusters, vectors, folded = cluster_counted(features, counts, options.block_rows)
    how = {
        "block_rows": options.block_rows,
        "variant": options.variant or VARIANTS[0],
        "features": len(features),
        "vectors": len(counts),
        **({"vectors_folded": folded} if folded else {}),
        **({"left_out_of_mining": left_out} if left_out else {}),
    }
    uncut = FeatureLayout("warp", columns_used(features), features, clusters, vectors, how)
    return cut_clusters(uncut, sample, workload, options)


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


def cluster_counted(
    features: Sequence[Feature], counts: Mapping[int, int], block_rows: float
) -> tuple[tuple[Cluster, ...], dict[int, int], int]:
    """Clusters of the counted vectors, the cluster of each vector, and how many vectors were beyond the bound.

    Clusters with few features come first, since an unforeseen vector goes to the first that covers it; the last one is
    open to all.
    """
    vectors = sorted(counts)
    bits = np.array([[v >> i & 1 for i in range(len(features))] for v in vectors], bool)
    bits = bits.reshape(len(vectors), len(features))
    weights = np.array([f.weight for f in features], np.float64)
    found = cluster(bits, np.array([counts[v] for v in vectors], np.float64), weights, block_rows)
    if found.count < 2:
        return (Cluster((1 << len(features)) - 1),), dict.fromkeys(vectors, 0), found.folded
    unions = [0] * found.count
    for v, at in zip(vectors, found.label.tolist(), strict=True):
        unions[at] |= v
    everything = (1 << len(features)) - 1
    heavy = [float(weights[[u >> i & 1 == 1 for i in range(len(features))]].sum()) for u in unions]
    order = sorted(range(found.count), key=lambda at: (unions[at] == everything, heavy[at], unions[at]))
    place = {at: n for n, at in enumerate(order)}
    clusters = [Cluster(unions[at]) for at in order]
    if clusters[-1].union != everything:
        clusters.append(Cluster(everything))
    return tuple(clusters), {v: place[at] for v, at in zip(vectors, found.label.tolist(), strict=True)}, found.folded


def _count(features: Sequence[Feature], sample: pa.Table, options: LearnOptions) -> dict[int, int]:
    """The (vector, count) pairs of the sample, scaled to the table (WP-08)."""
    if not sample.num_rows:
        return {}
    vectors, counts = np.unique(pack(Evaluator(features, sample.schema).bits(sample)), return_counts=True)
    scaled = np.maximum(1, np.round(counts / options.sample_rate)).astype(np.int64)
    return dict(zip(map(number_of, vectors), scaled.tolist(), strict=True))


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


def asked(sample: pa.Table, workload: Sequence[LoggedQuery]) -> list[LoggedQuery]:
    """Each query that min/max of the whole sample does not answer, once, with its weight: what is skipped without
    features is no gain of one."""
    known = frozenset(sample.column_names)
    ends: dict[str, _Ends] = {}
    weight: dict[tuple[Predicate, tuple[Opaque, ...]], float] = {}
    for q in workload:
        predicate = restrict(q.predicate, known)
        if _reaches(predicate, sample, ends):
            key = predicate, q.opaque
            weight[key] = weight.get(key, 0.0) + q.weight
    return [LoggedQuery(p, w, o) for (p, o), w in weight.items()]


@dataclass(frozen=True)
class _Ends:
    """A column's lowest and highest value, as they sort; None without any value."""

    low: tuple[int, Any] | None
    high: tuple[int, Any] | None
    nulls: bool

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> _Ends:
        ends = pc.min_max(column)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        some = low is not None
        return cls(order_key(low) if some else None, order_key(high) if some else None, column.null_count > 0)

    def reach(self, p: Range | OneOf | IsNull | NotNull) -> bool:
        if isinstance(p, IsNull):
            return self.nulls
        if self.low is None or self.high is None:
            return False
        match p:
            case Range(_, lo, hi):
                return (lo is None or order_key(lo) <= self.high) and (hi is None or self.low <= order_key(hi))
            case OneOf(_, values):
                return any(self.low <= order_key(v) <= self.high for v in values)
        return True


def _reaches(p: Predicate, sample: pa.Table, ends: dict[str, _Ends]) -> bool:
    """Whether a row between the lowest and the highest values may satisfy the predicate, column by column."""
    match p:
        case And(parts):
            return all(_reaches(x, sample, ends) for x in parts)
        case Or(parts):
            return any(_reaches(x, sample, ends) for x in parts)
        case Anything():
            return True
        case Nothing():
            return False
    if p.column not in ends:
        ends[p.column] = _Ends.of(sample.column(p.column))
    return ends[p.column].reach(p)


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


def cut_clusters(
    spec: FeatureLayout, sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions
) -> FeatureLayout:
    """``spec`` with clusters of more than two blocks cut, at bounds of the queries that still read them where that
    spares some, else at the median of the column in which they are widest, so that min/max bites (3.4-6)."""
    uncut = replace(spec, clusters=tuple(Cluster(c.union) for c in spec.clusters))
    if sample.num_rows < 2 * options.sample_block_rows:
        return uncut
    columns = tuple(choose_columns(sample, workload, options))
    workload = asked(sample, workload)
    encoded = encode(sample, workload, replace(options, columns=columns), extended=False)
    if not encoded.columns:
        return uncut
    known = FeatureTable(uncut)
    reads = np.array([known.might_match(q.predicate, q.opaque) for q in workload]).reshape(-1, uncut.blocks)
    where = route_numpy(uncut, sample)
    order = np.argsort(where, kind="stable")
    starts = np.searchsorted(where[order], np.arange(uncut.blocks + 1))
    clusters = []
    for at, c in enumerate(uncut.clusters):
        rows = order[starts[at] : starts[at + 1]]
        if len(rows) >= 2 * options.sample_block_rows:
            boxes = np.flatnonzero(reads[encoded.owner, at])
            mine = replace(
                encoded,
                places=encoded.places[:, rows],
                lo=encoded.lo[:, boxes],
                hi=encoded.hi[:, boxes],
                owner=encoded.owner[boxes],
            )
            c = replace(c, cells=_cut(mine, options.sample_block_rows))
        clusters.append(c)
    cut_on = boundary_values([n for c in clusters for n in c.cells])
    used = tuple(dict.fromkeys([*columns_used(spec.features), *cut_on]))
    return replace(spec, columns=used, clusters=tuple(clusters))


def _cut(rows: Sample, block_rows: int) -> tuple[Node, ...]:
    columns = range(len(rows.columns))

    def decide(part: Part) -> Split | None:
        if part.rows < 2 * block_rows:
            return None
        if len(part.queries):
            cut = best_cut(rows, part, block_rows)
            if cut and cut.cost < part.rows * weight_of(rows, part.queries):
                return cut.split
        for column in np.argsort(-spread(rows, part, columns), kind="stable").tolist():
            position = median_cut(part.places[column], block_rows)
            if position is not None:
                return CutAt(column, position)
        return None

    return grow(rows, "cells", decide, {}).nodes
