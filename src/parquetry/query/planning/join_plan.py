"""How a join is dealt to workers on Spark."""

from __future__ import annotations

from dataclasses import dataclass

from parquetry.query.compile.join_parts import JoinParts
from parquetry.splits.assignment import SplitTask


@dataclass(frozen=True, eq=False)
class JoinPlan:
    """``tasks`` are the workers' parts, each with what it reads of every mention in ``parts``, in their order."""

    way: str  # the rule that made it
    parts: JoinParts
    tasks: tuple[tuple[SplitTask, ...], ...]
    bytes: float  # that all workers read together
    largest: float  # that one of them reads
    seconds: float  # expected
    told: str  # how it is dealt, for people

    @property
    def skew(self) -> float:
        """The largest part against the average one."""
        return self.largest * len(self.tasks) / self.bytes if self.bytes else 1.0
