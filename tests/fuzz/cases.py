"""How many cases a fuzz test takes, each with numbers of its own, and what it says of those that fail."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

_SHOWN = 10


@dataclass(frozen=True)
class Budget:
    """``seconds`` for all parts; None is the suite's own short run, whose number of cases is fixed."""

    seed: int
    seconds: float | None = None
    only: int | None = None  # this one case


@dataclass
class Fuzz:
    """One part of the fuzz test: gives its cases, gathers what is wrong, and fails at its end if anything was."""

    part: str
    budget: Budget
    few: int  # cases in the suite
    of_time: float  # its share of a long run
    problems: dict[str, str] = field(default_factory=dict)  # the first case of each kind of problem
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def long(self) -> bool:
        """Whether it was asked for: everything is tried then, also what the suite leaves out for now."""
        return self.budget.seconds is not None

    def cases(self) -> Iterator[tuple[int, random.Random]]:
        """The numbers of a case depend on its own number alone: it can be repeated without those before it."""
        end = time.monotonic() + (self.budget.seconds or 0) * self.of_time
        i = self.budget.only or 0
        while True:
            self.count("cases")
            yield i, random.Random(f"{self.part} {self.budget.seed} {i}")
            i += 1
            if self.budget.only is not None or (time.monotonic() >= end if self.long else i >= self.few):
                return

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def share(self, what: str, of: str) -> float:
        return self.counts.get(what, 0) / max(1, self.counts.get(of, 0))

    def problem(self, case: int, kind: str, told: str) -> None:
        """``kind`` names what is wrong without the case's own values, so that one bug is told once."""
        self.count(f"PROBLEM {kind}")
        options = f"--fuzz-seed {self.budget.seed} --fuzz-case {case}" + (" --fuzz-seconds 1" if self.long else "")
        again = f"repeat: ./run test tests/fuzz -k '{self.part}' {options}"
        if self.long and self.counts[f"PROBLEM {kind}"] <= _SHOWN:  # an hour is long, and one kind may be several bugs
            print(f"\n{kind}\n  {told}\n  {again}", flush=True)
        self.problems.setdefault(kind, f"{kind}\n  {told}\n  {again}")

    def finish(self) -> None:
        summary = ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items()))
        print(f"\nfuzz {self.part}, seed {self.budget.seed}: {summary}")
        shown = list(self.problems.values())[: None if self.long else _SHOWN]
        assert not shown, f"{summary}\n\n" + "\n\n".join(shown)
