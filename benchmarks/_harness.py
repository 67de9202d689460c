"""Timing that several benchmarks share: arms in turns, percentiles, and figures against their goals."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks._report import Check


def interleaved(arms: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each arm over ``rounds`` rounds, taken in turns so that noise hits all arms alike."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            started = time.perf_counter()
            arm()
            times[name].append(time.perf_counter() - started)
    return times


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


class Goals:
    """Figures against their goals, printed as they come."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def at_least(self, what: str, figure: float, goal: float) -> None:
        self._add(Check(what, f">= {goal:g}", figure, figure >= goal))

    def at_most(self, what: str, figure: float, goal: float) -> None:
        self._add(Check(what, f"<= {goal:g}", figure, figure <= goal))

    def _add(self, check: Check) -> None:
        self.checks.append(check)
        print(f"  {'met   ' if check.passed else 'MISSED'}  {check.name}: {check.measured:.3g} (goal {check.limit})")

    @property
    def missed(self) -> int:
        return sum(not c.passed for c in self.checks)
