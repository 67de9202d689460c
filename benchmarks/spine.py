"""The spine on TPC-H lineitem: ingest, compaction, lookups, full scans and planning, against Spark and DuckDB."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import parquetry
from benchmarks._data import CACHE, tpch
from benchmarks._harness import Goals, interleaved, median, percentile
from benchmarks._report import save, verdicts
from parquetry.spark import session

KEY = ["l_orderkey", "l_linenumber"]
SCAN = """
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS qty, sum(l_extendedprice * (1 - l_discount)) AS revenue,
       avg(l_discount) AS discount, count(*) AS n
FROM {table} WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus ORDER BY 1, 2
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="TPC-H scale factor (10 for the large run)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the long measurements")
    parser.add_argument("--lookups", type=int, default=300, help="point and range lookups of each kind")
    parser.add_argument("--only", help="comma-separated: write,lookup,scan,plan")
    parser.add_argument("--out", type=Path, default=CACHE / "bench", help="folder for results")
    options = parser.parse_args()
    wanted = set((options.only or "write,lookup,scan,plan").split(","))
    work = CACHE / "bench" / "spine-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    goals = Goals()
    results: dict[str, Any] = {"scale": options.scale}
    try:
        if wanted & {"write", "lookup", "scan"}:
            source = tpch("lineitem", options.scale)
            results |= measure_table(source, work, options, wanted, goals)
        if "plan" in wanted:
            results["plan"] = measure_planning(work, goals)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    save(options.out, "spine", results, goals.checks, verdicts(goals.checks))
    print(f"results: {options.out / 'spine.json'}")
    return 1 if goals.missed else 0


def measure_table(source: Path, work: Path, options: Any, wanted: set[str], goals: Goals) -> dict[str, Any]:
    spark = session()
    rows = pq.read_metadata(source).num_rows
    wh = parquetry.connect(work / "wh")
    schema = pq.read_schema(source)
    quiet = {"compaction_width": 1000, "max_query_deltas": 1000}
    results: dict[str, Any] = {"rows": rows}
    wh.create_table("lineitem", schema, key=KEY, settings=quiet)

    if "write" in wanted:
        results["ingest"] = measure_ingest(wh, spark, source, rows, work, options.rounds, goals)
        mixed = _mixed(source, work)
        results["ingest of mixed rows"] = measure_ingest(wh, spark, mixed, rows, work, options.rounds, goals)
    spark.read.parquet(str(source)).createOrReplaceTempView("raw")
    plain = str(work / "plain")
    _plain_sorted(spark, [str(source)], plain)
    _batches(wh, spark, source, 8)
    results["compaction"] = measure_compaction(wh, spark, rows, work, options.rounds, goals)
    if "lookup" in wanted:
        results["lookup"] = measure_lookups(wh, spark, source, plain, work, options.lookups, goals)
    if "scan" in wanted:
        results["scan"] = measure_scan(wh, spark, plain, max(5, options.rounds), goals)
    wh.close()
    return results


def measure_ingest(
    wh: parquetry.Warehouse, spark: Any, source: Path, rows: int, work: Path, rounds: int, goals: Goals
) -> dict[str, Any]:
    print(f"ingest of {rows:,} rows, {source.stem}:", flush=True)
    schema = pq.read_schema(source)
    count = iter(range(1000))

    def ours() -> None:
        name = f"ingest{next(count)}"
        wh.create_table(name, schema, key=KEY)
        assert wh.ingest(name, source, label="all").rows == rows
        stored = sum(d["rows"] for d in wh.deltas(name))
        assert stored == rows, stored
        wh.drop_table(name)
        wh.vacuum(grace_s=0)

    def baseline() -> None:
        _plain_sorted(spark, [str(source)], str(work / "baseline"))

    interleaved({"plain": baseline, "parquetry": ours}, 1)  # warm-up
    times = interleaved({"plain": baseline, "parquetry": ours}, rounds)
    ratio = median(times["plain"]) / median(times["parquetry"])
    goals.at_least(f"ingest of {source.stem}, rows/s as a ratio to spark.write.parquet of the sorted rows", ratio, 0.9)
    rate = rows / median(times["parquetry"])
    print(f"          {rate:,.0f} rows/s")
    return {"seconds": times, "ratio": ratio, "rows_per_s": rate}


def _mixed(source: Path, work: Path) -> Path:
    """The rows in no order; those of the source lie in key order."""
    import duckdb

    mixed = work / "mixed.parquet"
    with duckdb.connect() as duck:
        duck.execute(f"COPY (FROM '{source}' ORDER BY hash({', '.join(KEY)})) TO '{mixed}' (FORMAT parquet)")
    return mixed


def measure_compaction(
    wh: parquetry.Warehouse, spark: Any, rows: int, work: Path, rounds: int, goals: Goals
) -> dict[str, Any]:
    print("compaction of 8 deltas:", flush=True)
    paths = [str(wh.store.url(f.path)) for d in wh.catalog.state().table("lineitem").deltas for f in d.files]
    baseline_s = []
    for _ in range(max(1, rounds - 1)):
        started = time.perf_counter()
        _plain_sorted(spark, paths, str(work / "baseline"))
        baseline_s.append(time.perf_counter() - started)
    wh.maintain()
    wh.change_settings("lineitem", compaction_width=2)
    started = time.perf_counter()
    wh.maintain()
    ours_s = time.perf_counter() - started
    deltas = wh.deltas("lineitem")
    assert [d["rows"] for d in deltas] == [rows], deltas
    ratio = median(baseline_s) / ours_s
    goals.at_least("compaction rows/s, ratio to spark.write.parquet of the sorted rows", ratio, 1.5)
    return {"seconds": ours_s, "baseline_seconds": baseline_s, "ratio": ratio, "rows_per_s": rows / ours_s}


def measure_lookups(
    wh: parquetry.Warehouse, spark: Any, source: Path, plain: str, work: Path, count: int, goals: Goals
) -> dict[str, Any]:
    import duckdb

    single = str(work / "single.parquet")
    duck = duckdb.connect()
    duck.execute(f"COPY (FROM '{source}' ORDER BY {', '.join(KEY)}) TO '{single}' (FORMAT parquet)")
    spark.read.parquet(plain).createOrReplaceTempView("plain")
    keys = [k for (k,) in duck.execute(f"SELECT DISTINCT l_orderkey FROM '{single}' USING SAMPLE 2000").fetchall()]
    random.Random(1).shuffle(keys)
    columns = "l_orderkey, l_linenumber, l_extendedprice, l_shipdate"
    kinds = {
        "point": f"SELECT {columns} FROM {{t}} WHERE l_orderkey = {{k}} ORDER BY 1, 2",
        "range": f"SELECT {columns} FROM {{t}} WHERE l_orderkey BETWEEN {{k}} AND {{k}} + 3000 ORDER BY 1, 2",
        "row": "SELECT * FROM {t} WHERE l_orderkey = {k} ORDER BY l_linenumber",
    }
    results = {}
    for kind, text in kinds.items():
        ours, theirs, sparks = [], [], []
        for i, k in enumerate(keys[:count]):
            mine, other = text.format(t="lineitem", k=k), text.format(t=f"'{single}'", k=k)
            started = time.perf_counter()
            a = wh.sql(mine).arrow()
            between = time.perf_counter()
            b = duck.sql(other).to_arrow_table()
            ended = time.perf_counter()
            if i < 20 or i % 50 == 0:
                assert a.to_pylist() == b.to_pylist(), (mine, a.num_rows, b.num_rows)
            if i >= 10:  # the first ones warm both sides
                ours.append((between - started) * 1e3)
                theirs.append((ended - between) * 1e3)
            if i < 15:
                started = time.perf_counter()
                spark.sql(text.format(t="plain", k=k)).toArrow()
                sparks.append((time.perf_counter() - started) * 1e3)
        print(
            f"{kind} lookups: parquetry p50 {median(ours):.2f} ms p99 {percentile(ours, 0.99):.2f}; "
            f"DuckDB p50 {median(theirs):.2f} p99 {percentile(theirs, 0.99):.2f}; "
            f"Spark p50 {median(sparks[5:]):.0f} ms",
            flush=True,
        )
        ratio = median(ours) / median(theirs)
        goals.at_most(f"{kind} lookup p50, ratio to DuckDB over one sorted file", ratio, 2)
        results[kind] = {
            "parquetry_ms": {"p50": median(ours), "p99": percentile(ours, 0.99)},
            "duckdb_ms": {"p50": median(theirs), "p99": percentile(theirs, 0.99)},
            "spark_ms": {"p50": median(sparks[5:])},
            "ratio_duckdb": ratio,
            "ratio_spark": median(ours) / median(sparks[5:]),
        }
    return results


def measure_scan(wh: parquetry.Warehouse, spark: Any, plain: str, rounds: int, goals: Goals) -> dict[str, Any]:
    spark.read.parquet(plain).createOrReplaceTempView("plain")
    ours = wh.sql(SCAN.format(table="lineitem"), executor="spark").arrow()
    native = spark.sql(SCAN.format(table="plain")).toArrow()
    local = wh.sql(SCAN.format(table="lineitem"), executor="local").arrow()
    assert ours.to_pylist() == native.to_pylist() == local.to_pylist()
    times = interleaved(
        {
            "native": lambda: spark.sql(SCAN.format(table="plain")).toArrow(),
            "parquetry on Spark": lambda: wh.sql(SCAN.format(table="lineitem"), executor="spark").arrow(),
            "parquetry local": lambda: wh.sql(SCAN.format(table="lineitem"), executor="local").arrow(),
        },
        rounds + 2,
    )
    seconds = {name: median(t[2:]) for name, t in times.items()}
    print("full scan: " + ", ".join(f"{name} {s:.2f} s" for name, s in seconds.items()), flush=True)
    ratio = seconds["parquetry on Spark"] / seconds["native"]
    goals.at_most("full-scan aggregate on Spark, ratio to native Spark over plain Parquet", ratio, 1.1)
    return {"seconds": times, "ratio": ratio, "local_ratio": seconds["parquetry local"] / seconds["native"]}


def measure_planning(work: Path, goals: Goals) -> dict[str, Any]:
    """Planning alone: catalogs and indexes of a size that no small machine fills with data."""
    from benchmarks._planning import many_deltas, many_row_groups

    results = {}
    for name, make in (("1,000 deltas", many_deltas), ("100,000 row groups", many_row_groups)):
        wh = make(work / name.replace(" ", "-").replace(",", ""))
        times = []
        for i in range(60):
            plan = wh.explain(
                f"SELECT sum(v) AS v FROM t WHERE k BETWEEN {i * 1000} AND {i * 1000 + 50000} AND v < 900"
            ).plan
            times.append(plan.plan_ms)
        (t,) = plan.tables.values()
        print(
            f"planning over {name}: p50 {median(times[10:]):.2f} ms, {t.groups_read:,} of {t.groups_total:,} row groups"
        )
        goals.at_most(f"planning with {name}, warm p50 in ms", median(times[10:]), 20)
        results[name] = {"p50_ms": median(times[10:]), "p99_ms": percentile(times[10:], 0.99), "first_ms": times[0]}
        wh.close()
    return results


def _plain_sorted(spark: Any, sources: list[str], target: str) -> None:
    """The same rows in the same order by plain Spark, with as many tasks."""
    size = sum(Path(p).stat().st_size for p in sources)
    tasks = max(2, -(-size // (64 << 20)))
    frame = spark.read.parquet(*sources)
    frame.repartitionByRange(tasks, *KEY).sortWithinPartitions(*KEY).write.mode("overwrite").parquet(target)


def _batches(wh: parquetry.Warehouse, spark: Any, source: Path, count: int) -> None:
    """Ingests the table in batches that interleave in key space, as arrivals do."""
    frame = spark.read.parquet(str(source))
    for i in range(count):
        wh.ingest("lineitem", frame.where(f"(l_orderkey DIV 32) % {count} = {i}"), label=f"batch {i}")


if __name__ == "__main__":
    sys.exit(main())
