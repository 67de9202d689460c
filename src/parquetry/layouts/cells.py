"""Order inside a block: its rows are cut further into cells, so that row groups below the block skip as well.

The paper's blocks are as large as files must be; a row group may be much smaller. Cells are leaves of the same tree, so
routing, sorting and pruning need no second mechanism: a block becomes a run of neighbouring leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from parquetry.layouts.learners.grow import CutAt, Part, Split, grow, median_cut, spread
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import encode
from parquetry.layouts.learners.warp import cut_clusters
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.route import route_numpy
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
)
from parquetry.model.logged_query import LoggedQuery

_LEAST_SAMPLE = 16  # rows of the sample that a cell needs to be worth a cut


def with_cells(
    spec: LayoutSpec, sample: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions, cells: int
) -> LayoutSpec:
    """``spec`` with every block cut into about ``cells`` cells by medians of the layout's columns."""
    finer = replace(options, block_rows=max(1, options.block_rows // max(1, cells)))
    if cells <= 1 or finer.sample_block_rows < _LEAST_SAMPLE or not sample.num_rows:
        return spec
    if isinstance(spec, CurveLayout):
        # A curve's cells are finer cuts of the same curve.
        return learn(spec.learner, sample, workload, finer)
    if isinstance(spec, NestedLayout | ReachingLayout):
        return spec  # its parts have theirs
    if isinstance(spec, FeatureLayout):
        return cut_clusters(spec, sample, workload, finer)
    blocks = route_numpy(spec, sample)
    order = np.argsort(blocks, kind="stable")
    starts = np.searchsorted(blocks[order], np.arange(spec.blocks + 1))
    return _grafted(
        spec, [_cell_tree(sample.take(order[a:b]), finer) for a, b in zip(starts, starts[1:], strict=False)]
    )


def _cell_tree(rows: pa.Table, options: LearnOptions) -> TreeLayout:
    """The cells of one block: always the column in which it is widest, at the median."""
    encoded = encode(rows, (), options, extended=False)
    columns = range(len(encoded.columns))

    def decide(part: Part) -> Split | None:
        if part.rows < 2 * options.sample_block_rows:
            return None
        for column in np.argsort(-spread(encoded, part, columns), kind="stable").tolist():
            position = median_cut(part.places[column], options.sample_block_rows)
            if position is not None:
                return CutAt(column, position)
        return None

    return grow(encoded, "cells", decide, {})


def _grafted(spec: TreeLayout, trees: Sequence[TreeLayout]) -> TreeLayout:
    """Each leaf of ``spec`` replaced by its own tree; nodes stay in preorder and blocks are numbered anew."""
    nodes: list[Node] = []
    block = 0

    def put(tree: TreeLayout, at: int, graft: bool) -> int:
        nonlocal block
        node = tree.nodes[at]
        if isinstance(node, Leaf) and graft:
            return put(trees[node.block], 0, graft=False)
        place = len(nodes)
        nodes.append(node)
        if isinstance(node, Leaf):
            nodes[place] = Leaf(block)
            block += 1
        elif isinstance(node, Cut):
            left = put(tree, node.left, graft)
            nodes[place] = replace(node, left=left, right=put(tree, node.right, graft))
        elif isinstance(node, Groups):
            children = tuple(put(tree, c, graft) for c in node.children)
            nodes[place] = replace(node, children=children, rest=put(tree, node.rest, graft))
        return place

    put(spec, 0, graft=True)
    return replace(spec, nodes=tuple(nodes), options={**spec.options, "learned_blocks": spec.blocks})
