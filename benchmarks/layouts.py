"""All layouts on seven workloads and two tables: bytes read over the least possible, and the advisor's choice.

Layouts learn from a sample and a log of two epochs; costs are those of a third epoch, on row groups cut from all rows
as the writer does it. With --verify some cells are written by Spark and their queries run. With --predict the advisor's
promise is checked on TPC-H lineitem: 200 later queries are priced, the table is rewritten, and they run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import parquetry
from benchmarks._data import CACHE, tpch
from benchmarks._harness import Goals
from benchmarks._layouts_data import Dataset, lineitem, osm
from benchmarks._layouts_draw import build_times, grid, predictions
from benchmarks._layouts_grid import Bench, measure
from benchmarks._layouts_workloads import WORKLOADS, epochs
from benchmarks._report import save, table, verdicts
from parquetry import RelayoutOptions
from parquetry.layouts.pricing.column_bytes import ColumnBytes, stored_column_bytes
from parquetry.layouts.pricing.price import simulate
from parquetry.maintain.advise import Winner, sample_for, winning_options
from parquetry.maintain.candidates import Candidate
from parquetry.maintain.compare import SAMPLE_ROWS, filtered_columns, learn_candidate
from parquetry.maintain.verdict import Advice
from parquetry.maintain.what_if import relative_errors
from parquetry.query.demands import asked_in_file, asked_of

NEAR = 1.10
VERIFIED = (("lineitem", "drift 1 %", "paw"), ("osm", "half random", "kdtree"))
KEY = ("l_orderkey", "l_linenumber")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="60,000 rows, all learned from, 30 queries per epoch")
    parser.add_argument("--rows", type=int, default=600_000, help="rows of each table")
    parser.add_argument("--queries", type=int, default=60, help="queries per epoch; the log has two")
    parser.add_argument("--share", type=float, default=0.2, help="share of the rows that learners see")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="comma-separated, to limit the grid")
    parser.add_argument("--data", default="lineitem,osm", help="comma-separated, to limit the grid")
    parser.add_argument("--verify", action="store_true", help="write two cells with Spark and run their queries")
    parser.add_argument(
        "--predict", type=float, metavar="SCALE", help="check the advisor's promise at this TPC-H scale"
    )
    parser.add_argument("--no-grid", action="store_true", help="only what --verify and --predict ask for")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=CACHE / "bench", help="folder for results")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.queries, options.share = min(options.rows, 60_000), min(options.queries, 30), 1.0
    options.out.mkdir(parents=True, exist_ok=True)
    makers = {"lineitem": lineitem, "osm": osm}
    data = {name: makers[name](options.rows) for name in options.data.split(",")}
    goals = Goals()
    results: dict[str, Any] = {k: getattr(options, k) for k in ("rows", "queries", "share", "seed")}
    cells: list[dict[str, Any]] = []
    if not options.no_grid:
        for d in data.values():
            bench = Bench(d, d.sampled(), d.sampled(options.share, options.seed), options.queries, options.seed)
            cells += [measure(bench, workload, note) for workload in options.workloads.split(",")]
        judge(cells, goals)
    if options.verify:
        results["verified"] = [verify(data[name], w, learner, options) for name, w, learner in VERIFIED if name in data]
        for v in results["verified"]:
            goals.at_most(f"{v['cell']}: simulated bytes off the real ones, median %", 100 * v["median_error"], 15)
    if options.predict:
        results["predicted"] = predict(options)
        goals.at_most("predicted bytes off the real ones, median % of 200 queries",
                      100 * results["predicted"]["median_error"], 15)  # fmt: skip
    text = report(cells, results, goals, options.out)
    save(options.out, "layouts", {**results, "cells": cells}, goals.checks, text)
    print(f"\n{text}\n\nresults: {options.out / 'layouts'}.json")
    return 1 if goals.missed else 0


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def judge(cells: list[dict[str, Any]], goals: Goals) -> None:
    near = sum(c["regret"] <= NEAR for c in cells)
    goals.at_least(f"cells where the advisor's choice is within 10 % of the best, % of {len(cells)}",
                   100 * near / len(cells), 90)  # fmt: skip
    worse = sum(c["held_out"].get(c["chosen"], c["held_out_today"]) > c["held_out_today"] for c in cells)
    goals.at_most("cells where the choice is worse than today's layout by its own held-out measure", worse, 0)


def report(cells: list[dict[str, Any]], results: dict[str, Any], goals: Goals, out: Path) -> str:
    parts = [
        "# Layouts",
        "Bytes read per query over the least possible, in whole row groups; the table is in key order.",
    ]
    labels = list(dict.fromkeys(label for c in cells for label in c["costs"]))
    if cells:
        rows = []
        for c in cells:
            ratios = {k: v["bytes"] / c["bound_bytes"] for k, v in c["costs"].items()}
            rows.append({"data": c["data"], "workload": c["workload"], **ratios, "advisor": c["chosen"],
                         "advisor / best": c["regret"]})  # fmt: skip
        parts += [table(rows, ["data", "workload", *labels, "advisor", "advisor / best"])]
        seconds = [
            {"layout": n, "median s": float(np.median([c["costs"][n]["build_s"] for c in cells if n in c["costs"]]))}
            for n in labels
        ]
        advised = float(np.median([c["advise_s"] for c in cells]))
        parts += [
            "## Build time",
            table(seconds, ["layout", "median s"]),
            f"The advisor takes {advised:.0f} s per cell.",
        ]
        grid(out / "layouts_grid.png", cells, labels)
        build_times(out / "layouts_build.png", cells, labels)
    if "verified" in results:
        columns = ["cell", "queries", "simulated bytes", "real bytes", "median_error"]
        parts += ["## Cells written and run", table(results["verified"], columns)]
    if "predicted" in results:
        p = results["predicted"]
        columns = ["layout", "queries", "predicted bytes", "real bytes", "bytes before", "median_error", "p90_error",
                   "median error of --check"]  # fmt: skip
        parts += ["## Predictions before a rewrite", table([p], columns)]
        predictions(out / "layouts_predictions.png", p["per_query"])
    return "\n\n".join([*parts, verdicts(goals.checks)])


def verify(data: Dataset, workload: str, learner: str, options: Any) -> dict[str, Any]:
    """The cell's table written in the layout, and its later queries run: what they read against what was simulated."""
    work = CACHE / "bench" / "layouts-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    first, second, later = epochs(data.name, workload, options.queries, options.seed)
    history = work / "log.sql"
    history.write_text(";\n".join([*first, *second]))
    try:
        with parquetry.connect(work / "wh") as wh:
            wh.create_table(data.name, data.schema, settings=data.settings)
            wh.ingest(data.name, data.table)
            wh.maintain()
            wh.relayout(data.name, learner, workload=history, options=RelayoutOptions(block_rows=data.block_rows))
            real = [wh.sql(q, executor="local").stats["bytes_read"] for q in later]
            layout = wh.catalog.state().table(data.name).layout
        assert layout is not None
        asked = [q for sql in later for q in asked_of(sql, data.name, {data.name: data.schema})]
        simulated = simulate(data.sampled(), layout, filtered_columns(asked), ColumnBytes({}))
        guess = [p.bytes for p in simulated.price_all(asked)]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    error = float(np.median(relative_errors(np.array(guess), np.array(real, np.float64))))
    note(f"verified {data.name}, {workload}, {learner}: median error {error:.3f}")
    return {
        "cell": f"{data.name}, {workload}, {learner}",
        "queries": len(real),
        "simulated bytes": float(np.mean(guess)),
        "real bytes": float(np.mean(real)),
        "median_error": error,
    }


def predict(options: Any) -> dict[str, Any]:
    """A round on lineitem: the advisor's choice, and 200 later queries, priced before the rewrite and run after it."""
    import pyarrow.parquet as pq

    work = CACHE / "bench" / "layouts-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    first, second, later = epochs("lineitem", "drift 1 %", 200, options.seed)
    history = work / "log.sql"
    history.write_text(";\n".join([*first[:100], *second[:100]]))
    source = tpch("lineitem", options.predict)
    try:
        with parquetry.connect(work / "wh") as wh:
            wh.create_table("lineitem", pq.read_schema(source), key=KEY)
            wh.ingest("lineitem", source)
            wh.maintain()
            advice = wh.advise("lineitem", workload=history, phase=note)
            note(f"{advice.reason}; advised in {advice.seconds} s")
            assert advice.chosen is not None, advice.reason
            guess, winner = priced_before(wh, advice, history, later)
            wh.relayout("lineitem", winner.learner, workload=history, options=winner.options, phase=note)
            real = [wh.sql(q, executor="local").stats["bytes_read"] for q in later]
            (checked,) = wh.check_layout("lineitem", phase=note).compared
    finally:
        shutil.rmtree(work, ignore_errors=True)
    errors = relative_errors(np.array(guess), np.array(real, np.float64))
    return {
        "scale": options.predict,
        "layout": advice.chosen.label,
        "queries": len(real),
        "predicted bytes": float(np.mean(guess)),
        "real bytes": float(np.mean(real)),
        "promised bytes": winner.predicted["bytes_per_query"],
        "bytes before": winner.predicted["bytes_per_query_before"],
        "median_error": float(np.median(errors)),
        "p90_error": float(np.quantile(errors, 0.9)),
        "median error of --check": checked.median_error,
        "per_query": list(zip(guess, real, strict=True)),
    }


def priced_before(
    wh: parquetry.Warehouse, advice: Advice, history: Path, later: list[str]
) -> tuple[list[float], Winner]:
    """What each later query will read in the layout that the rewrite will learn, from the same sample."""
    state = wh.catalog.state()
    t = state.table("lineitem")
    schemas = {t.name: t.schema}
    log = asked_in_file(history, t.name, schemas)
    asked = [q for sql in later for q in asked_of(sql, t.name, schemas)]
    base = RelayoutOptions(sample_rows=SAMPLE_ROWS)
    winner = winning_options(advice, t, log, base)
    assert advice.chosen is not None
    candidate = Candidate(advice.chosen.learner, advice.chosen.settings)
    stored = stored_column_bytes(wh.store, t.deltas)
    sampled = sample_for(lambda: wh.spark, wh.store, t, [*log, *asked], stored, base)
    filtered = filtered_columns([*log, *asked])
    spec = learn_candidate(t, sampled, candidate, log, filtered, base)
    return [p.bytes for p in simulate(sampled, spec, filtered, stored).price_all(asked)], winner


if __name__ == "__main__":
    sys.exit(main())
