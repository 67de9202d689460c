"""What a benchmark leaves behind: JSON with machine, date and versions, tables in markdown, and verdicts."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("parquetry", "numpy", "pyarrow", "pyspark", "duckdb")


@dataclass(frozen=True)
class Check:
    """One figure to reach: what it is, the limit in words, what was measured."""

    name: str
    limit: str
    measured: float
    passed: bool


def about_this_run() -> dict[str, Any]:
    """The machine, the date and the versions that a number belongs to."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = (line for line in info.read_text().splitlines() if line.startswith("model name"))
        cpu = next(named, cpu).rpartition(":")[2].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory, 1), "os": platform.system()},
        "versions": versions,
        "commit": commit.stdout.strip(),
    }


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A markdown table; numbers with three digits that count."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [row.get(c, "") for c in columns]
        lines.append("| " + " | ".join(f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells) + " |")
    return "\n".join(lines)


def verdicts(checks: Iterable[Check]) -> str:
    columns = ("", "figure", "limit", "measured")
    cells = [("pass" if c.passed else "FAIL", c.name, c.limit, c.measured) for c in checks]
    return table([dict(zip(columns, row, strict=True)) for row in cells], columns)


def save(out: Path, name: str, results: Mapping[str, Any], checks: Sequence[Check], text: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    document = {**about_this_run(), "benchmark": name, "checks": [asdict(c) for c in checks], **results}
    (out / f"{name}.json").write_text(json.dumps(document, indent=1, default=float) + "\n")
    (out / f"{name}.md").write_text(text + "\n")
