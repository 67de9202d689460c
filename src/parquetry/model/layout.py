"""A layout spec: the function from a row to its block, as data.

A tree layout is a list of nodes in preorder with the root first; children are indices into it and always larger than
their parent's, so that every walk is a plain loop however deep the tree is. Blocks are numbered in the same order:
neighbours in number are neighbours in the tree.
``extra`` are regions whose rows are stored a second time, as block ``EXTRA_BASE + j`` each (PW-22).
A curve layout ranks each column by boundaries, mixes the ranks' bits along a space-filling curve and cuts the curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parquetry.errors import SchemaError
from parquetry.model.box import Box, Interval
from parquetry.model.values import value_from_json, value_to_json

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
    options: Mapping[str, Any] = field(default_factory=dict)  # how it was learned; for people to read
    extra: tuple[Box, ...] = ()

    @property
    def blocks(self) -> int:
        return sum(isinstance(n, Leaf) for n in self.nodes)

    def __post_init__(self) -> None:
        leaves = [n.block for n in self.nodes if isinstance(n, Leaf)]
        if leaves != list(range(len(leaves))) or not leaves:
            raise SchemaError("a tree layout numbers its blocks 0, 1, 2, ... in the order of its leaves")
        seen = {0}
        for i, node in enumerate(self.nodes):
            for child in children(node):
                if not i < child < len(self.nodes) or child in seen:
                    raise SchemaError("a tree layout lists each node once, after its parent")
                seen.add(child)
        if len(seen) != len(self.nodes):
            raise SchemaError("a tree layout has a node that nothing leads to")
        _check_extra(self)

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
        _check_extra(self)

    def to_json(self) -> dict[str, Any]:
        boundaries = {c: [value_to_json(v) for v in vs] for c, vs in self.boundaries.items()}
        own = {"curve": self.curve, "bits": self.bits, "boundaries": boundaries, "cuts": list(self.cuts)}
        return {**_head(self), "kind": "curve", **own}


LayoutSpec = TreeLayout | CurveLayout


def children(node: Node) -> tuple[int, ...]:
    match node:
        case Cut():
            return (node.left, node.right)
        case Groups():
            return (*node.children, node.rest)
    return ()


def layout_from_json(d: Mapping[str, Any]) -> LayoutSpec:
    """The spec that ``to_json`` wrote."""
    if d.get("format") != FORMAT:
        raise SchemaError(f"layout format {d.get('format')!r} is not known to this release; upgrade parquetry")
    head = {
        "learner": d["learner"],
        "columns": tuple(d["columns"]),
        "options": dict(d["options"]),
        "extra": tuple(Box.from_json(b) for b in d.get("extra", ())),
    }
    if d["kind"] == "tree":
        return TreeLayout(nodes=tuple(_node_from_json(n) for n in d["nodes"]), **head)
    boundaries = {c: tuple(value_from_json(v) for v in vs) for c, vs in d["boundaries"].items()}
    return CurveLayout(curve=d["curve"], bits=d["bits"], boundaries=boundaries, cuts=tuple(d["cuts"]), **head)


def _head(spec: LayoutSpec) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "learner": spec.learner,
        "columns": list(spec.columns),
        "blocks": spec.blocks,
        "options": dict(spec.options),
        **({"extra": [b.to_json() for b in spec.extra]} if spec.extra else {}),
    }


def _check_extra(spec: LayoutSpec) -> None:
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
