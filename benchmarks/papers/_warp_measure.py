"""Counts the tuples in blocks that queries read, by min/max, by features and by both; no Spark, exact to the row."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.papers._warp_data import TEMPLATES, logged, queries, schema_of
from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.positions import Positions
from parquetry.layouts.learners.choose_features import choose_features
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.warp import cluster_counted, cut_clusters, learn_warp
from parquetry.layouts.nested import Within, asked_of, boundaries_of, rows_by_range
from parquetry.layouts.pruning.features import Evaluator, FeatureTable, bounds_of, columns_used, number_of, pack, truth
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import Feature, FeatureLayout, NestedLayout, ranges_between
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Or, Predicate

FILTERED = (
    *("l_shipdate", "l_commitdate", "l_receiptdate", "o_orderdate", "l_quantity", "l_discount", "l_shipmode"),
    *("l_shipinstruct", "l_returnflag", "c_mktsegment", "c_nationkey", "s_nationkey", "r_name"),
    *("p_type", "p_brand", "p_container", "p_size"),
)
MONTHS = Within("o_orderdate", "month")


class Dataset:
    """The filtered columns of the wide table, its months, and the positions of its values for min/max."""

    def __init__(self, path: Path, rows: int | None = None) -> None:
        self.schema = schema_of(path)
        table = pq.read_table(path, columns=list(FILTERED))
        self.step = max(1, table.num_rows // rows) if rows else 1
        self.table = self.thin(table).combine_chunks()
        self.rows = self.table.num_rows
        self.boundaries = boundaries_of(self.table.column("o_orderdate"), MONTHS)
        self.months = rows_by_range(self.boundaries, self.table.column("o_orderdate"))

    def thin(self, table: pa.Table) -> pa.Table:
        """The rows of the file's table that this data set has."""
        return table.take(np.arange(0, table.num_rows, self.step)) if self.step > 1 else table

    @cached_property
    def codes(self) -> dict[str, tuple[Positions, Numbers]]:
        """Every distinct value of a column is a boundary, so positions order the values exactly."""
        found = {}
        for c in FILTERED:
            column = self.table.column(c)
            line = Positions.of(pc.unique(column).to_pylist(), column.type)
            found[c] = line, line.place(column)
        return found


@dataclass(frozen=True)
class Workload:
    """Queries with their template and the share of the rows that they want."""

    queries: Sequence[LoggedQuery]
    template: Sequence[str]

    @classmethod
    def of(cls, data: Dataset, each: int, seed: int, templates: Sequence[str] = TEMPLATES) -> Workload:
        rng = np.random.default_rng(seed)
        names = [t for t in templates for _ in range(each)]
        sqls = [sql for t in templates for sql in queries(t, each, rng)]
        found = logged(sqls, data.schema)
        assert len(found) == len(names)
        return cls(found, names)

    def some(self, each: int) -> Workload:
        """The first queries of every template."""
        kept = [i for t in dict.fromkeys(self.template) for i in np.flatnonzero(np.array(self.template) == t)[:each]]
        return Workload([self.queries[i] for i in kept], [self.template[i] for i in kept])

    def answers(self, data: Dataset) -> Numbers:
        """One row of bools per query: the rows that it wants."""
        return Evaluator([Feature(q.predicate, q.opaque) for q in self.queries], data.table.schema).bits(data.table)


@dataclass(eq=False)
class Stored:
    """A table in blocks: their rows, and the lowest and highest position of every column in each."""

    data: Dataset
    block: Numbers
    features: FeatureTable | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = np.argsort(self.block, kind="stable")
        self.ids, starts = np.unique(self.block[order], return_index=True)
        self.size = np.diff([*starts.tolist(), len(order)])
        self.low, self.high = {}, {}
        for c, (_, places) in self.data.codes.items():
            ordered = places[order]
            self.low[c], self.high[c] = np.minimum.reduceat(ordered, starts), np.maximum.reduceat(ordered, starts)

    def by_minmax(self, p: Predicate) -> Numbers:
        match p:
            case And(parts):
                return np.logical_and.reduce([self.by_minmax(x) for x in parts])
            case Or(parts):
                return np.logical_or.reduce([self.by_minmax(x) for x in parts])
        if not bounds_of(p):  # type: ignore[arg-type]
            return np.ones(len(self.ids), bool)
        line = self.data.codes[p.column][0]  # type: ignore[union-attr]
        before = np.concatenate([[0], np.cumsum(truth(p, line))])  # type: ignore[arg-type]
        c = p.column  # type: ignore[union-attr]
        return np.asarray(before[self.high[c] + 1] > before[self.low[c]])

    def by_features(self, q: LoggedQuery) -> Numbers:
        if self.features is None:
            return np.ones(len(self.ids), bool)
        return np.asarray(self.features.might_match(q.predicate, q.opaque)[self.ids])

    def read(self, q: LoggedQuery) -> dict[str, float]:
        """The share of the rows in blocks that min/max, features and both leave."""
        minmax, features = self.by_minmax(q.predicate), self.by_features(q)
        both = minmax & features
        masks = {"both": both, "minmax": minmax, "features": features}
        return {k: float(self.size[m].sum()) / self.data.rows for k, m in masks.items()}


def measure(stored: Stored, test: Workload, answers: Numbers) -> dict[str, Any]:
    """Percent of tuples scanned, on average and per template, after checking that no wanted row is skipped."""
    found: dict[str, list[tuple[str, float]]] = {"both": [], "minmax": [], "features": []}
    at = np.searchsorted(stored.ids, stored.block)
    for q, t, wanted in zip(test.queries, test.template, answers, strict=True):
        keep = stored.by_minmax(q.predicate) & stored.by_features(q)
        assert keep[at[wanted]].all(), f"{t}: a wanted row was skipped"
        for k, share in stored.read(q).items():
            found[k].append((t, 100 * share))
    row: dict[str, Any] = {"scanned %": float(np.mean([s for _, s in found["both"]]))}
    row["by min/max %"] = float(np.mean([s for _, s in found["minmax"]]))
    row["by features %"] = float(np.mean([s for _, s in found["features"]]))
    row |= {t: float(np.mean([s for n, s in found["both"] if n == t])) for t in dict.fromkeys(test.template)}
    return {**row, "blocks": len(stored.ids), **stored.about}


def by_month(data: Dataset) -> Stored:
    block = np.empty(data.rows, np.int64)
    for i, rows in enumerate(data.months):
        block[rows] = i
    return Stored(data, block)


def by_range(data: Dataset, blocks: int) -> Stored:
    """Month, region, segment and bands of quantity: the scheme made by hand (WP-23), with about as many blocks."""
    month = by_month(data).block
    region, segment = (data.codes[c][1] // 2 - 1 for c in ("r_name", "c_mktsegment"))
    quantity = data.table.column("l_quantity").to_numpy()
    bands = max(1, round(blocks / (len(data.months) * 25)))
    band = np.minimum((quantity - 1) * bands // 50, bands - 1)
    return Stored(data, ((month * 5 + region) * 5 + segment) * bands + band)


def warp(data: Dataset, train: Workload, block_rows: int, features: int, variant: str, shared: bool) -> Stored:
    """WARP in every month. ``shared``: one set of features for all months, as in the demo; else each month its own."""
    options = LearnOptions(block_rows, columns=FILTERED, features=features, variant=variant)
    seconds = dict.fromkeys(("analysis", "reduce and cluster", "route"), 0.0)
    started = time.perf_counter()
    if shared:
        chosen, _ = choose_features(data.table, train.queries, options)
        seconds["analysis"] = time.perf_counter() - started
        started = time.perf_counter()
        evaluated = Evaluator(chosen, data.table.schema).bits(data.table)
        parts = []
        for rows in data.months:
            uncut = _clustered(chosen, evaluated[:, rows], block_rows)
            parts.append(cut_clusters(uncut, data.table.take(rows), train.queries, options))
    else:
        parts = []
        for rows, own in zip(data.months, ranges_between(data.boundaries), strict=True):
            asked = asked_of(train.queries, "o_orderdate", own)
            parts.append(learn_warp(data.table.take(rows), asked, options))
    seconds["reduce and cluster"] = time.perf_counter() - started
    spec = NestedLayout("warp", "o_orderdate", data.boundaries, tuple(parts))
    started = time.perf_counter()
    block = route_numpy(spec, data.table)
    seconds["route"] = time.perf_counter() - started
    vectors = [len(p.vectors) for p in parts]
    about = {"vectors per month": float(np.mean(vectors)), "most vectors": max(vectors)}
    return Stored(data, block, FeatureTable(spec), seconds, about)


def _clustered(features: Sequence[Feature], bits: Numbers, block_rows: int) -> FeatureLayout:
    vectors, counts = np.unique(pack(bits), return_counts=True)
    counted = dict(zip(map(number_of, vectors), counts.tolist(), strict=True))
    clusters, homes, _ = cluster_counted(features, counted, block_rows)
    return FeatureLayout("warp", columns_used(features), tuple(features), clusters, homes)
