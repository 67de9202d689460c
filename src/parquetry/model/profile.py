"""A database's stated wish between freshness, query speed and cost, as the settings that it means (NA-01…NA-06)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from parquetry.errors import SchemaError
from parquetry.model.settings import Settings

SELDOM = 10
"""A table that fewer of the newest queries read may have more deltas (NA-22)."""
_MOST_DELTAS = 64


@dataclass(frozen=True)
class Profile:
    """What is promised, and what it costs. Work starts when half of the target lag is used up: later is cheaper."""

    name: str
    target_lag_s: float
    max_query_deltas: int
    compaction_width: int
    slots: int  # stages that run at once
    views: int  # up to which suggest-views suggests more

    def __post_init__(self) -> None:
        for name in ("max_query_deltas", "compaction_width", "slots", "views"):
            if type(getattr(self, name)) is not int:
                raise SchemaError(f"{name} is a whole number, not {getattr(self, name)!r}")
        if type(self.target_lag_s) not in (int, float):
            raise SchemaError(f"target_lag_s is a number of seconds, not {self.target_lag_s!r}")
        if not self.target_lag_s >= 0:
            raise SchemaError(f"target_lag_s is at least 0, not {self.target_lag_s}")
        if self.max_query_deltas < 2 or self.compaction_width < 2 or self.slots < 1:
            raise SchemaError(
                "a profile has max_query_deltas and compaction_width of at least 2 and slots of at least 1"
            )

    def compiled(self, settings: Settings, reads: int | None = None) -> Settings:
        """The settings of a table under this profile, but for those that a user has chosen for it.

        ``reads``: how many of the newest queries read it (NA-22).
        """
        bound = self.max_query_deltas
        if reads is not None and reads < SELDOM:
            bound = min(_MOST_DELTAS, bound * (4 if reads == 0 else 2))
        meant: dict[str, Any] = {"max_query_deltas": max(bound, 2), "compaction_width": self.compaction_width}
        return replace(settings, **{name: n for name, n in meant.items() if name not in settings.given})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> Profile:
        return cls(**d)


PROFILES = {
    # Fresh and fast, at the price of rewriting often: the paper's client C (NA-05).
    "freshness": Profile("freshness", 0.0, 4, 2, 2, 8),
    # Fast, from larger and rarer steps of maintenance: client A, whose data may be older (NA-03).
    "speed": Profile("speed", 600.0, 8, 4, 1, 4),
    # As little work as possible, so that a query merges more: client B (NA-04).
    "cost": Profile("cost", 60.0, 32, 24, 1, 1),
}


def profile_of(name: str | None, targets: Mapping[str, Any], before: Profile | None) -> Profile:
    """The named profile, or the one before, with explicit targets in place of its own."""
    if name is not None and name not in PROFILES:
        raise SchemaError(f"unknown profile '{name}'; choose one of {', '.join(PROFILES)}")
    base = PROFILES[name] if name is not None else before or PROFILES["freshness"]
    known = {f.name for f in fields(Profile)} - {"name"}
    for target in targets:
        if target not in known:
            raise SchemaError(f"unknown target '{target}'; targets: {', '.join(sorted(known))}")
    return replace(base, **targets)
