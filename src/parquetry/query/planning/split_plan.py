"""How a query is cut into splits for scan workers."""

from __future__ import annotations

from dataclasses import dataclass

from parquetry.query.compile.partials import PartialPlan
from parquetry.splits.assignment import SplitTask
from parquetry.splits.cut import Splits
from parquetry.splits.other_orders import KeyOrder
from parquetry.splits.ranges import KeyRanges


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """How a query is cut: the splits with what they cost, one task for each that has rows, what each task runs."""

    ranges: KeyRanges
    splits: Splits
    theta: float
    tasks: tuple[SplitTask, ...]
    order: KeyOrder  # in which it is cut
    parts: PartialPlan | None  # None: workers give rows, and Spark runs the user's text over them
    rounds_read: int  # of index reads that cutting took
    nodes_read: int  # index nodes that were read; all others were in memory
    plan_ms: float
