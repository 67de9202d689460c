"""Systems measured side by side: answers compared first, then times in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from benchmarks._harness import median, percentile
from benchmarks.peers._model import Stored, System, Table

Note = Callable[[str], None]
Rows = list[list[Any]]
LOCAL_ROUNDS = 5  # for each round on Spark: answers within milliseconds are cheap to repeat, and need it more


@dataclass(frozen=True)
class Arm:
    """One way of storing and asking: a line of the result's table."""

    title: str
    peer: str
    system: System
    how: str
    on_spark: bool
    stores: bool = True
    """False for a second way of asking what another arm has stored."""


@dataclass
class Figures:
    """What was measured of an arm; None where the engine cannot tell. Bytes, files and planning are means per query."""

    title: str
    peer: str
    on_spark: bool
    stored: Stored | None = None
    ms: tuple[float, ...] = ()
    bytes: float | None = None
    files: float | None = None
    plan_ms: float | None = None
    batch_s: tuple[float, ...] = ()
    upkeep_s: tuple[float, ...] = ()  # behind each batch, when queries see it already

    @property
    def p50(self) -> float:
        return median(self.ms)

    @property
    def p99(self) -> float:
        return percentile(self.ms, 0.99)


def load(arms: Sequence[Arm], table: Table, note: Note) -> dict[str, Figures]:
    """Every arm stores the table."""
    figures = {}
    for arm in arms:
        figures[arm.title] = Figures(arm.title, arm.peer, arm.on_spark)
        if arm.stores:
            figures[arm.title].stored = arm.system.load(table, arm.how)
            note(f"{arm.title}: {figures[arm.title].stored}")
    return figures


def ask(
    arms: Sequence[Arm],
    figures: dict[str, Figures],
    table: str,
    queries: Sequence[str],
    truth: Sequence[Rows],
    rounds: int,
    note: Note,
) -> None:
    """Asks every arm every query: once to compare answers and count what is read, then ``rounds`` times for the clock.

    Arms take turns query by query. Those on Spark and those that answer in milliseconds take turns among themselves
    only: what a Spark job leaves running behind it would be counted against the next arm.
    """
    for arm in arms:
        answers = [arm.system.query(table, arm.how, sql, True) for sql in queries]
        for sql, answer, expected in zip(queries, answers, truth, strict=True):
            if _sorted(answer.rows) != _sorted(expected):
                raise AssertionError(f"{arm.title} answers differently: {sql}\n{answer.rows[:5]}\n{expected[:5]}")
        f = figures[arm.title]
        f.bytes, f.files = _mean([a.bytes for a in answers]), _mean([a.files for a in answers])
        f.plan_ms = _mean([a.plan_ms for a in answers])
        note(f"{arm.title}: {len(queries)} answers are right")
    for on_spark in (False, True):
        group = [arm for arm in arms if arm.on_spark == on_spark]
        times: dict[str, list[float]] = {arm.title: [] for arm in group}
        for _ in range(rounds if on_spark else rounds * LOCAL_ROUNDS):
            for sql in queries:
                for arm in group:
                    times[arm.title].append(arm.system.query(table, arm.how, sql).ms)
        for title, ms in times.items():
            figures[title].ms = tuple(ms)
            note(f"{title}: p50 {figures[title].p50:.1f} ms, p99 {figures[title].p99:.1f} ms")


def add(
    arms: Sequence[Arm], figures: dict[str, Figures], table: Table, batches: Sequence[str], change: str, note: Note
) -> None:
    """Every arm takes in batch after batch, in turns, by ``append`` or ``upsert``; the first tenth warms them up."""
    times: dict[str, list[float]] = {arm.title: [] for arm in arms if arm.stores}
    for number, path in enumerate(batches):
        for arm in arms:
            if arm.stores:
                times[arm.title].append(getattr(arm.system, change)(table, arm.how, path))
        if number % 10 == 0:
            note(f"batch {number}: " + ", ".join(f"{title} {s[-1]:.2f} s" for title, s in times.items()))
    for arm in arms:
        if arm.stores:
            figures[arm.title].batch_s = tuple(times[arm.title][len(batches) // 10 :])
            upkeep = getattr(arm.system, "upkeep_s", [])[-len(batches) :]
            figures[arm.title].upkeep_s = tuple(upkeep[len(batches) // 10 :])
            before, after = figures[arm.title].stored, arm.system.stored(table, arm.how)
            if before is not None:
                after = replace(after, ingest_s=before.ingest_s, rewrite_s=before.rewrite_s)
            figures[arm.title].stored = after


def empty(arms: Sequence[Arm], table: Table) -> dict[str, Figures]:
    """Every arm makes the table without rows."""
    for arm in arms:
        if arm.stores:
            arm.system.create(table, arm.how)
    return {arm.title: Figures(arm.title, arm.peer, arm.on_spark) for arm in arms}


def _sorted(rows: Rows) -> Rows:
    """Rows in an order that no query has to ask for."""
    return sorted(rows, key=repr)


def _mean(values: Sequence[float | None]) -> float | None:
    told = [v for v in values if v is not None]
    return mean(told) if told else None
