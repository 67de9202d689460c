"""Scan workers on real Spark tasks: skew, speed-up and planning share on a skewed table; lineitem against plain Spark.

`--prepare` only writes the tables, which a later run with the same `--work` then measures.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquetry
from benchmarks._data import CACHE, tpch
from benchmarks._harness import Goals, interleaved, median
from benchmarks._report import save, table, verdicts
from benchmarks.papers._splits_baselines import fixed_boundaries, fixed_size
from parquetry import RelayoutOptions
from parquetry.query.planning.plan import Plan
from parquetry.splits.assignment import assign
from parquetry.splits.delta_index import DeltaIndex

SHARES = (0.70, 0.15, 0.08, 0.04, 0.02, 0.01)
DAYS = 2_000
LARGE = 7_000
MEDIAN = tuple(range(20_001, 20_008))  # seven ids of few rows each, so that the large one has 57,000 times theirs
SETTINGS = {"compaction_width": 100, "max_query_deltas": 32}
LINEITEM = {
    "Q1": "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS q, sum(l_extendedprice) AS p, "
    "avg(l_discount) AS d, count(*) AS n FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' "
    "GROUP BY l_returnflag, l_linestatus ORDER BY 1, 2",
    "Q6": "SELECT sum(l_extendedprice * l_discount) AS revenue, count(*) AS n FROM lineitem WHERE l_shipdate >= "
    "DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    "by mode": "SELECT l_shipmode, l_shipinstruct, count(*) AS n, max(l_extendedprice) AS m, sum(l_quantity) AS q "
    "FROM lineitem WHERE l_quantity > 10 GROUP BY l_shipmode, l_shipinstruct ORDER BY 1, 2",
    "by supplier": "SELECT l_suppkey, sum(l_quantity) AS q, avg(l_tax) AS t, count(*) AS n FROM lineitem "
    "WHERE l_partkey BETWEEN 1000 AND 100000 GROUP BY l_suppkey ORDER BY 1",
}


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def skewed_rows(rng: np.random.Generator, rows: int, large: int, of: int) -> pa.Table:
    """Half of the rows belong to one id, few to seven others, the rest to 20,000 by Zipf."""
    few = max(1, round(rows * (large / 57_000) / of / 7))
    half = rows // 2
    rest = rows - half - 7 * few
    weights = np.arange(1, 20_001) ** -1.1
    ids = rng.permutation(20_000)
    others = ids[np.minimum(np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(rest)), 19_999)]
    k1 = np.concatenate((np.full(half, LARGE), np.repeat(MEDIAN, few), np.where(others == LARGE, 0, others)))
    return pa.table(
        {
            "k1": pa.array(k1, pa.int32()),
            "k2": pa.array(np.minimum(rng.lognormal(5.5, 1.0, rows), DAYS - 1), pa.int32(), safe=False),
            "k3": pa.array(rng.integers(0, 1 << 40, rows)),
            "v1": pa.array(rng.integers(0, 1000, rows)),
            "v2": pa.array(rng.integers(0, 100_000, rows)),
        }
    )


def prepare(wh: parquetry.Warehouse, work: Path, rows: int, scale: float) -> None:
    there = {t["table"] for t in wh.tables()}
    if "skewed" not in there:
        ddl = "k1 int not null, k2 int not null, k3 bigint not null, v1 bigint, v2 bigint"
        wh.create_table("skewed", ddl, ["k1", "k2", "k3"], settings=SETTINGS)
    done = {d["t_lo"] for d in wh.deltas("skewed")}
    for i, share in enumerate(SHARES):
        if len(done) > i:
            continue
        path = work / "batch.parquet"
        pq.write_table(skewed_rows(np.random.default_rng(i), int(rows * share), rows // 2, rows), path)
        wh.ingest("skewed", path, label=f"batch {i}")
        note(f"skewed: batch {i} of {share:.0%} is in")
        path.unlink()
    for name, source in (("lineitem", tpch("lineitem", scale)), ("laid", tpch("lineitem", min(scale, 1)))):
        if name not in there:
            wh.create_table(name, pq.read_schema(source), key=["l_orderkey", "l_linenumber"], settings=SETTINGS)
            wh.ingest(name, source, label="all")
            note(f"{name} is in")
    wh.maintain()
    if wh.layout("laid").get("learner", "key") == "key":
        options = RelayoutOptions(columns=["l_shipdate", "l_quantity", "l_partkey"], block_rows=20_000)
        wh.relayout("laid", "kdtree", options=options)
    note("prepared")


def run(wh: parquetry.Warehouse, plan: Plan) -> tuple[pa.Table, dict[str, Any], float]:
    started = time.perf_counter()
    rows, stats = wh._engine._run(plan)
    return rows, stats, time.perf_counter() - started


def with_fixed_sizes(wh: parquetry.Warehouse, plan: Plan, size: float, splits: int) -> Plan:
    """The same query cut at boundaries every ``size`` bytes of the whole table."""
    (t,) = plan.tables.values()
    assert t.index is not None
    assert t.keep is not None
    assert plan.scan is not None
    whole = DeltaIndex(t.index, t.deltas, wh.store, np.ones(len(t.index), bool))
    ranges = plan.scan.ranges
    found = fixed_size(fixed_boundaries(whole, size), size, ranges, splits)
    tasks = tuple(assign(found.splits, t.index, t.keep, t.deltas, whole.rows_touched(ranges)))
    return replace(plan, scan=replace(plan.scan, splits=found, tasks=tasks))


def skewed(wh: parquetry.Warehouse, runs: int, goals: Goals) -> list[dict[str, Any]]:
    """Done means 2: skew of rows and of time, speed-up, planning share, and fixed sizes beside it."""
    ids = ", ".join(map(str, (*MEDIAN, LARGE)))
    found = []
    for name, days in (("wide", (50, 1999)), ("narrow", (200, 300))):
        sql = (
            f"SELECT k1, k2, sum(v1) AS a, sum(v2) AS b, count(*) AS n FROM skewed WHERE k1 IN ({ids}) "
            f"AND k2 BETWEEN {days[0]} AND {days[1]} GROUP BY k1, k2 ORDER BY k1, k2"
        )
        expected = wh.sql(sql, executor="spark", off=["scan_workers"]).arrow()
        alone = 0.0
        for splits in (1, 2, 4, 8, 16):
            plan = wh.sql(sql, splits=splits).plan
            (t,) = plan.tables.values()
            arms = {"progressive": plan}
            if splits > 1:
                arms["fixed size"] = with_fixed_sizes(wh, plan, t.bytes / 12, splits)
            for arm, cut in arms.items():
                seconds: list[float] = []
                last: dict[str, Any] = {}
                for _ in range(runs):
                    rows, last, spent = run(wh, cut)
                    if rows.to_pylist() != expected.to_pylist():
                        raise AssertionError(f"{arm} with {splits} splits answers differently")
                    seconds.append(spent)
                s = last["scan"]
                if splits == 1:
                    alone = median(seconds)
                found.append(
                    {
                        "query": name,
                        "arm": arm,
                        "P": splits,
                        "workers": s["workers"],
                        "rows": last["rows_scanned"],
                        "row skew": s["row_skew"],
                        "CPU skew": s["time_skew"],
                        "estimated skew": s["estimated_skew"],
                        "wall s": median(seconds),
                        "speed-up": alone / median(seconds),
                        "slowest worker s": s["slowest_s"],
                        "planning ms": s["plan_ms"],
                        "planning %": 100 * s["plan_ms"] / 1e3 / (median(seconds) + s["plan_ms"] / 1e3),
                        "rounds": s["rounds"],
                        "nodes": s["index_nodes"],
                    }
                )
                note(str(found[-1]))
    wide = {(r["arm"], r["P"]): r for r in found if r["query"] == "wide"}
    goals.at_most("skewed, P=8: row skew of scan workers", wide["progressive", 8]["row skew"], 1.35)
    goals.at_least("skewed, P=2 on two cores: speed-up against P=1", wide["progressive", 2]["speed-up"], 1.3)
    goals.at_most("skewed, P=8: planning share of wall time, %", wide["progressive", 8]["planning %"], 5)
    return found


def lineitem(wh: parquetry.Warehouse, rounds: int, goals: Goals) -> list[dict[str, Any]]:
    """Done means 3: filter and group through scan workers against plain Spark over the same files, warm, in turns."""
    found: list[dict[str, Any]] = []
    for name, sql in LINEITEM.items():
        plain = wh.sql(sql, executor="spark", off=["scan_workers"]).plan
        workers = wh.sql(sql, splits=2).plan
        assert workers.scan is not None
        if run(wh, plain)[0].to_pylist() != run(wh, workers)[0].to_pylist():
            raise AssertionError(f"{name}: answers differ")
        times = interleaved({"plain": partial(run, wh, plain), "workers": partial(run, wh, workers)}, rounds)
        spark_s, workers_s = median(times["plain"]), median(times["workers"])
        found.append({"query": name, "plain s": spark_s, "workers s": workers_s, "times faster": spark_s / workers_s})
        note(str(found[-1]))
    goals.at_least(
        "lineitem: plain Spark / scan workers, least of all queries", min(r["times faster"] for r in found), 2
    )
    return found


def laid(wh: parquetry.Warehouse, goals: Goals) -> list[dict[str, Any]]:
    """Done means 3, second part: a query over a learned layout is cut evenly too."""
    found = []
    for splits in (4, 10, 20):
        sql = (
            "SELECT l_returnflag, count(*) AS n, sum(l_quantity) AS q FROM laid WHERE l_shipdate BETWEEN "
            "DATE '1994-03-01' AND DATE '1995-06-30' AND l_quantity < 30 GROUP BY l_returnflag ORDER BY 1"
        )
        expected = wh.sql(sql, executor="spark", off=["scan_workers"]).arrow()
        rows, stats, _ = run(wh, wh.sql(sql, splits=splits).plan)
        if rows.to_pylist() != expected.to_pylist():
            raise AssertionError("answers over the learned layout differ")
        skew = stats["scan"]["row_skew"] * splits / stats["splits"]
        found.append({"P": splits, "workers": stats["scan"]["workers"], "max-vs-ideal": skew})
        note(str(found[-1]))
        if splits <= 10:
            goals.at_most(f"learned layout, P={splits}: max-vs-ideal of rows", skew, 1.35)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000_000, help="rows of the skewed table")
    parser.add_argument("--scale", type=float, default=10, help="TPC-H scale factor")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--prepare", action="store_true", help="write the tables and stop")
    parser.add_argument("--work", type=Path, default=CACHE / "bench" / "splits-work")
    parser.add_argument("--out", type=Path, default=CACHE / "bench")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    goals = Goals()
    with parquetry.connect(args.work / "wh") as wh:
        prepare(wh, args.work, args.rows, args.scale)
        if args.prepare:
            return 0
        results: dict[str, Any] = {"rows": args.rows, "scale": args.scale}
        results["lineitem"] = lineitem(wh, args.runs, goals)
        results["learned layout"] = laid(wh, goals)
        results["skewed"] = skewed(wh, args.runs, goals)
    parts = ["# Scan workers on Spark", verdicts(goals.checks)]
    for name in ("lineitem", "learned layout", "skewed"):
        parts += [f"## {name}", table(results[name], list(results[name][0]))]
    text = "\n\n".join(parts)
    save(args.out, "splits_spark", results, goals.checks, text)
    print(text)
    return 1 if goals.missed else 0


if __name__ == "__main__":
    sys.exit(main())
