"""A tree, or a forest, compiled to arrays: all rows of a batch descend together, one comparison per step.

Every node becomes a test "position <= limit"; a box of an irregular split is a chain of such tests. The cost of a batch
grows with the depth of the tree, not with its number of blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.positions import Positions
from parquetry.model.layout import Cut, Groups, Leaf, Node


def boundary_values(nodes: Sequence[Node]) -> dict[str, list[Any]]:
    """Every value that the nodes compare a column with."""
    found: dict[str, list[Any]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, Cut):
            found[node.column].append(node.value)
        elif isinstance(node, Groups):
            for box in node.boxes:
                for column, i in box.intervals.items():
                    found[column] += [v for v in (i.lo, i.hi) if v is not None]
                    found.setdefault(column, [])
    return dict(found)


class Router:
    """Routes batches of tables with this schema. Nodes come after their parents; the first is a root, as others may
    be."""

    def __init__(self, nodes: Sequence[Node], schema: pa.Schema) -> None:
        boundaries = boundary_values(nodes)
        self.columns = list(boundaries)
        self.lines = [Positions.of(values, schema.field(c).type) for c, values in boundaries.items()]
        line = dict(zip(self.columns, self.lines, strict=True))
        number = {c: i for i, c in enumerate(self.columns)}
        tests: list[tuple[int, int, int, int]] = []  # column, limit, next if position <= limit, next if above
        entry: dict[int, int] = {}  # where a node's tests begin; a leaf is ~block

        def add(column: str, limit: int, within: int, above: int) -> int:
            tests.append((number[column], limit, within, above))
            return len(tests) - 1

        # Children come after their parents in the list, so backwards every child is known when its parent is built.
        for i in range(len(nodes) - 1, -1, -1):
            node = nodes[i]
            if isinstance(node, Leaf):
                entry[i] = ~node.block
            elif isinstance(node, Cut):
                limit = line[node.column].range(node.left_side)[1]
                entry[i] = add(node.column, limit, entry[node.left], entry[node.right])
            elif isinstance(node, Groups):
                otherwise = entry[node.rest]
                for box, child in reversed(list(zip(node.boxes, node.children, strict=True))):
                    inside = entry[child]
                    for column, interval in box.intervals.items():
                        lo, hi = line[column].range(interval)
                        if hi < line[column].top:
                            inside = add(column, hi, inside, otherwise)
                        if lo > 0:
                            inside = add(column, lo - 1, otherwise, inside)
                    otherwise = inside
                entry[i] = otherwise
        self.entry: Numbers = np.array([entry[i] for i in range(len(nodes))], np.int32)
        table = np.array(tests, np.int32).reshape(-1, 4)
        self.column, self.limit, self.within, self.above = (np.ascontiguousarray(c) for c in table.T)

    def route(self, table: pa.Table, roots: Numbers | None = None) -> Numbers:
        """The block of every row, as int32. ``roots`` is the node that each row starts at; None: all at the first."""
        count = table.num_rows
        at = np.full(count, self.entry[0], np.int32) if roots is None else self.entry[roots]
        blocks: Numbers = ~at  # right where a row starts at a leaf
        rows = np.flatnonzero(at >= 0)
        if not len(rows):
            return blocks
        places = np.concatenate([line.place(table.column(c)) for c, line in zip(self.columns, self.lines, strict=True)])
        starts = self.column.astype(np.int64) * count  # of each test's column in ``places``
        at = at[rows]
        while len(rows):
            below = places[starts[at] + rows] <= self.limit[at]
            at = np.where(below, self.within[at], self.above[at])
            done = at < 0
            if done.any():
                blocks[rows[done]] = ~at[done]
                rows, at = rows[~done], at[~done]
        return blocks
