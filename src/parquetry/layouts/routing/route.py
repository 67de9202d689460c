"""Routing: the block of every row, in numpy and as a Spark expression. Both follow the spec and agree on every row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.curve import curve_values
from parquetry.layouts.coding.positions import Positions
from parquetry.layouts.coding.tree_router import Router
from parquetry.layouts.pruning.features import FeatureRouter, feature_parts, opaque_conditions
from parquetry.layouts.routing.extra_blocks import extra_blocks_of
from parquetry.model.box import Box, Interval
from parquetry.model.layout import (
    CurveLayout,
    Cut,
    FeatureLayout,
    Groups,
    LayoutSpec,
    Leaf,
    NestedLayout,
    Node,
    ReachingLayout,
    TreeLayout,
    children,
)
from parquetry.model.reached import with_reached
from parquetry.storage.merge import BLOCK
from parquetry.storage.spark_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

_EXPRESSION_BLOCKS = 64


def route_numpy(spec: LayoutSpec, table: pa.Table) -> Numbers:
    """The block of every row of ``table``, as int32."""
    return compiled(spec, table.schema)(table)


def in_blocks(rows: pa.Table, spec: LayoutSpec | None) -> pa.Table:
    """``rows`` with ``__block``, as :func:`~parquetry.layouts.routing.spark_blocks.with_blocks` does it on Spark."""
    if spec is None or not rows.num_rows:
        return rows
    routed = rows.append_column(BLOCK, pa.array(route_numpy(spec, rows), pa.int32()))
    if not spec.extra:
        return routed
    copies = extra_blocks_of(spec.extra, rows.select(list(spec.columns)))
    again = routed.take(pc.list_parent_indices(copies))
    again = again.set_column(again.schema.get_field_index(BLOCK), BLOCK, pc.list_flatten(copies))
    return pa.concat_tables([routed, again])


Route = Callable[[pa.Table], Numbers]


def compiled(spec: LayoutSpec, schema: pa.Schema) -> Route:
    """:func:`route_numpy` for many batches of one schema: what depends on the spec alone is done once."""
    if isinstance(spec, CurveLayout):
        cuts = np.array(spec.cuts, np.int64)
        return lambda table: np.searchsorted(cuts, curve_values(spec, table), "right").astype(np.int32)
    if isinstance(spec, NestedLayout):
        return _compiled_parts(spec, schema)
    if isinstance(spec, FeatureLayout):
        return FeatureRouter([spec], schema).route
    if isinstance(spec, ReachingLayout):
        reached = spec.reached
        inner = compiled(spec.inner, with_reached(schema.empty_table(), reached).schema)
        return lambda table: inner(with_reached(table, reached))
    return Router(spec.nodes, schema).route


def _compiled_parts(spec: NestedLayout, schema: pa.Schema) -> Route:
    line = Positions.of(spec.boundaries, schema.field(spec.column).type)
    if (featured := feature_parts(spec)) is not None:
        together = FeatureRouter(featured, schema)
        return lambda table: together.route(table, line.place(table.column(spec.column)) // 2)
    parts: dict[int, Route] = {}  # a batch often has rows of few ranges only
    first_blocks = spec.first_blocks

    def route(table: pa.Table) -> Numbers:
        ranges = line.place(table.column(spec.column)) // 2  # the number of boundaries at or below the value
        order = np.argsort(ranges, kind="stable")
        found, starts = np.unique(ranges[order], return_index=True)
        blocks = np.empty(table.num_rows, np.int32)
        for i, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            if i not in parts:
                parts[i] = compiled(spec.parts[i], schema)
            blocks[rows] = parts[i](table.take(rows)) + first_blocks[i]
        return blocks

    return route


def route_spark(spec: LayoutSpec) -> SparkColumn:
    """A Spark column with the block of each row: one SQL expression for a small tree, else the numpy code in an Arrow
    function that is sent the layout's columns only. A large tree or a curve as an expression passes the JVM's limit
    for a method and would run interpreted, after long attempts to compile it."""
    from pyspark.sql import functions as F

    if isinstance(spec, TreeLayout) and spec.blocks <= _EXPRESSION_BLOCKS:
        return F.expr(route_sql(spec))

    # Only Spark evaluates an opaque condition exactly as the query that asks for it does: its result is sent along.
    conditions = opaque_conditions(spec)
    columns = [*spec.columns, *(o.text for o in conditions)]
    sent = [*(F.col(quote(c)) for c in spec.columns), *(F.expr(f"coalesce({o.text}, FALSE)") for o in conditions)]

    made: list[Route] = []  # by the first batch of a task, for the others

    def block(*arrays: pa.Array) -> pa.Array:
        table = pa.table(list(arrays), names=columns)
        if not made:
            made.append(compiled(spec, table.schema))
        return pa.array(made[0](table), pa.int32())

    return F.arrow_udf(block, "int")(*sent)  # type: ignore[call-overload, no-any-return]


def route_sql(spec: TreeLayout) -> str:
    """The tree as nested CASE. The larger child always continues the same CASE, so nesting stays below log2(blocks)
    however deep the tree is: neither Spark's parser nor its optimiser recurses far."""
    leaves = [1] * len(spec.nodes)
    for i in range(len(spec.nodes) - 1, -1, -1):
        leaves[i] = sum(leaves[c] for c in children(spec.nodes[i])) or 1
    onward = {_onward(node, leaves) for node in spec.nodes}
    text: dict[int, str] = {}
    for i in range(len(spec.nodes) - 1, -1, -1):
        if i not in onward:
            text[i] = _case(spec, i, leaves, text)
    return text[0]


def _onward(node: Node, leaves: list[int]) -> int:
    """The child that continues its parent's CASE; -1 for a leaf."""
    if isinstance(node, Cut):
        return node.right if leaves[node.left] <= leaves[node.right] else node.left
    return node.rest if isinstance(node, Groups) else -1


def _case(spec: TreeLayout, i: int, leaves: list[int], text: dict[int, str]) -> str:
    branches: list[tuple[str, int]] = []
    while not isinstance(node := spec.nodes[i], Leaf):
        i = _onward(node, leaves)
        if isinstance(node, Groups):
            branches += [(_inside_box(b), c) for b, c in zip(node.boxes, node.children, strict=True)]
        elif i == node.right:
            branches.append((_inside(node.column, node.left_side), node.left))
        else:
            branches.append((_inside(node.column, node.right_side), node.right))
    if not branches:
        return str(node.block)
    whens = " ".join(f"WHEN {condition} THEN {text[child]}" for condition, child in branches)
    return f"CASE {whens} ELSE {node.block} END"


def _inside_box(box: Box) -> str:
    return " AND ".join(_inside(c, i) for c, i in box.intervals.items()) or "TRUE"


def _inside(column: str, interval: Interval) -> str:
    name = quote(column)
    if not interval.values:
        return f"({name} IS NULL)" if interval.nulls else "FALSE"
    parts = []
    if interval.lo is not None:
        parts.append(f"{name} {'>' if interval.lo_open else '>='} {literal(interval.lo)}")
    if interval.hi is not None:
        parts.append(f"{name} {'<' if interval.hi_open else '<='} {literal(interval.hi)}")
    if not parts:
        return "TRUE" if interval.nulls else f"({name} IS NOT NULL)"
    return f"({' AND '.join(parts)}{f' OR {name} IS NULL' if interval.nulls else ''})"
