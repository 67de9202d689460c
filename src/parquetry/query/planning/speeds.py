"""How long this machine takes against the rough figures that plans are priced with: measured by the first queries.

Kept in a file of the warehouse's folder under the machine's name. Whoever loses it measures again.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from parquetry.storage.durable import publish_private

_ENOUGH = 5  # runs of an executor; their median stands from then on, so that choices do not change for ever
_FARTHEST = 8.0  # times slower or faster: whatever is beyond says more of the query than of the machine
ROUGH: Mapping[str, float] = {"local": 1.0, "spark": 1.0}


class Speeds:
    """``path`` is where they are kept; None: nowhere, and nothing is measured."""

    def __init__(self, path: Path | None = None, machine: str | None = None) -> None:
        self._path = path
        self._machine = machine or f"{platform.node()}, {os.cpu_count()} cores"
        self._lock = threading.Lock()
        self._warm: set[str] = set()  # executors that have run once: the first run of a process is slower than others
        self._runs: dict[str, list[float]] = {executor: [] for executor in ROUGH}
        for executor, runs in self._kept().get(self._machine, {}).items():
            if executor in ROUGH:
                self._runs[executor] = [_bounded(float(r)) for r in runs[:_ENOUGH]]

    def factors(self) -> dict[str, float]:
        """Of each executor: how many times the rough figures it takes here. 1 until enough was measured."""
        return {e: statistics.median(r) if len(r) == _ENOUGH else 1.0 for e, r in self._runs.items()}

    def note(self, executor: str, rough_s: float, took_s: float) -> None:
        """A query took so long that was priced at ``rough_s``."""
        if self._path is None or len(self._runs[executor]) == _ENOUGH:
            return
        with self._lock:
            runs = self._runs[executor]
            if executor not in self._warm:
                self._warm.add(executor)
            elif len(runs) < _ENOUGH:
                runs.append(_bounded(took_s / rough_s))
                with suppress(OSError):  # a folder that cannot be written: known to this process alone
                    text = json.dumps({**self._kept(), self._machine: self._runs}, indent=1)
                    publish_private(self._path, text)

    def _kept(self) -> dict[str, dict[str, list[float]]]:
        """What the file says, or nothing if it is not there or not ours."""
        with suppress(OSError, ValueError, AttributeError, TypeError):
            if self._path is not None:
                told = json.loads(self._path.read_text(encoding="utf-8"))
                return {str(m): {e: [float(r) for r in runs] for e, runs in by.items()} for m, by in told.items()}
        return {}


def _bounded(factor: float) -> float:
    return min(_FARTHEST, max(1 / _FARTHEST, factor))
