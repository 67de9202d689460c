"""Routing: the block of every row, in numpy and as a Spark expression. Both follow the spec and agree on every row."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from parquetry.layouts.codec import Numbers
from parquetry.layouts.curve import curve_values
from parquetry.layouts.router import Router
from parquetry.model.box import Box, Interval
from parquetry.model.layout import CurveLayout, Cut, Groups, LayoutSpec, Leaf, Node, TreeLayout, children

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

_EXPRESSION_BLOCKS = 64


def boundary_values(spec: TreeLayout) -> dict[str, list[Any]]:
    """Every value that the spec compares a column with."""
    found: dict[str, list[Any]] = defaultdict(list)
    for node in spec.nodes:
        if isinstance(node, Cut):
            found[node.column].append(node.value)
        elif isinstance(node, Groups):
            for box in node.boxes:
                for column, i in box.intervals.items():
                    found[column] += [v for v in (i.lo, i.hi) if v is not None]
                    found.setdefault(column, [])
    return dict(found)


def route_numpy(spec: LayoutSpec, table: pa.Table) -> Numbers:
    """The block of every row of ``table``, as int32."""
    if isinstance(spec, CurveLayout):
        return np.searchsorted(np.array(spec.cuts, np.int64), curve_values(spec, table), "right").astype(np.int32)
    return router_of(spec, table.schema).route(table)


def router_of(spec: TreeLayout, schema: pa.Schema) -> Router:
    boundaries = boundary_values(spec)
    return Router(spec, boundaries, {c: schema.field(c).type for c in boundaries})


def route_spark(spec: LayoutSpec) -> SparkColumn:
    """A Spark column with the block of each row: one SQL expression for a small tree, else the numpy code in an Arrow
    function that is sent the layout's columns only. A large tree or a curve as an expression passes the JVM's limit
    for a method and would run interpreted, after long attempts to compile it."""
    from pyspark.sql import functions as F

    if isinstance(spec, TreeLayout) and spec.blocks <= _EXPRESSION_BLOCKS:
        return F.expr(route_sql(spec))

    columns = list(spec.columns)

    made: list[Router] = []  # by the first batch of a task, for the others

    def block(*arrays: pa.Array) -> pa.Array:
        table = pa.table(list(arrays), names=columns)
        if isinstance(spec, CurveLayout):
            return pa.array(route_numpy(spec, table), pa.int32())
        if not made:
            made.append(router_of(spec, table.schema))
        return pa.array(made[0].route(table), pa.int32())

    return F.arrow_udf(block, "int")(*[F.col(_quote(c)) for c in columns])  # type: ignore[call-overload, no-any-return]


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
    name = _quote(column)
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


def _quote(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def literal(value: Any) -> str:
    """A Spark SQL literal, whatever the session's time zone and escape settings are.

    >>> literal(date(1994, 1, 1)), literal(5), literal(Decimal("1.50"))
    ("DATE '1994-01-01'", '5L', '1.50BD')
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}L" if -(2**63) < value < 2**63 else f"{value}BD"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal():
            return f"{value:f}BD"
        case str():
            plain = value.isascii() and value.isprintable() and "'" not in value and "\\" not in value
            return f"'{value}'" if plain else f"CAST(X'{value.encode().hex()}' AS STRING)"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() if value.tzinfo is not None:
            return f"TIMESTAMP_MICROS({(value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)}L)"
        case datetime():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
    raise TypeError(f"no Spark literal for {type(value).__name__}")
