"""What the advisor says, as data: the ranking, the bounds, the verdict, and the reasons in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

KEEP, RELAYOUT = "keep", "relayout"
_AS_GOOD = 0.02  # costs that close are one for an estimate from a sample
_NOTHING = 0.01  # a difference to today that is none


@dataclass(frozen=True)
class Bound:
    """The least that any layout could read per query: the matching rows, and the same in whole row groups."""

    rows: float
    bytes: float
    rounded_rows: float
    rounded_bytes: float


@dataclass(frozen=True)
class Measured:
    """One layout on the held-out queries; all figures are means per query. ``sensitivity``: bytes by scenario."""

    label: str
    learner: str
    settings: Mapping[str, Any]
    columns: tuple[str, ...]
    blocks: int
    row_groups: int
    groups_per_query: float
    rows_per_query: float
    bytes_per_query: float
    sensitivity: Mapping[str, float] = field(default_factory=dict)
    learn_s: float = 0.0
    pays_back_after: float | None = None  # queries until the rewrite's bytes are saved; None: never
    reason: str = ""

    @property
    def worst_case(self) -> float:
        return max(self.sensitivity.values(), default=self.bytes_per_query)


@dataclass(frozen=True)
class LeftOut:
    """A candidate without a figure, and why."""

    label: str
    why: str


@dataclass(frozen=True)
class Advice:
    """``verdict`` is "relayout" with a ``winner``, or "keep"; ``reason`` says why in one line."""

    table: str
    verdict: str
    reason: str
    winner: str | None = None
    today: Measured | None = None
    candidates: tuple[Measured, ...] = ()  # the cheapest first
    left_out: tuple[LeftOut, ...] = ()
    bound: Bound | None = None
    learned_from: int = 0
    held_out: int = 0
    rows: int = 0
    sample_rows: int = 0
    rewrite_bytes: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Measured | None:
        return next((c for c in self.candidates if c.label == self.winner), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def times(many: float, few: float) -> str:
    """How many times ``many`` is ``few``, for people.

    >>> times(300, 100), times(100, 0)
    ('3.0 x', 'infinitely many x')
    """
    return f"{many / few:.1f} x" if few else "infinitely many x"


def reason_for(found: Measured, today: Measured, bound: Bound) -> str:
    """Why one should or should not take this layout."""
    read = f"reads {found.groups_per_query:,.1f} of {found.row_groups:,} row groups per query"
    if bound.rounded_bytes:
        read += f", {times(found.bytes_per_query, bound.rounded_bytes)} the least possible"
    if abs(found.bytes_per_query - today.bytes_per_query) <= _NOTHING * today.bytes_per_query:
        gain = "as much as today"
    elif found.bytes_per_query < today.bytes_per_query:
        gain = f"{times(today.bytes_per_query, found.bytes_per_query)} less than today"
    else:
        gain = f"{times(found.bytes_per_query, today.bytes_per_query)} as much as today"
    text = f"{read}; {gain}"
    if found.columns:
        text += f"; cuts on {', '.join(found.columns)}"
    worst = max(found.sensitivity, key=lambda name: found.sensitivity[name], default=None)
    if worst is not None and found.sensitivity[worst] > 2 * found.bytes_per_query > 0:
        text += f"; reads {times(found.sensitivity[worst], found.bytes_per_query)} as much under '{worst}'"
    return text


def pays_back(found: float, today: float, rewrite_bytes: int) -> float | None:
    """Queries until the bytes saved equal the bytes that the rewrite reads and writes; None when nothing is saved."""
    return rewrite_bytes / (today - found) if today - found > _NOTHING * today else None


def rank(candidates: Sequence[Measured]) -> list[Measured]:
    """The cheapest first; of those that are as good as equal, the one that suffers least from drift."""
    ordered = sorted(candidates, key=lambda c: c.bytes_per_query)
    if not ordered:
        return []
    limit = ordered[0].bytes_per_query * (1 + _AS_GOOD)
    close = [c for c in ordered if c.bytes_per_query <= limit]
    return [*sorted(close, key=lambda c: (c.worst_case, c.bytes_per_query)), *ordered[len(close) :]]
