"""How a join is dealt to workers on Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parquetry.query.compile.join_parts import JoinParts
from parquetry.splits.assignment import SplitTask

Role = Literal["dealt", "aligned", "whole"]


@dataclass(frozen=True)
class JoinSource:
    """One mention of a table: whether its rows are dealt out, follow those that are, or are read whole by everyone."""

    number: int
    table: str
    columns: tuple[str, ...]
    role: Role


@dataclass(frozen=True, eq=False)
class JoinPlan:
    """``tasks`` are the workers' parts, each with what it reads of every source, in the order of ``sources``."""

    way: str  # the rule that made it
    parts: JoinParts
    sources: tuple[JoinSource, ...]
    tasks: tuple[tuple[SplitTask, ...], ...]
    bytes: float  # that all workers read together
    largest: float  # that one of them reads
    seconds: float  # expected
    told: str  # how it is dealt, for people

    @property
    def skew(self) -> float:
        """The largest part against the average one."""
        return self.largest * len(self.tasks) / self.bytes if self.bytes else 1.0
