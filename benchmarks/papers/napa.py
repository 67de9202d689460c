"""Napa (paper 001): protocols NA-E1 to NA-E4 and NA-E6; NA-E5 is tests/views/test_machine.py.

Every answer from a view is compared with the same query over the table before anything is timed.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import parquetry
from benchmarks._harness import Goals, percentile
from benchmarks._report import save, table, verdicts
from benchmarks.papers._napa_data import DDL, KEY, hits, log_of
from benchmarks.papers._napa_simulate import io_latency, three_clients
from parquetry.spark import session
from parquetry.views.changes import Step
from parquetry.views.classes import class_of, initial_values
from parquetry.views.refresh import refresh
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
VIEW_COUNTS = (0, 1, 2, 4, 8, 12)
DELTA_COUNTS = (1, 2, 4, 8, 16, 32)


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def filled(folder: Path, spark: SparkSession, rows: int, **settings: int) -> Warehouse:
    wh = parquetry.connect(folder, spark=spark)
    wh.create_table("hits", DDL, key=list(KEY), settings=settings)
    wh.ingest("hits", hits(rows, 0), "all", tasks=1)
    wh.maintain()
    return wh


def measured(wh: Warehouse, log: list[str]) -> tuple[list[int], list[float]]:
    """Rows read and milliseconds of every query, in this process."""
    rows, times = [], []
    for sql in log:
        result = wh.sql(sql, executor="local")
        rows.append(int(result.stats["rows_scanned"]))
        times.append(float(result.stats["elapsed_ms"]))
    return rows, times


def same_answers(wh: Warehouse, log: list[str]) -> None:
    for sql in dict.fromkeys(log):
        with_views = wh.sql(sql, executor="local").arrow()
        without = wh.sql(sql, executor="local", off=["views"]).arrow()
        key = [(n, "ascending") for n in without.column_names]
        assert with_views.sort_by(key).equals(without.sort_by(key)), sql


def views(folder: Path, spark: SparkSession, rows: int, queries: int) -> Rows:
    """NA-E1: rows read and time per query with ever more views, taken in the order of benefit per cost."""
    wh = filled(folder, spark, rows)
    log = log_of(queries, 1)
    found: Rows = []
    for sql in log:
        wh.sql(sql, executor="local").arrow()
    suggested = wh.suggest_views("hits", most=max(VIEW_COUNTS)).views
    note(f"E1: {len(suggested)} views suggested")
    made = 0
    for count in VIEW_COUNTS:
        for s in suggested[made:count]:
            wh.create_view(s.name, s.sql)
        made = max(made, min(count, len(suggested)))
        wh.maintain()
        same_answers(wh, log[:60])
        measured(wh, log[:50])
        read, times = measured(wh, log)
        stored = sum(v["rows"] for v in wh.views())
        row = {"views": count, "made": made, "view rows": stored, "mean rows": float(np.mean(read))}
        for name, values in (("rows", read), ("ms", times)):
            row |= {f"p{p} {name}": float(np.percentile(values, p)) for p in (50, 90, 99)}
        row["mean ms"] = float(np.mean(times))
        note(f"E1: {row}")
        found.append(row)
    wh.close()
    return found


def deltas(folder: Path, spark: SparkSession, rows: int, queries: int) -> Rows:
    """NA-E2: lookups that cannot aggregate lazily, over the same rows in ever more deltas."""
    rng = np.random.default_rng(2)
    model = io_latency(DELTA_COUNTS, subqueries=20, columns=3, queries=2_000, seed=0)
    wh = parquetry.connect(folder, spark=spark)
    found: Rows = []
    data = hits(rows, 0)
    answers: dict[int, int] = {}
    for count in DELTA_COUNTS:
        name = f"hits{count}"
        keep = {"max_query_deltas": 64, "compaction_width": 64, "row_group_rows": 20_000}
        wh.create_table(name, DDL, key=list(KEY), model="upsert", settings=keep)
        order = np.random.default_rng(3).permutation(data.num_rows)
        for part in np.array_split(order, count):
            wh.ingest(name, data.take(pa.array(part)), tasks=1)
        wh.maintain()
    customers = [int(c) for c in np.minimum(rng.zipf(1.3, queries), 5_000)]
    days = [f"2026-02-{int(d):02d}" for d in rng.integers(1, 28, queries)]
    for count in DELTA_COUNTS:
        times, read, files = [], [], []
        for round_ in range(2):
            for i, (c, d) in enumerate(zip(customers, days, strict=True)):
                sql = f"SELECT page, clicks FROM hits{count} WHERE day = DATE '{d}' AND customer = {c}"
                result = wh.sql(sql, executor="local")
                n = result.arrow().num_rows
                assert answers.setdefault(i, n) == n, "the number of deltas changes no answer"
                if round_:
                    times.append(result.stats["elapsed_ms"])
                    read.append(result.stats["rows_scanned"])
                    files.append(result.stats["files_read"])
        found.append(
            {
                "deltas": count,
                "files": float(np.mean(files)),
                "mean rows": float(np.mean(read)),
                "p50 ms": percentile(times, 0.5),
                "p99 ms": percentile(times, 0.99),
                "p99 of the I/O model": model[count],
            }
        )
        note(f"E2: {found[-1]}")
    wh.close()
    return found


def outage(folder: Path, spark: SparkSession, steps: int) -> Rows:
    """NA-E3: ingestion and queries go on while maintenance stops between X and Y; with both negative controls."""
    wh = parquetry.connect(folder, spark=spark)
    few = {"max_query_deltas": 4, "compaction_width": 2}
    everything = {"max_query_deltas": 1_000, "compaction_width": 1_000}
    for name, settings in (("hits", few), ("all_of_it", everything)):
        wh.create_table(name, DDL, key=list(KEY), model="upsert", settings=settings)
    wh.create_view("by_day", "SELECT day, count(*) AS n, sum(clicks) AS clicks FROM hits GROUP BY day", settings=few)
    down = range(steps // 3, 2 * steps // 3)
    found: Rows = []
    for step in range(steps):
        batch = hits(2_000, 100 + step)
        started = time.perf_counter()
        wh.ingest("hits", batch, tasks=1)
        ingest_ms = (time.perf_counter() - started) * 1e3
        wh.ingest("all_of_it", batch, tasks=1)
        started = time.perf_counter()
        if step not in down:
            wh.maintain()
        maintain_ms = (time.perf_counter() - started) * 1e3
        times = []
        for c in range(1, 101):
            result = wh.sql(f"SELECT page, clicks FROM hits WHERE customer = {c}", executor="local")
            result.arrow()
            times.append(result.stats["elapsed_ms"])
        state = wh.catalog.state()
        found.append(
            {
                "step": step,
                "down": step in down,
                "lag": state.clock - state.qt,
                "ingest ms": ingest_ms,
                "coupled ingest ms": ingest_ms + maintain_ms,
                "p99 ms": percentile(times, 0.99),
                "p50 ms": percentile(times, 0.5),
                "deltas": len([d for d in state.table("hits").deltas if d.t_hi <= state.qt]),
                "deltas of everything": len(state.table("all_of_it").deltas),
                "times": times,
            }
        )
        note(f"E3: step {step}, QT lags by {found[-1]['lag']}, p99 {found[-1]['p99 ms']:.1f} ms")
    wh.close()
    return found


def classes(folder: Path, spark: SparkSession, rows: int) -> Rows:
    """NA-E6: a full prefix streams, a shared one sorts inside clusters, none is aggregated and sorted by Spark."""
    wh = filled(folder, spark, rows, file_bytes=1 << 32)
    for name, groups in (("one", "day, customer"), ("two", "day, customer, page"), ("three", "page, country, day")):
        wh.create_view(name, f"SELECT {groups}, sum(clicks) AS clicks, count(*) AS n FROM hits GROUP BY {groups}")
    found: Rows = []
    state = wh.catalog.state()
    base = state.table("hits")
    data = hits(rows, 0).select(["day", "customer"])
    clusters = data.group_by(["day", "customer"]).aggregate([([], "count_all")]).column("count_all").to_numpy()
    n = float(rows)
    comparisons = {1: 0.0, 2: float((clusters * np.log2(np.maximum(clusters, 2))).sum()), 3: n * math.log2(n)}
    for name in ("one", "two", "three"):
        view = state.table(name)
        assert view.view is not None
        kind = class_of(view, base)
        step = Step(spark.newSession(), wh.store, state, view.view.spec, 0, base.deltas[0].t_hi)
        made = initial_values(view.view.spec, view, step.rows_in_order()) if kind.number < 3 else step.frame()
        plan = made._jdf.queryExecution().executedPlan().toString()
        started = time.perf_counter()
        assert refresh(wh.catalog, wh.store, spark, wh.catalog.state(), view, base.deltas[0].t_hi, "bench")
        found.append(
            {
                "class": kind.number,
                "why": kind.why,
                "shuffles": plan.count("Exchange"),
                "sorts": plan.count("Sort ["),
                "comparisons": comparisons[kind.number],
                "seconds": time.perf_counter() - started,
                "view rows": sum(d.rows for d in wh.catalog.state().table(name).deltas),
            }
        )
        note(f"E6: {found[-1]}")
    wh.maintain()
    for name in ("one", "two", "three"):
        direct = wh.sql(wh.catalog.state().table(name).view.spec.sql, executor="local", off=["views"]).arrow()  # type: ignore[union-attr]
        read = wh.sql(f"SELECT * FROM {name}", executor="local").arrow()
        key = [(c, "ascending") for c in read.column_names]
        assert read.sort_by(key).equals(direct.sort_by(key)), name
    wh.close()
    return found


def judge(results: dict[str, Any]) -> Goals:
    goals = Goals()
    if e1 := {r["views"]: r for r in results.get("E1", [])}:
        goals.at_least("E1 mean rows, 0 views over 2", e1[0]["mean rows"] / e1[2]["mean rows"], 1.5)
        goals.at_least("E1 mean ms, 0 views over 2", e1[0]["mean ms"] / e1[2]["mean ms"], 1.5)
        goals.at_least("E1 p90 rows, 0 views over 2", e1[0]["p90 rows"] / e1[2]["p90 rows"], 1.5)
        goals.at_least("E1 p99 rows, 2 views over 8", e1[2]["p99 rows"] / max(1, e1[8]["p99 rows"]), 1.1)
        goals.at_most("E1 p99 rows, 8 views over 12", e1[8]["p99 rows"] / max(1, e1[12]["p99 rows"]), 1.05)
    if e2 := {r["deltas"]: r for r in results.get("E2", [])}:
        goals.at_least("E2 p99 of the I/O model, 8 deltas over 2", _ratio(e2, "p99 of the I/O model"), 2)
        goals.at_least("E2 measured p99, 8 deltas over 2", _ratio(e2, "p99 ms"), 2)
    if e3 := results.get("E3"):
        before = [r for r in e3 if not r["down"] and r["step"] < len(e3) // 3][2:]
        during = [r for r in e3 if r["down"]]
        calm, out = (percentile([t for r in rows for t in r["times"]], 0.99) for rows in (before, during))
        goals.at_most("E3 p99 in the outage over before", out / calm, 1.1)
        goals.at_least("E3 lag at the end of the outage", float(during[-1]["lag"]), len(during))
        goals.at_most("E3 lag at the end", float(e3[-1]["lag"]), 0)
        stalls = [r["ingest ms"] for r in during]
        goals.at_most(
            "E3 ingest in the outage over before", _median(stalls) / _median([r["ingest ms"] for r in before]), 1.5
        )
        coupled = _median([r["coupled ingest ms"] for r in before]) / _median([r["ingest ms"] for r in before])
        goals.at_least("E3 control: coupled ingest over decoupled", coupled, 1.5)
        growth = during[-1]["deltas of everything"] / max(1, during[-1]["deltas"])
        goals.at_least("E3 control: deltas when everything is queried, over ours", growth, 2)
    if e4 := {r["client"]: r for r in results.get("E4", [])}:
        cost, delay, merged = "rows written per row", "mean delay s", "p99 deltas per query"
        goals.at_least("E4 cost A over B", e4["A"][cost] / e4["B"][cost], 1)
        goals.at_least("E4 cost C over A", e4["C"][cost] / e4["A"][cost], 1)
        goals.at_least("E4 delay A over C", e4["A"][delay] / e4["C"][delay], 1)
        goals.at_least("E4 delay A over B", e4["A"][delay] / e4["B"][delay], 1)
        goals.at_least("E4 deltas per query B over A", e4["B"][merged] / e4["A"][merged], 1)
        goals.at_least("E4 deltas per query A over C", e4["A"][merged] / e4["C"][merged], 1)
    if e6 := {r["class"]: r for r in results.get("E6", [])}:
        goals.at_most("E6 shuffles and sorts of class 1", float(e6[1]["shuffles"] + e6[1]["sorts"]), 0)
        goals.at_most("E6 comparisons class 2 over class 3", e6[2]["comparisons"] / e6[3]["comparisons"], 0.5)
    return goals


def _ratio(rows: dict[int, dict[str, Any]], figure: str) -> float:
    return float(rows[8][figure] / rows[2][figure])


def _median(values: list[float]) -> float:
    return float(np.median(values))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 million rows, 150 queries")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--only", default="E1,E2,E3,E4,E6", help="protocols to run")
    parser.add_argument("--out", type=Path, default=Path(".cache/bench/napa"))
    args = parser.parse_args()
    rows, queries = (1_000_000, 150) if args.quick else (args.rows, args.queries)
    wanted = args.only.split(",")
    results: dict[str, Any] = {"settings": {"rows": rows, "queries": queries}}
    if "E4" in wanted:
        results["E4"] = three_clients(160)
    work = Path(tempfile.mkdtemp(prefix="napa-"))
    try:
        if set(wanted) - {"E4"}:
            spark = session()
        if "E6" in wanted:
            results["E6"] = classes(work / "e6", spark, rows)
        if "E1" in wanted:
            results["E1"] = views(work / "e1", spark, rows, queries)
        if "E2" in wanted:
            results["E2"] = deltas(work / "e2", spark, rows // 4, min(queries, 200))
        if "E3" in wanted:
            results["E3"] = outage(work / "e3", spark, 15 if args.quick else 30)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    goals = judge(results)
    parts = [verdicts(goals.checks)]
    shown = {n: [c for c in v[0] if c != "times"] for n, v in results.items() if n != "settings"}
    parts += [f"## {n}\n\n{table(results[n], columns)}" for n, columns in shown.items()]
    save(args.out, "napa", results, goals.checks, "\n\n".join(parts))
    print("\n\n".join(parts))
    return 0 if not goals.missed else 1


if __name__ == "__main__":
    sys.exit(main())
