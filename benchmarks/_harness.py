"""What every benchmark shares: data, interleaved timing, and results with machine, date and versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CACHE = Path(__file__).resolve().parent.parent / ".cache"


def tpch(scale: float, *tables: str) -> dict[str, Path]:
    """Paths of TPC-H tables as Parquet files, generated once."""
    folder = CACHE / "tpch" / f"sf{scale:g}"
    missing = [t for t in tables if not (folder / f"{t}.parquet").exists()]
    if missing:
        print(f"generating TPC-H SF{scale:g}: {', '.join(missing)} …", file=sys.stderr)
        made = folder / "making"
        made.mkdir(parents=True, exist_ok=True)
        command = Path(sys.executable).with_name("tpchgen-cli")
        arguments = ["parquet", "-s", f"{scale:g}", "--tables", ",".join(missing), "--output-dir", str(made)]
        subprocess.run([str(command), *arguments], check=True, capture_output=True)
        for t in missing:
            os.replace(made / f"{t}.parquet", folder / f"{t}.parquet")
    return {t: folder / f"{t}.parquet" for t in tables}


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


def machine() -> dict[str, Any]:
    """Where and with what the figures were measured."""
    packages = ("parquetry", "pyspark", "pyarrow", "duckdb", "numpy")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {p: importlib.metadata.version(p) for p in packages},
    }


def save(name: str, results: dict[str, Any], folder: Path | None = None) -> Path:
    """Writes the results as JSON; by default under .cache/bench."""
    target = (folder or CACHE / "bench") / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"benchmark": name, **machine(), **results}, indent=2, default=str) + "\n")
    return target


class Goals:
    """Figures against their goals, printed as they come."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def at_least(self, what: str, figure: float, goal: float) -> None:
        self._add(what, figure, f">= {goal:g}", figure >= goal)

    def at_most(self, what: str, figure: float, goal: float) -> None:
        self._add(what, figure, f"<= {goal:g}", figure <= goal)

    def _add(self, what: str, figure: float, goal: str, met: bool) -> None:
        self.rows.append({"what": what, "figure": round(figure, 3), "goal": goal, "met": met})
        print(f"  {'met   ' if met else 'MISSED'}  {what}: {figure:.3g} (goal {goal})", flush=True)

    @property
    def missed(self) -> int:
        return sum(not r["met"] for r in self.rows)
