"""Features: conditions that every row is tested against once, and what a layout knows of its blocks by them.

A row's vector has bit ``i`` set when feature ``i`` is TRUE for it; null counts as not TRUE (3.4-7).
"""

from __future__ import annotations

import atexit
from collections.abc import Collection, Iterable, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.positions import Positions
from parquetry.layouts.coding.tree_router import Router
from parquetry.layouts.pruning.subsume import implies
from parquetry.model.box import Interval
from parquetry.model.layout import (
    Cluster,
    Cut,
    Feature,
    FeatureLayout,
    Groups,
    LayoutSpec,
    Leaf,
    NestedLayout,
    Node,
    TreeLayout,
)
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
    columns_of,
)

Leaves = Range | OneOf | IsNull | NotNull
Item = Predicate | Opaque
"""One of the conditions that together make a feature or a query: a comparison, a disjunction, an opaque one (WP-02)."""


def items_of(query: Feature | LoggedQuery) -> tuple[Item, ...]:
    """The conjunctive items of a feature or a query."""
    p = query.predicate
    parts = p.parts if isinstance(p, And) else () if isinstance(p, Anything) else (p,)
    return (*parts, *query.opaque)


def columns_used(features: Iterable[Feature]) -> tuple[str, ...]:
    """The columns that the features speak of, each once."""
    found: dict[str, None] = {}
    for f in features:
        found |= dict.fromkeys(sorted(columns_of(f.predicate)))
        found |= dict.fromkeys(c for o in f.opaque for c in o.columns)
    return tuple(found)


def opaque_conditions(spec: LayoutSpec) -> tuple[Opaque, ...]:
    """Every opaque condition that routing by this spec needs the result of."""
    if isinstance(spec, NestedLayout):
        return tuple(dict.fromkeys(o for part in spec.parts for o in opaque_conditions(part)))
    features = spec.features if isinstance(spec, FeatureLayout) else ()
    return tuple(dict.fromkeys(o for f in features for o in f.opaque))


class Evaluator:
    """Tests rows against conditions; each leaf is looked up by the row's position in its column, once per batch."""

    def __init__(self, features: Sequence[Feature], schema: pa.Schema) -> None:
        self.features = features
        bounds: dict[str, list[Any]] = {}
        for leaf in _leaves(f.predicate for f in features):
            bounds.setdefault(leaf.column, []).extend(bounds_of(leaf))
        self.lines = {c: Positions.of(vs, schema.field(c).type) for c, vs in bounds.items()}
        self.tables = {leaf: truth(leaf, self.lines[leaf.column]) for leaf in _leaves(f.predicate for f in features)}
        self.opaque = tuple(dict.fromkeys(o for f in features for o in f.opaque))

    def bits(self, table: pa.Table) -> Numbers:
        """One row of bools per feature."""
        places = {c: line.place(table.column(c)) for c, line in self.lines.items()}
        known: dict[Leaves, Numbers] = {}
        by_text = _results(self.opaque, table)

        def test(p: Predicate) -> Numbers:
            match p:
                case And(parts):
                    return _reduce(np.logical_and, [test(x) for x in parts], table.num_rows)
                case Or(parts):
                    return _reduce(np.logical_or, [test(x) for x in parts], table.num_rows)
                case Anything():
                    return np.ones(table.num_rows, bool)
                case Nothing():
                    return np.zeros(table.num_rows, bool)
            if p not in known:
                known[p] = np.take(self.tables[p], places[p.column])
            return known[p]

        found = np.empty((len(self.features), table.num_rows), bool)
        for i, f in enumerate(self.features):
            found[i] = _reduce(np.logical_and, [test(f.predicate), *(by_text[o] for o in f.opaque)], table.num_rows)
        return found


def pack(bits: Numbers) -> Numbers:
    """The vector of each row, as fixed-length bytes: bit ``i`` of the little-endian number is feature ``i``."""
    packed = np.ascontiguousarray(np.packbits(bits, axis=0, bitorder="little").T)
    if not packed.shape[1]:
        packed = np.zeros((bits.shape[1], 1), np.uint8)
    return packed.view(f"V{packed.shape[1]}").ravel()


def number_of(vector: Any) -> int:
    """The vector as the number that a spec holds."""
    return int.from_bytes(bytes(vector), "little")


class FeatureRouter:
    """Routes batches of tables with this schema. A column named like an opaque condition holds its results.

    ``parts`` are layouts of ranges of a table; rows are tested once for all of them, since they have conditions in
    common. A layout that stands alone is the only part.
    """

    def __init__(self, parts: Sequence[FeatureLayout], schema: pa.Schema) -> None:
        self.parts = parts
        distinct = {(f.predicate, f.opaque): f for part in parts for f in part.features}
        number = {key: n for n, key in enumerate(distinct)}
        self.evaluator = Evaluator(tuple(distinct.values()), schema)
        self.own = [np.array([number[f.predicate, f.opaque] for f in part.features], np.int64) for part in parts]
        self.known = [dict(part.vectors) for part in parts]
        nodes, self.roots = _forest([c for part in parts for c in part.clusters])
        self.first = list(accumulate((len(part.clusters) for part in parts), initial=0))
        self.router = Router(nodes, schema)

    def route(self, table: pa.Table, part: Numbers | None = None) -> Numbers:
        """The block of every row, as int32, numbered through all parts; ``part`` is the one that each row is in."""
        bits = self.evaluator.bits(table)
        if part is None:
            return self.router.route(table, self.roots[self._clusters(0, bits)])
        roots = np.empty(table.num_rows, np.int64)
        order = np.argsort(part, kind="stable")
        found, starts = np.unique(part[order], return_index=True)
        for n, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            roots[rows] = self.roots[self._clusters(n, bits[np.ix_(self.own[n], rows)])]
        return self.router.route(table, roots)

    def _clusters(self, part: int, bits: Numbers) -> Numbers:
        """The cluster of each row, of those of all parts."""
        vectors, which = np.unique(pack(bits), return_inverse=True)
        return np.array([self._cluster(part, number_of(v)) for v in vectors], np.int64)[which.ravel()]

    def _cluster(self, part: int, vector: int) -> int:
        known = self.known[part]
        if vector not in known:
            known[vector] = next(i for i, c in enumerate(self.parts[part].clusters) if not vector & ~c.union)
        return self.first[part] + known[vector]


def feature_parts(spec: NestedLayout) -> list[FeatureLayout] | None:
    """The parts as feature layouts, if they are: a plain tree is one cluster without features."""
    found = [
        FeatureLayout(p.learner, p.columns, (), (Cluster(0, p.nodes),), {}) if isinstance(p, TreeLayout) else p
        for p in spec.parts
    ]
    feature_layouts = [p for p in found if isinstance(p, FeatureLayout)]
    some = any(isinstance(p, FeatureLayout) for p in spec.parts)
    return feature_layouts if some and len(feature_layouts) == len(found) else None


class FeatureTable:
    """What the unions say of every block, for queries: the two-step check of the paper (WP-14, WP-15)."""

    def __init__(self, spec: LayoutSpec) -> None:
        self.blocks = spec.blocks
        self.items: dict[Item, int] = {}  # parts that are learned apart often have items in common
        self.features: list[tuple[tuple[int, ...], int, Numbers]] = []  # its items, first block, where it may be TRUE
        first = 0
        for part in spec.parts if isinstance(spec, NestedLayout) else (spec,):
            if isinstance(part, FeatureLayout):
                self._add(part, first)
            first += part.blocks

    def _add(self, spec: FeatureLayout, first: int) -> None:
        blocks = [c.blocks for c in spec.clusters]
        for i, f in enumerate(spec.features):
            items = tuple(self.items.setdefault(item, len(self.items)) for item in items_of(f))
            present = np.array([c.union >> i & 1 for c in spec.clusters], bool)
            self.features.append((items, first, np.repeat(present, blocks)))

    def might_match(self, predicate: Predicate, opaque: Collection[Opaque] = ()) -> Numbers:
        """One bool per block: False only when no row in it satisfies the predicate and all opaque conditions."""
        might = np.ones(self.blocks, bool)
        implied = [i in opaque if isinstance(i, Opaque) else implies(predicate, i) for i in self.items]
        for items, first, present in self.features:
            if all(implied[i] for i in items):
                might[first : first + len(present)] &= present
        # Disjuncts may be subsumed by a feature each where none subsumes them all.
        for part in predicate.parts if isinstance(predicate, And) else (predicate,):
            if isinstance(part, Or) and part.parts:
                might &= np.logical_or.reduce([self.might_match(p, opaque) for p in part.parts])
        return might


def _leaves(predicates: Iterable[Predicate]) -> Iterable[Leaves]:
    for p in predicates:
        if isinstance(p, And | Or):
            yield from _leaves(p.parts)
        elif not isinstance(p, Anything | Nothing):
            yield p


def bounds_of(leaf: Leaves) -> list[Any]:
    """The values that the leaf compares its column with."""
    if isinstance(leaf, OneOf):
        return list(leaf.values)
    return [v for v in (leaf.lo, leaf.hi) if v is not None] if isinstance(leaf, Range) else []


def truth(leaf: Leaves, line: Positions) -> Numbers:
    """Whether the leaf may be TRUE, for every position of its column; exact where its bounds are boundaries."""
    table = np.zeros(line.top + 1, bool)
    match leaf:
        case IsNull():
            table[0] = True
        case NotNull():
            table[1:] = True
        case OneOf(_, values):
            for left, right in map(line.find, values):
                table[left + right + 1] = True
        case Range(_, lo, hi, lo_open, hi_open):
            first, last = line.range(Interval(lo, hi, lo is not None and lo_open, hi is not None and hi_open))
            table[first : last + 1] = True
    return table


def _reduce(operation: np.ufunc, parts: Sequence[Numbers], rows: int) -> Numbers:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.full(rows, operation is np.logical_and)
    return np.asarray(operation.reduce(parts))


def _results(opaque: Sequence[Opaque], table: pa.Table) -> dict[Opaque, Numbers]:
    """The result of each opaque condition: Spark's, where it was sent along, else DuckDB's.

    DuckDB's may differ in rare cases such as the lower case of foreign letters. It is good for learning and pricing on
    a sample; what is stored is always routed by Spark's results.
    """
    found = {}
    for o in opaque:
        if o.text in table.column_names:
            found[o] = np.asarray(table.column(o.text)).astype(bool)
        else:
            found[o] = _by_duckdb(o, table)
    return found


def _by_duckdb(o: Opaque, table: pa.Table) -> Numbers:
    import duckdb

    with _duckdb().cursor() as con:
        con.register("rows", table.select(list(o.columns)))
        try:
            result = con.execute(f"SELECT coalesce({_duckdb_text(o.text)}, FALSE) AS hit FROM rows").fetchnumpy()
        except duckdb.Error:
            return np.ones(table.num_rows, bool)  # "may be" is always a safe answer
    return np.asarray(result["hit"]).astype(bool)


@cache
def _duckdb() -> Any:
    import duckdb

    con = duckdb.connect()
    atexit.register(_duckdb.cache_clear)  # what is there at the very end is told as leaked
    for name, op in (("add", "+"), ("subtract", "-"), ("multiply", "*"), ("divide", "/")):
        con.execute(f"CREATE MACRO try_{name}(a, b) AS try(a {op} b)")
    return con


@lru_cache(maxsize=1000)
def _duckdb_text(text: str) -> str:
    import sqlglot

    return sqlglot.transpile(text, read="spark", write="duckdb")[0]


def _forest(clusters: Sequence[Cluster]) -> tuple[list[Node], Numbers]:
    """The cells of all clusters as one list of nodes, with blocks numbered through, and each cluster's root."""
    nodes: list[Node] = []
    roots = []
    starts = accumulate((c.blocks for c in clusters), initial=0)
    for cluster, first in zip(clusters, starts, strict=False):
        roots.append(at := len(nodes))
        for node in cluster.cells:
            match node:
                case Leaf():
                    nodes.append(Leaf(node.block + first))
                case Cut():
                    nodes.append(Cut(node.column, node.op, node.value, node.left + at, node.right + at))
                case Groups():
                    children = tuple(c + at for c in node.children)
                    nodes.append(Groups(node.boxes, children, node.rest + at))
    return nodes, np.array(roots, np.int64)
