"""Progressive partitioning (paper 000): protocols PP-E1 to PP-E5, and planning over a simulated petabyte.

Rows of every split are counted in the data itself, and every set of splits is checked to hold the query exactly once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks._harness import Goals
from benchmarks._report import save, table, verdicts
from benchmarks.papers._splits_baselines import fixed_boundaries, fixed_level, fixed_size
from benchmarks.papers._splits_data import LARGE, SkewedTable, skewed_table
from benchmarks.papers._splits_plots import bars, curves
from benchmarks.papers._splits_scale import bookkeeping, petabytes
from parquetry.splits.cut import Precision, Splits, cut_into_splits
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish

Rows = list[dict[str, Any]]
SELECTIVITIES = (0.0005, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SIZES = {"S=250MB": 60, "S=500MB": 32, "S=1GB": 19, "S=2GB": 12}  # parts of the query of E1: the paper's workers
ROUND, NODE, ROW = 1.0, 0.02, 1e-5
"""Modelled time: t = ROUND * rounds + NODE * index nodes + ROW * rows of the largest split (protocol PP-E2)."""
TABLE_2 = (1.0, 0.004, 1.2e-3)
"""The same constants as they follow from the shares and workers of the paper's Table 2: scanning weighs far more."""
TOLD = Precision(round_size=ROUND / ROW, node_size=NODE / ROW)
TOLD_TABLE_2 = Precision(round_size=TABLE_2[0] / TABLE_2[2], node_size=TABLE_2[1] / TABLE_2[2])
Method = Callable[[KeyRanges, int], Splits]


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, data: SkewedTable) -> None:
        self.data = data
        index = data.index()
        queried = 0.05 * data.rows / 2
        self.methods: dict[str, Method] = {
            "literal": lambda q, p: cut_into_splits(index, q, Wish(p), Precision(mode="literal")),
            "default": lambda q, p: cut_into_splits(index, q, Wish(p)),
            "default, told costs": lambda q, p: cut_into_splits(index, q, Wish(p), TOLD),
            "default, told Table 2": lambda q, p: cut_into_splits(index, q, Wish(p), TOLD_TABLE_2),
            "default, theta 0": lambda q, p: cut_into_splits(index, q, Wish(p), Precision(0.0)),
        }

        def of_level(level: int) -> Method:
            return lambda q, p: fixed_level(index, q, Wish(p), level)

        def of_size(size: float) -> Method:
            cuts = fixed_boundaries(index, size)
            return lambda q, p: fixed_size(cuts, size, q, p)

        self.methods |= {f"level {k}": of_level(k) for k in (0, 1, 2)}
        self.methods |= {name: of_size(queried / parts) for name, parts in SIZES.items()}

    def query(self, rng: np.random.Generator, selectivity: float) -> KeyRanges:
        """One large and seven median ids, a random range of days (section 6.2)."""
        ids = np.append(self.data.median_ids(rng, 7), LARGE)
        return self.data.query(ids, *self.data.days(rng, selectivity))

    def measure(self, method: str, query: KeyRanges, splits: int) -> dict[str, float]:
        started = time.perf_counter()
        found = self.methods[method](query, splits)
        seconds = time.perf_counter() - started
        rows = self.data.rows_of(query, found)
        total = self.data.rows_in(query)
        if int(rows.sum()) != total:
            raise AssertionError(f"{method}: splits hold {int(rows.sum())} rows of {total}")
        held = rows[rows > 0]
        return {
            "workers": float(len(held)),
            "skew": float(held.max() / held.mean()),
            "max-vs-ideal": float(rows.max() * splits / total),
            "speed-up": float(total / rows.max()),
            "rounds": float(found.rounds),
            "nodes": float(found.nodes),
            "rows": float(rows.max()),
            "modelled": ROUND * found.rounds + NODE * found.nodes + ROW * float(rows.max()),
            "planned by Table 2": TABLE_2[0] * found.rounds + TABLE_2[1] * found.nodes,
            "modelled by Table 2": float(np.dot(TABLE_2, (found.rounds, found.nodes, rows.max()))),
            "ms": seconds * 1e3,
        }


def average(rows: Rows) -> dict[str, float]:
    return {k: mean(r[k] for r in rows) for k in rows[0]}


def e1(bench: Bench, seeds: int, goals: Goals) -> tuple[Rows, Rows]:
    """Table 1 and Figure 8: evenness at selectivity 0.05."""
    methods = ["literal", "default", "level 0", "level 1", *SIZES]
    found: Rows = []
    worst: dict[tuple[str, int], dict[str, float]] = {}
    for splits in (10, 100):
        for method in methods:
            runs = [bench.measure(method, bench.query(np.random.default_rng(s), 0.05), splits) for s in range(seeds)]
            found.append({"P": splits, "method": method, **average(runs)})
            worst[method, splits] = {
                "max-vs-ideal": max(r["max-vs-ideal"] for r in runs),
                "workers": min(r["workers"] for r in runs),
            }
            found[-1]["worst max-vs-ideal"] = worst[method, splits]["max-vs-ideal"]
            found[-1]["fewest workers"] = worst[method, splits]["workers"]
    goals.at_least("E1 default, P=100: fewest workers of all seeds", worst["default", 100]["workers"], 98)
    goals.at_most("E1 default, P=100: worst max-vs-ideal", worst["default", 100]["max-vs-ideal"], 1.35)
    goals.at_most("E1 default, P=10: worst max-vs-ideal", worst["default", 10]["max-vs-ideal"], 1.15)
    by = {(r["method"], r["P"]): r for r in found}
    finest = by["S=250MB", 100]["max-vs-ideal"] / by["default", 100]["max-vs-ideal"]
    goals.at_least("E1 P=100: max-vs-ideal of the finest fixed size / default", finest, 1.2)
    sizes = [by[s, 100]["workers"] for s in SIZES]
    goals.at_most("E1 P=100: workers of fixed sizes grow with the size (steps)", _steps_up(sizes), 0)
    curve: Rows = []
    for splits in (1, 2, 5, 10, 20, 50, 100, 150, 200):
        row: dict[str, Any] = {"P": splits}
        for method in ("literal", "default", *SIZES):
            runs = [bench.measure(method, bench.query(np.random.default_rng(s), 0.05), splits) for s in range(3)]
            row[method] = mean(r["speed-up"] for r in runs)
        curve.append(row)
    return found, curve


def _steps_up(values: Sequence[float]) -> int:
    return sum(b > a for a, b in zip(values, values[1:], strict=False))


def e2(bench: Bench, seeds: int, goals: Goals) -> Rows:
    """Table 2 and Figure 9: index nodes, rounds and modelled time over selectivities, P = 200."""
    methods = ["literal", "default", "default, told costs", "default, told Table 2", "default, theta 0"]
    methods += ["level 0", "level 1", "level 2"]
    found: Rows = []
    for selectivity in SELECTIVITIES:
        for method in methods:
            runs = [
                bench.measure(method, bench.query(np.random.default_rng(100 + s), selectivity), 200)
                for s in range(seeds)
            ]
            found.append({"selectivity": selectivity, "method": method, **average(runs)})
            found[-1]["planning share"] = found[-1]["planned by Table 2"] / found[-1]["modelled by Table 2"]
        note(f"E2 selectivity {selectivity}")
    by = {(r["method"], r["selectivity"]): r for r in found}
    for s in (0.5, 1.0):
        ratio = by["default", s]["nodes"] / by["level 0", s]["nodes"]
        goals.at_most(f"E2 selectivity {s:g}: index nodes of default / level 0", ratio, 1 / 3)
        goals.at_least(f"E2 selectivity {s:g}: workers of default", by["default", s]["workers"], 200 * 0.98)
    worse = max(
        by["default, told costs", s]["modelled"] / min(by["level 0", s]["modelled"], by["level 1", s]["modelled"])
        for s in SELECTIVITIES
    )
    goals.at_most("E2 modelled time: default / the better fixed level, worst of the sweep", worse, 1.03)
    small = by["default", 0.005]["workers"] / by["level 0", 0.005]["workers"]
    goals.at_least("E2 selectivity 0.005: workers of default / level 0", small, 0.75)
    better = {s: min(by[m, s]["modelled by Table 2"] for m in ("level 0", "level 1")) for s in SELECTIVITIES}
    worse = max(by["default, told Table 2", s]["modelled by Table 2"] / better[s] for s in SELECTIVITIES)
    print(f"  with the costs of Table 2: default / the better fixed level, worst of the sweep: {worse:.3f}")
    rounds = {m: max(by[m, s]["rounds"] for s in SELECTIVITIES) for m in ("default", "literal")}
    print(f"  most rounds: default {rounds['default']:.1f}, literal {rounds['literal']:.1f}")
    return found


def e3(bench: Bench, queries: int, goals: Goals) -> Rows:
    """Table 3, Figures 10 and 11: a log of queries of all sizes, P = 100."""
    rng = np.random.default_rng(7)
    methods = ["literal", "default", "level 0", "level 1", *SIZES]
    runs: dict[str, Rows] = {m: [] for m in methods}
    while len(runs["default"]) < queries:
        ids = rng.choice(bench.data.id_order, int(rng.integers(1, 9)), replace=False)
        if rng.random() < 0.5:
            ids = np.append(ids[1:], LARGE)
        query = bench.data.query(ids, *bench.data.days(rng, 10 ** rng.uniform(-4, 0)))
        if bench.data.rows_in(query) == 0:
            continue
        default = bench.measure("default", query, 100)
        if default["workers"] < 10:
            continue
        for m in methods:
            runs[m].append(default if m == "default" else bench.measure(m, query, 100))
    found: Rows = []
    base_rows, base_time = (mean(r[k] for r in runs["default"]) for k in ("rows", "modelled by Table 2"))
    for m in methods:
        row: dict[str, Any] = {"method": m}
        shares, workers = (
            [r["planned by Table 2"] / r["modelled by Table 2"] for r in runs[m]],
            [r["workers"] for r in runs[m]],
        )
        for name, values in (("planning share", shares), ("workers", workers)):
            row[f"{name} avg"] = mean(values)
            row[f"{name} 50p"], row[f"{name} 90p"] = (float(np.percentile(values, p)) for p in (50, 90))
        row["workers max"] = max(workers)
        row["nodes avg"] = mean(r["nodes"] for r in runs[m])
        for p in (50, 90):
            row[f"largest split {p}p"] = float(np.percentile([r["rows"] for r in runs[m]], p)) / base_rows
            row[f"time {p}p"] = float(np.percentile([r["modelled by Table 2"] for r in runs[m]], p)) / base_time
        found.append(row)
    average = {r["method"]: r["workers avg"] for r in found}
    goals.at_least("E3 workers of default / level 0", average["default"] / average["level 0"], 0.9)
    order = [average[m] for m in ("default", *list(SIZES))]
    goals.at_most("E3 workers: default > S=250MB > 500MB > 1GB > 2GB (steps up)", _steps_up(order), 0)
    nodes = {r["method"]: r["nodes avg"] for r in found}
    goals.at_most("E3 index nodes of default / level 0", nodes["default"] / nodes["level 0"], 1.0)
    return found


def e5(bench: Bench, goals: Goals) -> Rows:
    """Least and largest sizes of splits: P follows from the size of the query."""
    found: Rows = []
    index = bench.data.index()
    for selectivity in (0.001, 0.01, 0.1):
        query = bench.query(np.random.default_rng(5), selectivity)
        total = bench.data.rows_in(query)
        for name, wish in (
            ("least 5,000 rows, P=100", Wish(100, min_size=5000)),
            ("largest 20,000 rows, P<=500", Wish(500, max_size=20_000)),
        ):
            splits = cut_into_splits(index, query, wish)
            rows = bench.data.rows_of(query, splits)
            found.append(
                {
                    "wish": name,
                    "rows": total,
                    "estimated": splits.total,
                    "P": splits.wanted,
                    "splits": len(splits),
                    "smallest": float(rows.min()),
                    "largest": float(rows.max()),
                }
            )
            expected = wish.derive(splits.total)
            goals.at_most(f"E5 {name}, {total:,} rows: P against the last total", abs(splits.wanted - expected), 0)
            if wish.min_size and splits.wanted < wish.splits and len(splits) > 1:
                estimated = min(s.size for s in splits.splits)
                goals.at_least(f"E5 {name}, {total:,} rows: smallest estimated split", estimated, wish.min_size / 2)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4 M rows and two seeds")
    parser.add_argument("--seeds", type=int, default=None, help="random seeds; 8 unless --quick")
    parser.add_argument("--queries", type=int, default=None, help="queries of the log; 500 unless --quick")
    parser.add_argument("--out", type=Path, default=Path(".cache/bench/splits"))
    args = parser.parse_args()
    seeds, queries = args.seeds or (2 if args.quick else 8), args.queries or (40 if args.quick else 500)
    args.out.mkdir(parents=True, exist_ok=True)
    note("making the table")
    bench = Bench(skewed_table(4_000_000 if args.quick else 40_000_000))
    goals = Goals()
    results: dict[str, Any] = {"rows": bench.data.rows, "seeds": seeds, "model": [ROUND, NODE, ROW]}
    results["E1"], results["Figure 8"] = e1(bench, seeds, goals)
    note("E1 done")
    results["E2"] = e2(bench, max(2, seeds // 2), goals)
    results["E3"] = e3(bench, queries, goals)
    note("E3 done")
    results["E4"] = bookkeeping(goals)
    results["E5"] = e5(bench, goals)
    del bench
    note("simulated petabytes")
    results["petabyte"] = petabytes(goals, args.quick)
    parts = ["# Progressive partitioning", verdicts(goals.checks)]
    columns = {
        "E1": ["P", "method", "workers", "skew", "max-vs-ideal", "worst max-vs-ideal", "speed-up", "rounds", "nodes"],
        "E2": [
            "selectivity",
            "method",
            "planning share",
            "workers",
            "max-vs-ideal",
            "rounds",
            "nodes",
            "modelled",
            "modelled by Table 2",
        ],
    }
    for name in ("E1", "Figure 8", "E2", "E3", "E4", "E5", "petabyte"):
        parts += [f"## {name}", table(results[name], columns.get(name) or list(results[name][0]))]
    curves(args.out / "figure_8.png", results["Figure 8"], "P", "speed-up against P = 1")
    relative = [
        {
            "selectivity": s,
            **{
                m: _modelled(results["E2"], m, s) / _modelled(results["E2"], "default, told Table 2", s)
                for m in ("level 0", "level 1", "literal")
            },
        }
        for s in SELECTIVITIES
    ]
    curves(args.out / "figure_9.png", relative, "selectivity", "modelled time / default", log=True)
    bars(
        args.out / "figure_10.png",
        results["E3"],
        ("largest split 50p", "largest split 90p"),
        "largest split / default's average",
    )
    bars(args.out / "figure_11.png", results["E3"], ("time 50p", "time 90p"), "modelled time / default's average")
    text = "\n\n".join(parts)
    save(args.out, "splits", results, goals.checks, text)
    print(text)
    print(f"\nresults in {args.out}")
    return 1 if goals.missed else 0


def _modelled(rows: Rows, method: str, selectivity: float) -> float:
    return next(
        float(r["modelled by Table 2"]) for r in rows if r["method"] == method and r["selectivity"] == selectivity
    )


if __name__ == "__main__":
    sys.exit(main())
