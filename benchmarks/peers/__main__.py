"""Parquetry beside Delta Lake, Iceberg, plain Spark, DuckDB and ClickHouse: the same data, queries and answers.

Every arm's answers are compared before any time counts. Delta Lake and Iceberg run on the newest Spark that both
support, in an environment of their own, which the first run makes in the user's cache folder.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks._data import CACHE
from benchmarks._harness import Goals
from benchmarks._report import save, table, verdicts
from benchmarks.peers._bench import PEERS, Bench
from benchmarks.peers._draw import bars
from benchmarks.peers._tables import markdown, profile, rows_of

WORKLOADS = ("paw", "append", "lookups", "dashboards", "warp", "updates")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, help="TPC-H scale factor, 1 by default")
    parser.add_argument("--only", help=f"comma-separated peers and workloads: {', '.join((*PEERS, *WORKLOADS))}")
    parser.add_argument("--rounds", type=int, default=1, help="timed rounds on Spark; five times as many elsewhere")
    parser.add_argument("--quick", action="store_true", help="a tiny run that only shows that everything works")
    parser.add_argument("--out", type=Path, default=CACHE / "bench", help="folder for results")
    options = parser.parse_args()
    only = [w.strip() for w in (options.only or "").split(",") if w.strip()]
    if unknown := set(only) - {*PEERS, *WORKLOADS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join((*PEERS, *WORKLOADS))}")
    scale = options.scale or (0.01 if options.quick else 1)
    peers = [p for p in PEERS if p in only] or list(PEERS)
    workloads = [w for w in WORKLOADS if w in only] or list(WORKLOADS)
    work = CACHE / "bench" / "peers-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    options.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(work, scale, options.quick, options.rounds, peers)
    goals = Goals()
    results: dict[str, Any] = {"scale": scale, "rounds": options.rounds, "quick": options.quick, "failed": {}}
    parts: list[str] = []
    name = f"peers-sf{scale:g}"
    try:
        for workload in workloads:
            bench.note(f"-- {workload}")
            try:
                parts.append(measure(workload, bench, goals, results, options.out))
            except Exception as error:  # a run of an hour keeps what it has
                traceback.print_exc()
                results["failed"][workload] = f"{type(error).__name__}: {error}"
            results["systems"] = bench.versions()
            text = report(results, goals, parts)
            save(options.out, name, results, goals.checks, text)
    finally:
        bench.close()
        shutil.rmtree(work, ignore_errors=True)
    print(f"\n{text}\n\nresults: {options.out / name}.json")
    return 1 if goals.missed or results["failed"] else 0


def measure(workload: str, bench: Bench, goals: Goals, results: dict[str, Any], out: Path) -> str:
    """One workload: its figures go to the results, its plot to a file, and its tables come back."""
    module = importlib.import_module(f"benchmarks.peers._workloads.{workload}")
    started = time.perf_counter()
    figures = module.run(bench, goals)
    minutes = (time.perf_counter() - started) / 60
    results[workload] = {"minutes": minutes, "arms": {title: asdict(f) for title, f in figures.items()}}
    bars(out / f"peers-{workload}.png", f"{workload}, scale {bench.scale:g}", rows_of(figures))
    told = f"{module.__doc__} It took {minutes:.1f} minutes."
    return "\n\n".join([f"## {workload}", told, markdown(figures), profile(figures)])


def report(results: dict[str, Any], goals: Goals, parts: list[str]) -> str:
    versions = [{"system": system, **told} for system, told in results["systems"].items()]
    columns = list(dict.fromkeys(c for v in versions for c in v))
    failed = [f"**{workload} failed**: {why}" for workload, why in results["failed"].items()]
    about = (
        "Times inside each engine, warm; MB and files read are means per query; every answer was compared. Ratios are "
        "a peer's figure over Parquetry's: below 1 Parquetry loses. Batches are means, until queries see the rows; "
        "upkeep is the compaction that Parquetry does behind a batch, per batch."
    )
    return "\n\n".join(["# Peers", about, verdicts(goals.checks), table(versions, columns), *failed, *parts])


if __name__ == "__main__":
    sys.exit(main())
