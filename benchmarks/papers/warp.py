"""WARP (paper 003): protocols WP-E1 to WP-E3 and WP-E5 on denormalised TPC-H, 800 queries to learn from, 80 to test.

Percentages are of the table's rows. The paper's own 1.8 % and 0.2 % cannot be had with TPC-H's parameters: these
queries want 0.8 % of the rows on average (3.4-4). What is compared is the ratio to range partitioning.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks._data import CACHE
from benchmarks._harness import Goals
from benchmarks._report import save, table, verdicts
from benchmarks.papers._draw import lines
from benchmarks.papers._warp_data import TEMPLATES, denormalised
from benchmarks.papers._warp_measure import Dataset, Stored, Workload, by_month, by_range, measure, warp

Rows = list[dict[str, Any]]
BLOCKS = 12_000  # 143 in each month, as 50,000 rows each make of the paper's 600 million
FEATURES = 15
SWEPT_ROWS = 600_000  # of the table, in as many blocks, for the many runs of a sweep
TIMES_COUNT_FROM = 30_000_000  # rows in memory: with fewer the floor of a Spark job is most of a query's time
NOTE = "The paper's absolute percentages (1.8 and 0.2) lie below what these queries want; only ratios are comparable."


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Bench:
    """One data set with its training and test queries, and layouts measured on it."""

    def __init__(self, scale: float, rows: int | None) -> None:
        self.data = Dataset(denormalised(scale), rows)
        self.block_rows = max(20, self.data.rows // BLOCKS)
        self.train, self.test = Workload.of(self.data, 100, seed=1), Workload.of(self.data, 10, seed=2)
        self.answers = self.test.answers(self.data)
        self.selectivity = 100 * float(self.answers.mean())

        self.stored: dict[str, Stored] = {}

    def measure(self, name: str, stored: Stored, **about: Any) -> dict[str, Any]:
        self.stored[name] = stored
        row = {"layout": name, **about, **measure(stored, self.test, self.answers), **stored.seconds}
        note(f"{name} {about}: {row['scanned %']:.2f} % in {row['blocks']} blocks")
        return row

    def warp(self, name: str = "WARP", shared: bool = False, variant: str = "greedy", **how: Any) -> dict[str, Any]:
        told = {"block_rows": self.block_rows, "features": FEATURES, **how}
        train = told.pop("train", self.train)
        shown = told.pop("shown", {k: told[k] for k in how if k != "train"})
        stored = warp(self.data, train, told["block_rows"], told["features"], variant, shared)
        return self.measure(name, stored, **shown)


def tuples_scanned(bench: Bench) -> Rows:
    """WP-E1: by month alone, by ranges made by hand, and by features, all with min/max of every column."""
    return [
        bench.measure("month", by_month(bench.data)),
        bench.measure("range", by_range(bench.data, BLOCKS)),
        bench.warp("WARP, paper's rule", shared=True, variant="paper"),
        bench.warp("WARP, one set of features", shared=True),
        bench.warp("WARP"),
    ]


def sweeps(bench: Bench) -> dict[str, Rows]:
    """WP-E2: features, block size, training queries, and templates never seen when learning."""
    half = Workload.of(bench.data, 100, seed=1, templates=TEMPLATES[::2])
    return {
        "features": [bench.warp(features=n) for n in (1, 2, 5, 10, 15, 25, 40)],
        "block_rows": [bench.warp(block_rows=max(1, round(bench.block_rows * f))) for f in (0.2, 0.5, 1, 2, 5, 10)],
        "training": [bench.warp(train=bench.train.some(n), shown={"training": 8 * n}) for n in (1, 3, 10, 30, 100)],
        "drift": [bench.warp(train=t, shown={"drift": n}) for n, t in (("none", bench.train), ("4 of 8", half))],
    }


def judge(goals: Goals, results: Mapping[str, Any]) -> None:
    if e1 := results.get("E1"):
        rows = {r["layout"]: r for r in e1}
        by_hand, printed, ours = rows["range"], rows["WARP, paper's rule"], rows["WARP"]
        goals.at_least("E1 range / WARP by the paper's rule", by_hand["scanned %"] / printed["scanned %"], 2.5)
        goals.at_least("E1 range / WARP", by_hand["scanned %"] / ours["scanned %"], 3.4)
        goals.at_most("E1 WARP / range, worst template", max(ours[t] / by_hand[t] for t in TEMPLATES), 1.2)
        goals.at_most("E1 WARP, % of the tuples", ours["scanned %"], 4.0)
    if e2 := results.get("E2"):
        scanned = [r["scanned %"] for r in e2["features"]]
        goals.at_least("E2 1 feature / 15 features", scanned[0] / scanned[4], 1.2)
        by_size = [r["scanned %"] for r in e2["block_rows"]]
        goals.at_most("E2 scanned % rises with the block size: steps down", sum(b < a for a, b in pairwise(by_size)), 0)
        trained = [r["scanned %"] for r in e2["training"]]
        goals.at_least("E2 8 training queries / 800", trained[0] / trained[-1], 1.2)
        goals.at_most("E2 800 training queries / 240 (it flattens)", trained[-1] / trained[-2], 1.05)
    if (spark := results.get("Spark")) and spark[0]["rows"] >= TIMES_COUNT_FROM:
        goals.at_least("E1 in memory: range / WARP, seconds", spark[0]["range"] / spark[0]["WARP"], 3.0)
    if load := results.get("load"):
        goals.at_most("E3 load with WARP / plain load", load["ratio"], 3.0)


def write(results: Mapping[str, Any], goals: Goals, out: Path) -> None:
    parts = ["# WARP, paper 003", NOTE, verdicts(goals.checks)]
    if e1 := results.get("E1"):
        parts.append(f"The test queries want {results['selectivity %']:.2f} % of the rows.")
        columns = ["layout", "scanned %", "by min/max %", "by features %", *TEMPLATES, "blocks", "vectors per month"]
        parts += ["## E1 tuples scanned", table(e1, columns)]
    for name, rows in (results.get("E2") or {}).items():
        parts += [f"## E2 {name}", table(rows, [name, "scanned %", "blocks", "vectors per month", *TEMPLATES])]
        lines(out / f"warp_{name}.png", rows, name, ["scanned %"])
    if spark := results.get("Spark"):
        parts += ["## E1 and E5 on Spark, seconds per query", table(spark, list(spark[0]))]
    if load := results.get("load"):
        parts += ["## E3 load", table([load], list(load))]
    save(out, "warp" if "E1" in results else "warp_spark", results, goals.checks, "\n\n".join(parts))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, and no sweeps")
    parser.add_argument("--no-spark", action="store_true", help="tuple counts only")
    parser.add_argument("--spark-scale", type=float, help="another scale factor for queries in memory")
    parser.add_argument("--no-sweeps", action="store_true")
    parser.add_argument("--only-spark", action="store_true", help="times on Spark only")
    parser.add_argument("--no-load", action="store_true", help="on Spark only the queries in memory")
    parser.add_argument("--out", type=Path, default=CACHE / "bench" / "papers")
    told = parser.parse_args(arguments)
    told.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"note": NOTE}
    if not told.only_spark:
        bench = Bench(told.scale, SWEPT_ROWS if told.quick else None)
        note(f"{bench.data.rows:,} rows, {bench.selectivity:.2f} % wanted, blocks of {bench.block_rows}")
        results |= {"rows": bench.data.rows, "selectivity %": bench.selectivity, "E1": tuples_scanned(bench)}
        if not told.quick and not told.no_sweeps:
            results["E2"] = sweeps(Bench(told.scale, SWEPT_ROWS))
    if not told.no_spark:
        from benchmarks.papers._warp_spark import end_to_end, load

        if not told.no_load:
            results["load"] = load(denormalised(told.scale), BLOCKS, note)
        large = denormalised(told.spark_scale or told.scale)
        results["Spark"] = [end_to_end(large, BLOCKS, FEATURES, None, note)]
        if not told.no_load:
            with tempfile.TemporaryDirectory() as folder:
                results["Spark"].append(end_to_end(denormalised(told.scale), BLOCKS, FEATURES, Path(folder), note))
    goals = Goals()
    judge(goals, results)
    write(results, goals, told.out)
    print(f"written to {told.out}")
    return 1 if goals.missed else 0


if __name__ == "__main__":
    sys.exit(main())
