"""Joins that run on Spark: lineitem with orders by co-range and hyper join against Spark's best own plan, then TPC-H.

Answers are compared before anything is timed, and the plan is checked to shuffle neither table. `--prepare` only
writes the tables, which a later run with the same `--work` then measures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import parquetry
from benchmarks._data import CACHE, tpch
from benchmarks._harness import Goals, interleaved, median
from benchmarks._report import save, verdicts
from benchmarks.joins import _rows as rows_of
from parquetry import RelayoutOptions
from parquetry.spark import session
from tests.differential.golden import QUERIES
from tests.differential.raw_files import TPCH_KEYS

PAIR = ("orders", "lineitem")
JOINED = (
    "SELECT {hint} o_orderpriority, l_shipmode, count(*) AS n, sum(l_extendedprice * (1 - l_discount)) AS revenue "
    "FROM {orders} AS o JOIN {lineitem} AS l ON l_orderkey = o_orderkey "
    "WHERE o_orderdate >= DATE '1993-01-01' AND l_shipdate < DATE '1997-01-01' "
    "GROUP BY o_orderpriority, l_shipmode ORDER BY o_orderpriority, l_shipmode"
)
HINTS = ("", "/*+ MERGE(o, l) */", "/*+ SHUFFLE_HASH(o) */", "/*+ BROADCAST(o) */")
WAYS = {"co_range_join": "", "hyper_join": "_laid"}
OFF = ("co_range_join", "hyper_join", "broadcast_join", "one_worker")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor")
    parser.add_argument("--rounds", type=int, default=3, help="warm rounds")
    parser.add_argument("--only", default="pair,tpch", help="parts to run")
    parser.add_argument("--prepare", action="store_true", help="only write the tables")
    parser.add_argument("--work", type=Path, default=CACHE / "bench" / "joins-spark-work", help="folder of the tables")
    parser.add_argument("--out", type=Path, default=CACHE / "bench", help="folder for results")
    options = parser.parse_args()
    work = options.work / f"sf{options.scale:g}"
    wanted = options.only.split(",")
    _prepare(work, options.scale, wanted)
    if options.prepare:
        return 0
    goals, results = Goals(), {"scale": options.scale}
    with parquetry.connect(work) as wh:
        if "pair" in wanted:
            results |= _pair(wh, options, goals)
        if "tpch" in wanted:
            results |= _tpch(wh, options, goals)
    save(options.out, f"joins_spark_sf{options.scale:g}", results, goals.checks, verdicts(goals.checks))
    return 1 if goals.missed else 0


def _prepare(work: Path, scale: float, wanted: list[str]) -> None:
    with parquetry.connect(work) as wh:
        there = {t["table"] for t in wh.tables()}
        for table in TPCH_KEYS if "tpch" in wanted else PAIR:
            if table not in there:
                path = tpch(table, scale)
                wh.create_table(table, pq.read_schema(path), key=TPCH_KEYS[table])
                wh.ingest(table, path)
        for table in PAIR if "pair" in wanted else ():
            if f"{table}_laid" in there:
                continue
            path = tpch(table, scale)
            join = TPCH_KEYS[table][0]
            wh.create_table(f"{table}_laid", pq.read_schema(path), key=TPCH_KEYS[table])
            wh.ingest(f"{table}_laid", path)
            wh.maintain()
            rows = pq.read_metadata(path).num_rows
            how = RelayoutOptions(block_rows=max(10_000, rows // 64), join=join, join_levels=3)
            wh.relayout(f"{table}_laid", "two_phase", options=how, workload=None)
        wh.maintain()


def _pair(wh: parquetry.Warehouse, options: Any, goals: Goals) -> dict[str, Any]:
    spark = session()
    for table in PAIR:
        spark.read.parquet(str(tpch(table, options.scale))).createOrReplaceTempView(table)
    plain = {t: t for t in PAIR}
    own = [JOINED.format(hint=hint, **plain) for hint in HINTS]
    expected = rows_of(spark.sql(own[0]).toArrow())
    arms: dict[str, Any] = {
        f"spark {h or 'as it likes'}": (lambda q=q: spark.sql(q).toArrow()) for h, q in zip(HINTS, own, strict=True)
    }
    for way, suffix in WAYS.items():
        sql = JOINED.format(hint="", **{t: f"{t}{suffix}" for t in PAIR})
        off = [o for o in OFF if o != way]
        found = wh.sql(sql, executor="spark", off=off)
        assert found.plan.join is not None, str(wh.explain(sql, executor="spark", off=off))
        assert found.plan.join.way == way, found.plan.join.way
        assert rows_of(found.arrow()) == expected, way
        told = str(found.spark()._jdf.queryExecution().executedPlan().toString())
        assert "MapInArrow" in told, told
        assert "Join" not in told, told  # what is exchanged are the workers' sums
        stats = found.stats
        print(f"  {way}: {found.plan.join.told}; {stats['splits']} tasks, {stats['bytes_read']:,} bytes")
        arms[way] = lambda sql=sql, off=off: wh.sql(sql, executor="spark", off=off).arrow()
    times = {arm: median(seconds) for arm, seconds in interleaved(arms, options.rounds).items()}
    print("  " + ", ".join(f"{arm} {s:.3f} s" for arm, s in times.items()))
    best = min(s for arm, s in times.items() if arm.startswith("spark"))
    for way in WAYS:
        goals.at_least(f"Spark's best own plan / {way}", best / times[way], 4)
    return {"pair": times}


def _tpch(wh: parquetry.Warehouse, options: Any, goals: Goals) -> dict[str, Any]:
    spark = session()
    for table in TPCH_KEYS:
        spark.read.parquet(str(tpch(table, options.scale))).createOrReplaceTempView(table)
    found: dict[str, Any] = {}
    for name, sql in QUERIES.items():
        if not name.startswith("tpch "):
            continue
        started = time.perf_counter()
        result = wh.sql(sql, executor="spark")
        assert rows_of(result.arrow()) == rows_of(spark.sql(sql).toArrow()), name
        arms: dict[str, Callable[[], Any]] = {
            "ours": partial(lambda q: wh.sql(q, executor="spark").arrow(), sql),
            "spark": partial(lambda q: spark.sql(q).toArrow(), sql),
        }
        times = {arm: median(seconds) for arm, seconds in interleaved(arms, options.rounds).items()}
        way = result.plan.join.way if result.plan.join else "scan_workers" if result.plan.scan else "spark"
        found[name] = {"way": way, **times}
        spent = time.perf_counter() - started
        print(f"  {name}: {way} {times['ours']:.2f} s, plain Spark {times['spark']:.2f} s ({spent:.0f} s)", flush=True)
    totals = {arm: sum(f[arm] for f in found.values()) for arm in ("ours", "spark")}
    print(f"  totals: {totals}")
    goals.at_most("TPC-H on Spark against plain Spark", totals["ours"] / totals["spark"], 0.6)
    return {"tpch": found, "totals": totals}


if __name__ == "__main__":
    raise SystemExit(main())
