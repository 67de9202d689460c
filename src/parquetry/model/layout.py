"""A layout spec: the function from a row to its block, as data.

A tree layout is a list of nodes in preorder with the root first; children are indices into it and always larger than
their parent's, so that every walk is a plain loop however deep the tree is. Blocks are numbered in the same order:
neighbours in number are neighbours in the tree.
``extra`` are regions whose rows are stored a second time, as block ``EXTRA_BASE + j`` each (PW-22).
A curve layout ranks each column by boundaries, mixes the ranks' bits along a space-filling curve and cuts the curve.
A feature layout tests a row against conditions and keeps rows with similar results together (WP-07).
A nested layout cuts one column into ranges and has a layout of its own for each; their blocks are numbered through.
A reaching layout cuts on what rows reach through keys, too.
``options`` tell how a layout was learned, for people to read. What code reads of them is decoded here: ``block_rows``,
``learned_blocks``, and what a nested layout makes parts for new ranges by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from parquetry.errors import SchemaError
from parquetry.model.box import Box, Interval
from parquetry.model.predicate import ANYTHING, Opaque, Predicate, predicate_from_json, predicate_to_json
from parquetry.model.reached import Reached
from parquetry.model.through import is_through, steps_of
from parquetry.model.values import order_key, value_from_json, value_to_json

FORMAT = 1
EXTRA_BASE = 1 << 30
"""The block number of the first extra block; all of them sort behind every other block."""
CURVES = ("zorder", "hilbert")


@dataclass(frozen=True)
class Leaf:
    block: int


@dataclass(frozen=True)
class Cut:
    """A row goes left when ``column op value`` is true or the column is null (RB-02, 3.5-10)."""

    column: str
    op: str  # "<" or "<="
    value: Any
    left: int
    right: int

    @property
    def left_side(self) -> Interval:
        return Interval(hi=self.value, hi_open=self.op == "<", nulls=True)

    @property
    def right_side(self) -> Interval:
        return Interval(lo=self.value, lo_open=self.op == "<=")


@dataclass(frozen=True)
class Groups:
    """A row goes to the child of the first box that holds it, else to ``rest``, the irregular block (PW-10)."""

    boxes: tuple[Box, ...]
    children: tuple[int, ...]
    rest: int


Node = Leaf | Cut | Groups


@dataclass(frozen=True)
class TreeLayout:
    learner: str
    columns: tuple[str, ...]
    nodes: tuple[Node, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    extra: tuple[Box, ...] = ()

    @property
    def blocks(self) -> int:
        return sum(isinstance(n, Leaf) for n in self.nodes)

    def __post_init__(self) -> None:
        _check_tree(self.nodes)
        _check_columns(self)

    def to_json(self) -> dict[str, Any]:
        return {**_head(self), "kind": "tree", "nodes": [_node_to_json(n) for n in self.nodes]}


@dataclass(frozen=True)
class CurveLayout:
    """The rank of a value is the number of boundaries at or below it, and 0 for null. Block ``i`` starts at curve
    value ``cuts[i-1]``; block 0 at 0."""

    learner: str
    columns: tuple[str, ...]
    curve: str
    bits: int
    boundaries: Mapping[str, tuple[Any, ...]]
    cuts: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    extra: tuple[Box, ...] = ()

    @property
    def blocks(self) -> int:
        return len(self.cuts) + 1

    def __post_init__(self) -> None:
        if self.curve not in CURVES or not 1 <= self.bits * len(self.columns) <= 62:
            raise SchemaError(f"a curve layout needs a curve of {', '.join(CURVES)} and at most 62 bits in all")
        if not set(self.columns) <= set(self.boundaries) or list(self.cuts) != sorted(self.cuts):
            raise SchemaError("a curve layout has boundaries for each of its columns, and ascending cuts")
        _check_columns(self)

    def to_json(self) -> dict[str, Any]:
        boundaries = {c: [value_to_json(v) for v in vs] for c, vs in self.boundaries.items()}
        own = {"curve": self.curve, "bits": self.bits, "boundaries": boundaries, "cuts": list(self.cuts)}
        return {**_head(self), "kind": "curve", **own}


@dataclass(frozen=True)
class NestedLayout:
    """Part ``i`` holds the rows with ``boundaries[i-1] <= column < boundaries[i]``, the first one nulls too (WP-18).

    The first and the last part are open to below and above, so every row has its place whatever comes later (WP-19).
    """

    learner: str  # the parts', unless that of one is another
    column: str
    boundaries: tuple[Any, ...]
    parts: tuple[LayoutSpec, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    extra: tuple[Box, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([self.column, *(c for part in self.parts for c in part.columns)]))

    @property
    def blocks(self) -> int:
        return sum(part.blocks for part in self.parts)

    @property
    def first_blocks(self) -> tuple[int, ...]:
        """The number of each part's first block."""
        return tuple(accumulate((part.blocks for part in self.parts[:-1]), initial=0))

    @property
    def within(self) -> str:
        """The column and the unit that its ranges follow."""
        return str(self.options["within"])

    @property
    def until(self) -> Any:
        """Where the last calendar unit that it knows ends; None where its ranges follow no calendar."""
        return value_from_json(self.options.get("until"))

    @property
    def inside(self) -> Mapping[str, Any]:
        """How its parts were learned, as far as that was said."""
        found: Mapping[str, Any] = self.options["inside"]
        return found

    @property
    def ranges(self) -> tuple[Interval, ...]:
        """The range of each part."""
        return ranges_between(self.boundaries)

    def __post_init__(self) -> None:
        keys = [order_key(v) for v in self.boundaries]
        if len(self.parts) != len(keys) + 1 or keys != sorted(set(keys)):
            raise SchemaError("a nested layout has ascending boundaries and one part more than these")
        if any(part.extra for part in self.parts):
            raise SchemaError("extra blocks belong to a nested layout as a whole, not to its parts")
        _check_columns(self)

    def to_json(self) -> dict[str, Any]:
        boundaries = [value_to_json(v) for v in self.boundaries]
        own = {"column": self.column, "boundaries": boundaries, "parts": [part.to_json() for part in self.parts]}
        return {**_head(self), "kind": "nested", **own}


@dataclass(frozen=True)
class Feature:
    """A condition that rows are tested against: the predicate and every opaque condition at once."""

    predicate: Predicate = ANYTHING
    opaque: tuple[Opaque, ...] = ()
    weight: float = 1.0  # of the logged queries that it subsumes (WP-05)

    def to_json(self) -> dict[str, Any]:
        opaque = [[o.text, list(o.columns)] for o in self.opaque]
        return {"if": predicate_to_json(self.predicate), "opaque": opaque, "weight": self.weight}

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> Feature:
        opaque = tuple(Opaque(text, tuple(columns)) for text, columns in d["opaque"])
        return cls(predicate_from_json(d["if"]), opaque, d["weight"])


ONE_BLOCK: tuple[Node, ...] = (Leaf(0),)


@dataclass(frozen=True)
class Cluster:
    """Rows that satisfy no feature but those in ``union``, bit ``i`` for feature ``i``.

    ``cells`` are the nodes of a tree that cuts the rows further: its leaves are the blocks.
    """

    union: int
    cells: tuple[Node, ...] = ONE_BLOCK

    @property
    def blocks(self) -> int:
        return sum(isinstance(n, Leaf) for n in self.cells)


@dataclass(frozen=True)
class FeatureLayout:
    """A row goes to the cluster that ``vectors`` names for its feature vector. A vector that was not seen when learning
    goes to the first cluster whose union covers it, and the last one covers all: so a cluster's union holds for every
    row that is ever routed to it (WP-13)."""

    learner: str
    columns: tuple[str, ...]
    features: tuple[Feature, ...]
    clusters: tuple[Cluster, ...]
    vectors: Mapping[int, int]  # to clusters (WP-12)
    options: Mapping[str, Any] = field(default_factory=dict)
    extra: tuple[Box, ...] = ()

    @property
    def blocks(self) -> int:
        return sum(c.blocks for c in self.clusters)

    def __post_init__(self) -> None:
        if not self.clusters or self.clusters[-1].union != (1 << len(self.features)) - 1:
            raise SchemaError("the last cluster of a feature layout takes unforeseen rows: its union has all features")
        if any(at < 0 or vector & ~self.clusters[at].union for vector, at in self.vectors.items()):
            raise SchemaError("a feature layout sends a vector to a cluster whose union does not cover it")
        for cluster in self.clusters:
            _check_tree(cluster.cells)
        _check_columns(self)

    def to_json(self) -> dict[str, Any]:
        def cells(nodes: tuple[Node, ...]) -> Any:
            return None if nodes == ONE_BLOCK else [_node_to_json(n) for n in nodes]

        own = {
            "features": [f.to_json() for f in self.features],
            "clusters": [[f"{c.union:x}", cells(c.cells)] for c in self.clusters],
            "vectors": [[f"{vector:x}", at] for vector, at in self.vectors.items()],
        }
        return {**_head(self), "kind": "features", **own}


@dataclass(frozen=True)
class ReachingLayout:
    """A layout that also cuts on what rows reach through keys: its inner one sees these as columns like any other."""

    inner: TreeLayout | CurveLayout
    reached: tuple[Reached, ...]

    @property
    def learner(self) -> str:
        return self.inner.learner

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's own."""
        return tuple(dict.fromkeys(steps_of(c)[0] for c in self.inner.columns))

    @property
    def blocks(self) -> int:
        return self.inner.blocks

    @property
    def options(self) -> Mapping[str, Any]:
        return self.inner.options

    @property
    def extra(self) -> tuple[Box, ...]:
        return ()

    def __post_init__(self) -> None:
        if self.inner.extra or {r.name for r in self.reached} != {c for c in self.inner.columns if is_through(c)}:
            raise SchemaError("a layout that reaches through keys has a map for each such column, and no extra blocks")

    def to_json(self) -> dict[str, Any]:
        maps = [r.to_json() for r in self.reached]
        return {**_head(self), "kind": "reaching", "inner": self.inner.to_json(), "reached": maps}


LayoutSpec = TreeLayout | CurveLayout | NestedLayout | FeatureLayout | ReachingLayout


def cut_columns(spec: LayoutSpec) -> tuple[str, ...]:
    """What a layout cuts on, with what it reaches through keys."""
    return spec.inner.columns if isinstance(spec, ReachingLayout) else spec.columns


def block_rows(spec: LayoutSpec) -> int | None:
    """The rows that its blocks were to have; None where nobody said so."""
    found = spec.options.get("block_rows")
    return None if found is None else int(found)


def learned_blocks(spec: LayoutSpec) -> int:
    """Its blocks before they were cut into cells."""
    return int(spec.options.get("learned_blocks", spec.blocks))


def ranges_between(boundaries: Sequence[Any]) -> tuple[Interval, ...]:
    """The ranges that ascending boundaries cut a column into: each begins with its boundary, the first with nulls."""
    pairs = enumerate(zip((None, *boundaries), (*boundaries, None), strict=True))
    return tuple(Interval(lo, hi, hi_open=hi is not None, nulls=i == 0) for i, (lo, hi) in pairs)


def children(node: Node) -> tuple[int, ...]:
    match node:
        case Cut():
            return (node.left, node.right)
        case Groups():
            return (*node.children, node.rest)
    return ()


def layout_from_json(d: Mapping[str, Any]) -> LayoutSpec:
    """The spec that ``to_json`` wrote; a SchemaError for whatever else."""
    try:
        if d.get("format") != FORMAT:
            raise SchemaError(f"layout format {d.get('format')!r} is not known to this release; upgrade parquetry")
        return _decoded(d)
    except _UNDECODABLE as e:
        raise SchemaError(
            f"a table's layout cannot be read ({type(e).__name__}: {e}); the catalog is damaged: restore it from a copy"
        ) from e


# What decoding may raise where something is missing, of another type, or out of range.
_UNDECODABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, OSError)


def _decoded(d: Mapping[str, Any]) -> LayoutSpec:
    head = {
        "learner": d["learner"],
        "columns": tuple(d["columns"]),
        "options": dict(d["options"]),
        "extra": tuple(Box.from_json(b) for b in d.get("extra", ())),
    }
    if d["kind"] == "tree":
        return TreeLayout(nodes=tuple(_node_from_json(n) for n in d["nodes"]), **head)
    if d["kind"] == "features":
        return _features_from_json(d, head)
    if d["kind"] == "nested":
        del head["columns"]
        values = tuple(value_from_json(v) for v in d["boundaries"])
        parts = tuple(layout_from_json(part) for part in d["parts"])
        return NestedLayout(column=d["column"], boundaries=values, parts=parts, **head)
    if d["kind"] == "reaching":
        inner = layout_from_json(d["inner"])
        if not isinstance(inner, TreeLayout | CurveLayout):
            raise SchemaError("a layout that reaches through keys is a tree or a curve inside")
        return ReachingLayout(inner, tuple(Reached.from_json(r) for r in d["reached"]))
    if d["kind"] != "curve":
        raise SchemaError(f"layout kind {d['kind']!r} is not known to this release; upgrade parquetry")
    boundaries = {c: tuple(value_from_json(v) for v in vs) for c, vs in d["boundaries"].items()}
    return CurveLayout(curve=d["curve"], bits=d["bits"], boundaries=boundaries, cuts=tuple(d["cuts"]), **head)


def _features_from_json(d: Mapping[str, Any], head: Mapping[str, Any]) -> FeatureLayout:
    clusters = tuple(
        Cluster(int(union, 16), ONE_BLOCK if cells is None else tuple(_node_from_json(n) for n in cells))
        for union, cells in d["clusters"]
    )
    vectors = {int(vector, 16): at for vector, at in d["vectors"]}
    features = tuple(Feature.from_json(f) for f in d["features"])
    return FeatureLayout(features=features, clusters=clusters, vectors=vectors, **head)


def _head(spec: LayoutSpec) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "learner": spec.learner,
        "columns": list(spec.columns),
        "blocks": spec.blocks,
        "options": dict(spec.options),
        **({"extra": [b.to_json() for b in spec.extra]} if spec.extra else {}),
    }


def _check_tree(nodes: Sequence[Node]) -> None:
    leaves = [n.block for n in nodes if isinstance(n, Leaf)]
    if leaves != list(range(len(leaves))) or not leaves:
        raise SchemaError("a tree layout numbers its blocks 0, 1, 2, ... in the order of its leaves")
    seen = {0}
    for i, node in enumerate(nodes):
        for child in children(node):
            if not i < child < len(nodes) or child in seen:
                raise SchemaError("a tree layout lists each node once, after its parent")
            seen.add(child)
        if isinstance(node, Cut) and (node.op not in ("<", "<=") or node.value is None):
            raise SchemaError("a tree layout cuts a column by < or <= at a value")
        if isinstance(node, Groups) and len(node.boxes) != len(node.children):
            raise SchemaError("a tree layout has as many boxes in a group as children for them")
    if len(seen) != len(nodes):
        raise SchemaError("a tree layout has a node that nothing leads to")


def _check_columns(spec: LayoutSpec) -> None:
    if not all(isinstance(c, str) for c in spec.columns):
        raise SchemaError("the columns of a layout are names")
    if any(c not in spec.columns for box in spec.extra for c in box.intervals):
        raise SchemaError("the extra blocks of a layout are cut on its own columns only")


def _node_to_json(node: Node) -> dict[str, Any]:
    match node:
        case Leaf():
            return {"block": node.block}
        case Cut():
            cut = [node.column, node.op, value_to_json(node.value)]
            return {"cut": cut, "left": node.left, "right": node.right}
        case Groups():
            boxes = [b.to_json() for b in node.boxes]
            return {"boxes": boxes, "children": list(node.children), "rest": node.rest}


def _node_from_json(d: Mapping[str, Any]) -> Node:
    if "block" in d:
        return Leaf(d["block"])
    if "cut" in d:
        column, op, value = d["cut"]
        return Cut(column, op, value_from_json(value), d["left"], d["right"])
    return Groups(tuple(Box.from_json(b) for b in d["boxes"]), tuple(d["children"]), d["rest"])
