"""WARP: features from the query log, rows with similar features together (paper 003: workload analysis, augmentation,
reduce, partitioning)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.layouts.coding.tree_router import boundary_values
from parquetry.layouts.learners.choose_features import VARIANTS, choose_features
from parquetry.layouts.learners.cluster import cluster
from parquetry.layouts.learners.grow import CutAt, Part, Split, best_cut, grow, median_cut, spread, weight_of
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
