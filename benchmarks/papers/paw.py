"""PAW (paper 004): protocols PW-E1 to PW-E6 and PW-E8, rows in blocks read by queries unseen when learning.

Costs are in percent of the table's rows. Every query's count and checksum are checked against a plain scan.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks._data import lineitem_numbers, osm_like
from benchmarks._report import Check, save, table, verdicts
from benchmarks._workloads import Setting
from benchmarks.papers._draw import bars, layouts, lines
from benchmarks.papers._measure import BY_NAME, METHODS, Dataset, Layout, Workload, compare, cost, make
from parquetry.layouts.learners.extra import choose_extra_blocks
from parquetry.layouts.learners.options import LearnOptions

Rows = list[dict[str, Any]]
DEFAULT = Setting()
OSM = Setting(dims=2)
SWEPT = [BY_NAME[n] for n in ("Qd-tree", "Qd-tree on Q_F*", "PAW as printed", "PAW", "k-d stop", "k-d skip")]
SWEPT_OSM = [BY_NAME[n] for n in ("Qd-tree", "Qd-tree on Q_F*", "PAW as printed", "PAW", "PAW refined", "k-d skip")]
SWEEPS: dict[str, list[tuple[object, dict[str, object]]]] = {
    "#Q": [(n, {"history": n}) for n in (10, 25, 50, 100, 200, 400)],
    "delta %": [(d, {"delta": d / 100}) for d in (0.5, 1, 2, 5)],
    "gamma %": [(g, {"gamma": g / 100}) for g in (2, 5, 10, 20)],
    "dims": [(n, {"dims": n}) for n in (2, 3, 4, 5, 6, 7)],
    "distribution": [("uniform", {}), ("skewed", {"skewed": True})],
    "#C": [(n, {"skewed": True, "centres": n}) for n in (5, 10, 20, 50)],
    "sigma % of gamma": [(s, {"skewed": True, "sigma": s / 100}) for s in (5, 10, 20, 50)],
}


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _note_of(what: str, text: str) -> None:
    note(f"{what}: {text}")


def measured(data: Dataset, setting: Setting, seeds: Sequence[int], methods: Any, label: str) -> Rows:
    """One row per seed."""
    found = []
    for seed in seeds:
        costs = compare(Workload(data, setting, seed), methods, partial(_note_of, f"{label} seed {seed}"))
        found.append({"seed": seed, **costs})
    return found


def average(rows: Rows) -> dict[str, float]:
    keys = [k for k in rows[0] if k != "seed"]
    return {k: mean(float(r[k]) for r in rows) for k in keys}


def defaults(data: Dataset, seeds: Sequence[int]) -> dict[str, Rows]:
    """PW-E1 (delta 1 %), the same with two-sided changes, and PW-E2 (delta 0)."""
    return {
        "default": measured(data, DEFAULT, seeds, METHODS, "E1 default"),
        "two-sided": measured(data, DEFAULT.but(two_sided=True), seeds, SWEPT, "E1 two-sided"),
        "delta 0": measured(data, DEFAULT.but(delta=0.0), seeds, SWEPT, "E2 delta 0"),
    }


def sweeps(data: Dataset, base: Setting, seeds: Sequence[int], methods: Any, names: Sequence[str]) -> dict[str, Rows]:
    """PW-E3 and PW-E4: one parameter at a time; a row per value, averaged over the seeds."""
    found: dict[str, Rows] = {}
    for name in names:
        found[name] = []
        for value, change in SWEEPS[name]:
            rows = measured(data, base.but(**change), seeds, methods, f"{data.name} {name}={value}")
            found[name].append({name: value, **average(rows)})
    return found


def unknown_delta(data: Dataset, seeds: Sequence[int]) -> Rows:
    """PW-E5, first part: PAW that is told delta against PAW that estimates it."""
    found = []
    for kind, setting in (("uniform", DEFAULT), ("skewed", DEFAULT.but(skewed=True))):
        rows = []
        for seed in seeds:
            workload = Workload(data, setting, seed)
            row: dict[str, Any] = {"seed": seed, "LBblk": 100 * workload.bound}
            ways: dict[str, dict[str, object]] = {
                "PAW": {"refine": False},
                "unknown": {"delta": None},
                "largest": {"delta": None, "delta_quantile": 1.0},
                "matching": {"delta": None, "delta_estimate": "matching"},
            }
            for name, change in ways.items():
                layout, _ = make(workload, BY_NAME["PAW refined"], **change)
                row[name] = 100 * cost(layout, workload)
                row[f"{name} delta"] = float(layout.spec.options["delta"])
            note(f"E5 {kind} seed {seed}: {row}")
            rows.append(row)
        found.append({"workload": kind, **average(rows)})
    return found


def random_mix(data: Dataset, seeds: Sequence[int]) -> Rows:
    """PW-E5, second part: a growing share of the future queries is unlike any logged one."""
    methods = [BY_NAME[n] for n in ("PAW", "PAW refined", "k-d stop", "k-d skip")]
    return [
        {
            "random %": share,
            **average(measured(data, DEFAULT.but(random_share=share / 100), seeds, methods, f"E5 random {share} %")),
        }
        for share in (0, 25, 50, 75, 100)
    ]


def plugins(data: Dataset, seeds: Sequence[int]) -> dict[str, Rows]:
    """PW-E6: precise descriptors and extra blocks on the OSM-like set."""
    boxes: dict[str, list[float]] = {}
    space: dict[str, list[float]] = {}
    for seed in seeds:
        workload = Workload(data, OSM, seed)
        layout, _ = make(workload, BY_NAME["PAW"])
        plain = cost(layout, workload)
        for method in ("gaps", "str"):
            for count in (1, 3, 6):
                with_boxes = cost(layout, workload, layout.boxes(workload.columns, count, method))
                boxes.setdefault(f"{count} {method}", []).append(1 - with_boxes / plain)
        options = LearnOptions(data.block_rows, columns=workload.columns, delta=workload.setting.delta)
        for share in (5, 10, 20, 40):
            extra = choose_extra_blocks(layout.spec, data.table, workload.logged, options, data.rows * share // 100)
            space.setdefault(f"{share} %", []).append(1 - cost(layout, workload, extra=extra) / plain)
        note(f"E6 seed {seed}: { ({k: round(v[-1], 3) for k, v in {**boxes, **space}.items()}) }")
    return {
        "boxes": [{"boxes per block": k, "saved %": 100 * mean(v)} for k, v in boxes.items()],
        "space": [{"extra space": k, "saved %": 100 * mean(v)} for k, v in space.items()],
    }


def layout_time(data: Dataset, runs: int) -> Rows:
    """PW-E8: seconds to learn from all rows, the methods taking turns."""
    workload = Workload(data, DEFAULT, 0)
    times: dict[str, list[float]] = {"Qd-tree": [], "PAW as printed": [], "PAW": [], "PAW refined": []}
    for _ in range(runs):
        for name, seconds in times.items():
            seconds.append(make(workload, BY_NAME[name])[1])
    note(f"E8 {times}")
    return [{"method": k, "median s": sorted(v)[len(v) // 2], "least s": min(v)} for k, v in times.items()]


def judge(results: Mapping[str, Any]) -> list[Check]:
    """The figures to reach (sections 2.5 and issue's 'Done means'), each against what this run measured."""
    checks: list[Check] = []

    def at_most(name: str, value: float, limit: float) -> None:
        checks.append(Check(name, f"<= {limit:g}", value, value <= limit))

    def at_least(name: str, value: float, limit: float) -> None:
        checks.append(Check(name, f">= {limit:g}", value, value >= limit))

    if e1 := results.get("E1"):
        d, zero = average(e1["default"]), average(e1["delta 0"])
        for paw, bound in (("PAW as printed", 1.4), ("PAW", 1.17)):
            at_most(f"E1 {paw} / LBblk", d[paw] / d["LBblk"], bound)
            at_least(f"E1 Qd-tree / {paw}", d["Qd-tree"] / d[paw], 8)
            at_least(f"E1 k-d stop / {paw}", d["k-d stop"] / d[paw], 3)
            at_least(f"E2 delta 0: Qd-tree / {paw}", zero["Qd-tree"] / zero[paw], 1.1)
            at_least(f"E2 delta 0: k-d stop / {paw}", zero["k-d stop"] / zero[paw], 4)
    if e3 := results.get("E3"):
        ratios = [r["Qd-tree"] / r["PAW"] for r in e3["#Q"]]
        at_most("E3 Qd-tree / PAW falls with #Q: steps up", sum(b > a for a, b in pairwise(ratios)), 0)
        at_least("E3 Qd-tree / PAW at 10 queries", ratios[0], 40)
        for name in ("delta %", "gamma %"):
            costs = [r["PAW"] for r in e3[name]]
            at_most(f"E3 PAW flat in {name}: highest / lowest", max(costs) / min(costs), 1.5)
        by_dims = {r["dims"]: r for r in e3["dims"]}
        at_least("E3 k-d stop: 3 dims / 2 dims (the spike)", by_dims[3]["k-d stop"] / by_dims[2]["k-d stop"], 1.3)
        at_most("E3 k-d skip: 3 dims / 2 dims (no spike)", by_dims[3]["k-d skip"] / by_dims[2]["k-d skip"], 1.0)
        at_least("E3 skewed: Qd-tree / PAW", e3["distribution"][1]["Qd-tree"] / e3["distribution"][1]["PAW"], 20)
        worst = max(r["PAW"] / r["LBblk"] for rows in e3.values() for r in rows)
        at_most("E3 PAW / LBblk, worst of all settings", worst, 2.0)
        for name in ("#C", "sigma % of gamma"):
            spread = {m: max(r[m] for r in e3[name]) - min(r[m] for r in e3[name]) for m in ("Qd-tree", "PAW")}
            at_most(f"E3 PAW less sensitive to {name}: its spread / Qd-tree's", spread["PAW"] / spread["Qd-tree"], 1.0)
    if e4 := results.get("E4"):
        d = average(e4["default"])
        at_most("E4 OSM PAW as printed / LBblk", d["PAW as printed"] / d["LBblk"], 1.75)
        at_most("E4 OSM PAW / LBblk", d["PAW"] / d["LBblk"], 1.5)
        few, many = e4["sweeps"]["#Q"][0], e4["sweeps"]["#Q"][-1]
        skewed = e4["sweeps"]["distribution"][1]
        best = max(few["Qd-tree"] / few["PAW"], skewed["Qd-tree"] / skewed["PAW"])
        at_least("E4 OSM Qd-tree / PAW, few queries or skewed", best, 10)
        at_most("E4 OSM Qd-tree / PAW at 400 queries", many["Qd-tree"] / many["PAW"], 2.5)
    if e5 := results.get("E5"):
        uniform, skewed = e5["unknown"]
        at_most("E5 unknown delta, uniform: / PAW", uniform["unknown"] / uniform["PAW"], 4)
        at_most("E5 unknown delta, uniform: % of the table", uniform["unknown"], 1)
        at_most("E5 unknown delta, skewed: / PAW", skewed["unknown"] / skewed["PAW"], 1.25)
        mix = e5["mix"]
        at_most("E5 all queries random: PAW / k-d stop", mix[-1]["PAW refined"] / mix[-1]["k-d stop"], 1.0)
        falls = sum(b["PAW refined"] < a["PAW refined"] * 0.97 for a, b in pairwise(mix))
        at_most("E5 cost grows with random queries: steps down", falls, 0)
    if e6 := results.get("E6"):
        saved = {r["boxes per block"]: r["saved %"] for r in e6["boxes"]}
        at_least("E6 three boxes per block: % saved", max(saved["3 gaps"], saved["3 str"]), 8)
        at_least("E6 20 % extra space: % saved", {r["extra space"]: r["saved %"] for r in e6["space"]}["20 %"], 9)
    if e8 := results.get("E8"):
        for row in e8[1:]:
            at_most(f"E8 layout time: {row['method']} / Qd-tree", row["median s"] / e8[0]["median s"], 3)
    return checks


def write(results: Mapping[str, Any], checks: list[Check], out: Path) -> None:
    parts = ["# PAW, paper 004", "Costs in % of the table's rows.", verdicts(checks)]
    order = ["LBexact", "LBblk", *BY_NAME]

    def section(title: str, rows: Rows) -> None:
        first = next(iter(rows[0]))
        present = [c for c in order if c in rows[0]] or [k for k in rows[0] if k != first]
        parts.extend([f"## {title}", table(rows, [first, *present])])

    for name, rows in (results.get("E1") or {}).items():
        section(f"E1/E2 lineitem, {name}", [*rows, {"seed": "mean", **average(rows)}])
    for name, rows in (results.get("E3") or {}).items():
        section(f"E3 lineitem, {name}", rows)
        lines(out / f"paw_lineitem_{slug(name)}.png", rows, name, order)
    if e4 := results.get("E4"):
        section("E4 OSM-like, default", [*e4["default"], {"seed": "mean", **average(e4["default"])}])
        for name, rows in e4["sweeps"].items():
            section(f"E4 OSM-like, {name}", rows)
            lines(out / f"paw_osm_{slug(name)}.png", rows, name, order)
    if e5 := results.get("E5"):
        parts += ["## E5 unknown delta", table(e5["unknown"], list(e5["unknown"][0]))]
        section("E5 random queries in the future workload", e5["mix"])
        lines(out / "paw_random_mix.png", e5["mix"], "random %", order)
    for name, rows in (results.get("E6") or {}).items():
        section(f"E6 OSM-like, {name}", rows)
    if e8 := results.get("E8"):
        section("E8 layout time", e8)
    if e1 := results.get("E1"):
        bars(out / "paw_default.png", {k: average(v) for k, v in e1.items()}, order)
    save(out, "paw", results, checks, "\n\n".join(parts))


def slug(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).strip("_")


def draw_layouts(data: Dataset, out: Path) -> None:
    """PW-27: Figures 13 and 14, on the first two columns."""
    workload = Workload(data, DEFAULT.but(dims=2, history=20), 0)
    made: dict[str, Layout] = {n: make(workload, BY_NAME[n])[0] for n in ("k-d skip", "Qd-tree", "PAW")}
    layouts(out / f"paw_layouts_{slug(data.name)}.png", made, workload)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="600,000 rows everywhere, and 2 seeds unless given")
    parser.add_argument("--seeds", type=int, default=None, help="random seeds; 5 unless --quick")
    parser.add_argument("--only", default="E1,E3,E4,E5,E6,E8", help="protocols to run (E1 includes E2)")
    parser.add_argument("--sweep-rows", type=int, default=600_000, help="rows in sweeps (0: all); blocks stay 586")
    parser.add_argument("--out", type=Path, default=Path("build/bench/paw"))
    args = parser.parse_args()
    seeds = range(args.seeds or (2 if args.quick else 5))
    wanted = args.only.split(",")
    args.out.mkdir(parents=True, exist_ok=True)

    lineitem = Dataset("lineitem", lineitem_numbers()).thin(600_000 if args.quick else 0)
    sweep_rows = 600_000 if args.quick else args.sweep_rows
    thin = lineitem.thin(sweep_rows)
    settings = {"seeds": len(seeds), "rows": lineitem.rows, "block_rows": lineitem.block_rows, "sweep_rows": thin.rows}
    results: dict[str, Any] = {"settings": settings}
    if "E8" in wanted:
        results["E8"] = layout_time(lineitem, 3)
    if "E1" in wanted:
        results["E1"] = defaults(lineitem, seeds)
        draw_layouts(thin, args.out)
    if "E3" in wanted:
        results["E3"] = sweeps(thin, DEFAULT, seeds, SWEPT, list(SWEEPS))
    if "E5" in wanted:
        results["E5"] = {"unknown": unknown_delta(thin, seeds), "mix": random_mix(thin, seeds)}
    if "E4" in wanted or "E6" in wanted:
        osm = Dataset("OSM-like", osm_like()).thin(600_000 if args.quick else 0)
        if "E4" in wanted:
            default = measured(osm, OSM, seeds, SWEPT_OSM, "E4 default")
            names = ("#Q", "delta %", "gamma %", "distribution")
            swept = sweeps(osm.thin(sweep_rows), OSM, seeds, SWEPT_OSM, names)
            results["E4"] = {"default": default, "sweeps": swept}
            draw_layouts(osm.thin(sweep_rows), args.out)
        if "E6" in wanted:
            results["E6"] = plugins(osm.thin(sweep_rows), seeds)
    checks = judge(results)
    write(results, checks, args.out)
    print(verdicts(checks))
    print(f"\nresults in {args.out}")
    return 0 if all(c.passed for c in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
