"""The layouts that the advisor compares: every learner of the registry, some with several settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from parquetry.errors import SchemaError
from parquetry.layouts.registry import LEARNERS, named
from parquetry.model.layout_options import RelayoutOptions

_SETTINGS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "paw": ({}, {"delta": 0.01}, {"delta": 0.05}),
    "qdtree": ({}, {"variant": "extended"}),
}
_FIRST = ("key", "paw", "qdtree", "warp", "kdtree")  # where time may run out, the likeliest winners come first


@dataclass(frozen=True)
class Candidate:
    """A learner with its settings; ``label`` names both."""

    learner: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        told = " ".join(f"{k}={v}" for k, v in self.settings.items())
        return f"{self.learner} {told}".strip()

    def options(self, base: RelayoutOptions, filtered: Sequence[str]) -> RelayoutOptions:
        """What to learn it with. A learner that needs no queries would cut on all columns; here it is told which."""
        changed = replace(base, **self.settings)
        if self.learner == "key":
            return replace(changed, extra_space=0.0)
        if changed.columns is None and not named(self.learner).needs_queries:
            changed = replace(changed, columns=list(filtered))
        return changed


def candidates_of(learners: Sequence[str] | None) -> list[Candidate]:
    """Candidates of these learners, or of all."""
    for name in learners or ():
        named(name)
    if learners is not None and not learners:
        raise SchemaError("name at least one layout to compare, or leave the list out to compare all")
    wanted = learners or [*[n for n in _FIRST if n in LEARNERS], *[n for n in LEARNERS if n not in _FIRST]]
    return [Candidate(name, how) for name in dict.fromkeys(wanted) for how in _SETTINGS.get(name, ({},))]
