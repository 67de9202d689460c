"""What a layout learner needs to know of one logged query."""

from __future__ import annotations

from dataclasses import dataclass

from parquetry.model.predicate import Opaque, Predicate


@dataclass(frozen=True)
class LoggedQuery:
    """The condition that one query put on one table. A workload lists its queries oldest first."""

    predicate: Predicate
    weight: float = 1.0  # how often it ran
    opaque: tuple[Opaque, ...] = ()  # what it demands beside the predicate, as conditions that can only be evaluated
