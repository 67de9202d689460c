"""Robust tree: hyper partitioning, which helps a little with a filter on any column and needs no queries at all.

Unlike in a k-d tree, branches of one level cut on different columns, so far more columns than levels get their part
(RB-05). Which one a node cuts on follows from what each column still lacks (RB-10).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.errors import SchemaError, UnknownColumn
from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.learners.allocation import FANOUT, Allocation
from parquetry.layouts.learners.grow import FIRST_CUT, median_cut
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import Sample, encode
from parquetry.model.layout import Cut, Leaf, Node, TreeLayout
from parquetry.model.logged_query import LoggedQuery

VARIANTS = ("even", "paper")


def learn_robust(sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions) -> TreeLayout:
    """A tree over all columns that can be cut, or those named, whatever the queries are.

    Variant "even": blocks of at least ``block_rows``, every node cut where it halves best, and the largest node
    first, which with even halves is the paper's order. Variant "paper": the printed algorithm, for which
    ``block_rows`` is the most that a block should have; duplicates may leave small blocks (3.3-5, 3.3-7).
    """
    encoded = encode_data(sample, options)
    levels = levels_of(encoded, options)
    return grow_robust(encoded, "robust", options, described(options, levels), levels)


def described(options: LearnOptions, levels: float) -> dict[str, Any]:
    """How a tree was learned, for people to read."""
    weights = {"weights": dict(options.weights)} if options.weights else {}
    return {"block_rows": options.block_rows, "variant": variant_of(options), "levels": round(levels, 2), **weights}


def variant_of(options: LearnOptions) -> str:
    variant = options.variant or VARIANTS[0]
    if variant not in VARIANTS:
        raise SchemaError(f"robust and two_phase have the variants {' and '.join(VARIANTS)}, not '{variant}'")
    return variant


def encode_data(sample: pa.Table, options: LearnOptions) -> Sample:
    """The sample over all columns that have an order, or the named ones, without any query."""
    columns = options.columns
    if columns is None:
        columns = tuple(f.name for f in sample.schema if not (pa.types.is_nested(f.type) or pa.types.is_null(f.type)))
    for column in options.weights or {}:
        if column not in columns:
            raise UnknownColumn(column, "the columns to cut on", list(columns))
    return encode(sample, (), replace(options, columns=columns), extended=False)


def levels_of(sample: Sample, options: LearnOptions) -> float:
    """The depth of a balanced tree: rounded up in the paper's variant, where a block has a largest size (3.3-7)."""
    blocks = max(1.0, sample.rows / options.sample_block_rows)
    return float(math.ceil(math.log2(math.ceil(blocks)))) if variant_of(options) == "paper" else math.log2(blocks)


@dataclass
class _Growing:
    places: Numbers
    level: int = 0
    path: tuple[int, ...] = ()
    cut: tuple[int, int] | None = None  # column and position
    sides: list[_Growing] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return int(self.places.shape[1])


def grow_robust(
    sample: Sample,
    learner: str,
    options: LearnOptions,
    how: dict[str, Any],
    levels: float,
    first: str | None = None,
    first_levels: int = 0,
) -> TreeLayout:
    """Algorithm 1; the uppermost ``first_levels`` cut on column ``first`` wherever they can (RB-24)."""
    literal = variant_of(options) == "paper"
    joined = [c for c, name in enumerate(sample.columns) if name == first]
    shared = [name for name in sample.columns if name != first] or list(sample.columns)
    number = [sample.columns.index(name) for name in shared]
    allocation = Allocation(shared, max(0.0, levels - first_levels), options.weights or {}, options.seed)

    def amount(node: _Growing) -> float:
        return FANOUT / 2**node.level if literal else FANOUT * node.rows / sample.rows

    def decide(node: _Growing) -> tuple[int, int] | None:
        if node.level >= levels if literal else node.rows < 2 * options.sample_block_rows:
            return None
        if node.level < first_levels and joined:
            position = _position(node.places[joined[0]], options, literal)
            if position is not None:
                return joined[0], position
        path = [number.index(c) for c in node.path if c in number]
        for column in allocation.order(amount(node), path):
            position = _position(node.places[number[column]], options, literal)
            if position is not None:  # a column that cannot cut here keeps its allocation for elsewhere (3.3-4)
                allocation.take(column, amount(node))
                return number[column], position
        return None

    root = _Growing(sample.places)
    waiting = [(0, 0, root)]  # what comes first, the order of arrival, the node
    arrived = 1
    while waiting:
        *_, node = heapq.heappop(waiting)
        node.cut = decide(node)
        if node.cut is None:
            continue
        column, position = node.cut
        below = node.places[column] < position
        for rows in (below, ~below):
            side = _Growing(node.places[:, rows], node.level + 1, (*node.path, column))
            node.sides.append(side)
            heapq.heappush(waiting, (side.level if literal else -side.rows, arrived, side))
            arrived += 1
        node.places = np.empty((0, 0), np.int32)
    return TreeLayout(learner, sample.columns, tuple(_in_preorder(sample, root)), how)


def _position(places: Numbers, options: LearnOptions, literal: bool) -> int | None:
    """Where the branch's sample is cut at its median, or None where the column cannot cut it (RB-12, 3.3-4)."""
    if not literal:
        return median_cut(places, options.sample_block_rows)
    if not len(places):
        return None
    middle = int(np.partition(places, len(places) // 2)[len(places) // 2])
    if (places < middle).any():  # largest value below the median, as "<" the median itself (3.3-5)
        return middle
    return max(middle + 1, FIRST_CUT) if (places > middle).any() else None


def _in_preorder(sample: Sample, root: _Growing) -> list[Node]:
    nodes: list[Any] = []
    blocks = 0
    waiting: list[tuple[_Growing, int, str]] = [(root, -1, "")]
    while waiting:
        node, parent, side = waiting.pop()
        if parent >= 0:
            nodes[parent][side] = len(nodes)
        if node.cut is None:
            nodes.append(Leaf(blocks))
            blocks += 1
            continue
        column, position = node.cut
        op, value = sample.lines[column].cut(position)
        waiting += [(node.sides[1], len(nodes), "right"), (node.sides[0], len(nodes), "left")]
        nodes.append({"column": sample.columns[column], "op": op, "value": value})
    return [node if isinstance(node, Leaf) else Cut(**node) for node in nodes]
