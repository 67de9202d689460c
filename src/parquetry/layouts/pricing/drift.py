"""How tomorrow's queries may differ from today's: moved a little, or moved anywhere (PW-25, PW-26, 3.5-13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parquetry.layouts.learners.variance import Domain
from parquetry.layouts.pricing.price import Asked
from parquetry.layouts.pricing.priced_sample import SampledTable
from parquetry.model.predicate import And, OneOf, Or, Predicate, Range

Change = Callable[[Predicate], Predicate]


@dataclass(frozen=True)
class Scenario:
    """Queries drift by up to ``delta`` of each column's range, and ``strangers`` of them ask for any place at all."""

    name: str
    delta: float = 0.0
    strangers: float = 0.0


SCENARIOS = (
    Scenario("drift 1 %", delta=0.01),
    Scenario("drift 5 %", delta=0.05),
    Scenario("half random", strangers=0.5),
)


def vary(queries: Sequence[Asked], scenario: Scenario, table: SampledTable, seed: int = 0) -> list[Asked]:
    """The queries as the scenario expects them, one for each; the same for the same seed."""
    rng = np.random.default_rng(seed)
    strange = np.zeros(len(queries), bool)
    strange[rng.permutation(len(queries))[: round(scenario.strangers * len(queries))]] = True
    found = []
    for asked, anywhere in zip(queries, strange.tolist(), strict=True):
        mover = _Mover(table, rng, scenario.delta, anywhere)
        moved = mover.apply(asked.predicate)
        found.append(replace(asked, query=replace(asked.query, predicate=moved)))
    return found


class _Mover:
    """Changes the leaves of one query; all conditions on a column move together, so that a range stays a range."""

    def __init__(self, table: SampledTable, rng: np.random.Generator, delta: float, anywhere: bool) -> None:
        self.table, self.rng, self.delta, self.anywhere = table, rng, delta, anywhere
        self._shifts: dict[str, float] = {}

    def apply(self, predicate: Predicate) -> Predicate:
        match predicate:
            case And(parts) | Or(parts):
                return replace(predicate, parts=tuple(self.apply(p) for p in parts))
            case Range(column):
                return self._range(predicate, column)
            case OneOf(column):
                return self._one_of(predicate, column)
        return predicate

    def _range(self, leaf: Range, column: str) -> Predicate:
        domain = self._domain(column)
        if domain is None:
            return leaf
        try:
            lo, hi = self._moved(leaf.lo, column, domain), self._moved(leaf.hi, column, domain)
        except (TypeError, ValueError, OverflowError):
            return leaf  # a bound that is not of the column's type, or no finite number
        if lo is not None and hi is not None and lo > hi:
            lo, hi = hi, lo
        return replace(leaf, lo=lo, hi=hi)

    def _moved(self, bound: Any, column: str, domain: Domain) -> Any:
        if bound is None:
            return None
        number = float(domain.codec.number(bound))
        if self.anywhere:
            if column not in self._shifts:
                self._shifts[column] = self.rng.uniform(domain.low, domain.high) - number
            number += self._shifts[column]
        else:
            number += self.rng.uniform(-1, 1) * self.delta * domain.length
        return domain.codec.value(round(number) if domain.codec.kind == "int" else number)

    def _one_of(self, leaf: OneOf, column: str) -> Predicate:
        """Values have no neighbours: they stay when queries drift, and others take their place when they are random."""
        placed = self.table.column(column)
        if not self.anywhere or placed is None or not placed.line.count:
            return leaf
        chosen = self.rng.integers(0, placed.line.count, len(leaf.values))
        return replace(leaf, values=frozenset(placed.line.boundary(i) for i in chosen.tolist()))

    def _domain(self, column: str) -> Domain | None:
        placed = self.table.column(column)
        if placed is None or placed.line.codec is None:
            return None
        domain = Domain.of(placed.line.codec, placed.line.keys)
        return domain if domain.length else None
