"""All of TPC-H: Parquetry by its own choice and on Spark, against plain Spark and DuckDB over the raw files.

Every answer is compared first. Tables are in key order, so what is measured is the join, not a layout.
"""

from __future__ import annotations

import argparse
import math
import shutil
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot

import parquetry
from benchmarks._data import CACHE, tpch
from benchmarks._harness import Goals, interleaved, median
from benchmarks._report import save, verdicts
from parquetry.spark import session
from tests.differential.golden import QUERIES
from tests.differential.raw_files import TPCH_KEYS

_DIGITS = 6  # of floats that have to agree


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor")
    parser.add_argument("--rounds", type=int, default=3, help="warm rounds")
    parser.add_argument("--spark", action="store_true", help="also make Parquetry run every query on Spark")
    parser.add_argument("--out", type=Path, default=CACHE / "bench", help="folder for results")
    options = parser.parse_args()
    work = CACHE / "bench" / "joins-work"
    shutil.rmtree(work, ignore_errors=True)
    goals = Goals()
    try:
        results = measure(work, options, goals)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    save(options.out, "joins", results, goals.checks, verdicts(goals.checks))
    print(f"results: {options.out / 'joins.json'}")
    return 1 if goals.missed else 0


def measure(work: Path, options: Any, goals: Goals) -> dict[str, Any]:
    files = {table: str(tpch(table, options.scale)) for table in TPCH_KEYS}
    spark, duck = session(), duckdb.connect()
    for table, path in files.items():
        spark.read.parquet(path).createOrReplaceTempView(table)
        duck.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{path}')")
    queries = {n.removeprefix("tpch "): sql for n, sql in QUERIES.items() if n.startswith("tpch ")}
    with parquetry.connect(work / "wh") as wh:
        for table, path in files.items():
            wh.create_table(table, pq.read_schema(path), key=TPCH_KEYS[table])
            wh.ingest(table, path)
        wh.maintain()
        results = {name: _query(wh, spark, duck, name, sql, options) for name, sql in queries.items()}
    totals = {arm: sum(r["seconds"][arm] for r in results.values()) for arm in next(iter(results.values()))["seconds"]}
    print("totals: " + ", ".join(f"{arm} {s:.2f} s" for arm, s in totals.items()))
    local = sum(r["executor"] == "local" for r in results.values())
    goals.at_least("queries that run in the process by choice", local, 22)
    goals.at_most("total against DuckDB over the raw files", totals["parquetry"] / totals["duckdb"], 1.5)
    worst = max(r["seconds"]["parquetry"] / r["seconds"]["spark"] for r in results.values())
    goals.at_most("the slowest query against plain Spark", worst, 1.2)
    if options.spark:
        goals.at_most("total on Spark against plain Spark", totals["parquetry on spark"] / totals["spark"], 0.6)
    return {"scale": options.scale, "totals": totals, "queries": results}


def _query(wh: parquetry.Warehouse, spark: Any, duck: Any, name: str, sql: str, options: Any) -> dict[str, Any]:
    in_duckdb = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
    arms = {
        "parquetry": lambda: wh.sql(sql).arrow(),
        "duckdb": lambda: duck.execute(in_duckdb).to_arrow_table(),
        "spark": lambda: spark.sql(sql).toArrow(),
    }
    if options.spark:
        arms["parquetry on spark"] = lambda: wh.sql(sql, executor="spark").arrow()
    started = time.perf_counter()
    first = wh.sql(sql)
    expected, answer = _rows(arms["spark"]()), _rows(first.arrow())
    assert answer == expected, f"{name}: {answer[:2]} instead of {expected[:2]}"
    if options.spark:
        assert _rows(arms["parquetry on spark"]()) == expected, f"{name} on Spark"
    cold = first.stats["elapsed_ms"] / 1e3
    times = {arm: median(seconds) for arm, seconds in interleaved(arms, options.rounds).items()}
    executor = first.stats["executor"]
    shown = ", ".join(f"{arm} {s:.3f}" for arm, s in times.items())
    print(f"  {name} ({executor}): {shown} s; first {cold:.3f} s; {time.perf_counter() - started:.0f} s in all")
    return {"executor": executor, "seconds": times, "first_s": cold, "skipped_by": first.stats["skipped_by"]}


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows in one order, floats to some digits."""
    columns = [c.to_pylist() for c in table.columns]
    return sorted((tuple(map(_value, row)) for row in zip(*columns, strict=True)), key=repr)


def _value(v: Any) -> Any:
    if isinstance(v, Decimal):
        return v.normalize()
    return float(f"{v:.{_DIGITS}g}") if isinstance(v, float) and math.isfinite(v) else v


if __name__ == "__main__":
    raise SystemExit(main())
