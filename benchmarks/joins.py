"""All of TPC-H and TPC-DS: Parquetry by its own choice and on Spark, against plain Spark and DuckDB over the raw files.

Every answer is compared first. Tables are in key order, so what is measured is the join, not a layout.
"""

from __future__ import annotations

import argparse
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from benchmarks._tpcds import KEYS as TPCDS_KEYS
from benchmarks._tpcds import tpcds, tpcds_queries
from parquetry.spark import session
from tests.differential.golden import QUERIES
from tests.differential.raw_files import TPCH_KEYS
from tests.differential.reference import differences, reference_session

_DIGITS = 6  # of DuckDB's own answer, whose averages and quotients of decimals are floats


@dataclass(frozen=True)
class Suite:
    """Tables, queries, and what is asked of them."""

    name: str
    keys: Mapping[str, Sequence[str]]
    files: Mapping[str, str]
    queries: Mapping[str, str]
    in_duckdb: Callable[[str], str]
    local: int  # queries that have to run in the process
    times: float  # as long as DuckDB over the raw files, at most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="scale factor")
    parser.add_argument("--rounds", type=int, default=3, help="warm rounds; plain Spark, the slowest, has one")
    parser.add_argument("--quick", action="store_true", help="plain Spark runs once, and that run is its time")
    parser.add_argument("--only", choices=("tpch", "tpcds"), help="one of the two")
    parser.add_argument("--queries", help="some of the queries, as Q1,Q14")
    parser.add_argument("--spark", action="store_true", help="also make Parquetry run every query on Spark")
    parser.add_argument("--keep", action="store_true", help="use the warehouse of the last run, and leave it")
    parser.add_argument("--out", type=Path, default=CACHE / "bench", help="folder for results")
    options = parser.parse_args()
    goals, results = Goals(), {}
    for suite in suites(options):
        work = CACHE / "bench" / f"joins-{suite.name}-{options.scale:g}"
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
        try:
            results[suite.name] = measure(suite, work, options, goals)
        finally:
            if not options.keep:
                shutil.rmtree(work, ignore_errors=True)
    save(options.out, "joins", {"scale": options.scale, **results}, goals.checks, verdicts(goals.checks))
    print(f"results: {options.out / 'joins.json'}")
    return 1 if goals.missed else 0


def suites(options: argparse.Namespace) -> list[Suite]:
    """Those that are asked for, with their queries."""
    wanted = set(options.queries.split(",")) if options.queries else None
    found = []
    if options.only != "tpcds":
        files = {table: str(tpch(table, options.scale)) for table in TPCH_KEYS}
        named = {n.removeprefix("tpch "): sql for n, sql in QUERIES.items() if n.startswith("tpch ")}
        found.append(Suite("tpch", TPCH_KEYS, files, _some(named, wanted), _transpiled, 22, 1.5))
    if options.only != "tpch":
        files = {table: str(tpcds(table, options.scale)) for table in TPCDS_KEYS}
        texts = {f"Q{n}": text.strip().rstrip(";") for n, text in tpcds_queries().items()}
        found.append(Suite("tpcds", TPCDS_KEYS, files, _some(texts, wanted), str, 90, 2))
    return found


def _some(queries: Mapping[str, str], wanted: set[str] | None) -> dict[str, str]:
    return {n: sql for n, sql in queries.items() if wanted is None or n in wanted}


def _transpiled(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


def measure(suite: Suite, work: Path, options: argparse.Namespace, goals: Goals) -> dict[str, Any]:
    spark = reference_session(session(), {t: [Path(path)] for t, path in suite.files.items()})
    duck = duckdb.connect()
    duck.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as Spark has it
    for table, path in suite.files.items():
        duck.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{path}')")
    results: dict[str, Any] = {}
    with parquetry.connect(work) as wh:
        if not wh.tables():
            started = time.perf_counter()
            for table, path in suite.files.items():
                wh.create_table(table, pq.read_schema(path), key=suite.keys[table])
                wh.ingest(table, path)
            wh.maintain()
            print(f"{suite.name}: {len(suite.files)} tables ingested in {time.perf_counter() - started:.0f} s")
        for name, sql in suite.queries.items():
            measured = _query(wh, spark, duck, name, sql, suite.in_duckdb(sql), options)
            if measured is not None:
                results[name] = measured
    totals = {arm: sum(r["seconds"][arm] for r in results.values()) for arm in next(iter(results.values()))["seconds"]}
    print(
        f"{suite.name}: {len(results)} queries; totals: " + ", ".join(f"{arm} {s:.2f} s" for arm, s in totals.items())
    )
    agree = sum(r["duckdb_agrees"] for r in results.values())
    print(f"{suite.name}: DuckDB's own answer is the same to {_DIGITS} digits for {agree} of {len(results)}")
    local = sum(r["executor"] == "local" for r in results.values())
    goals.at_least(f"{suite.name}: queries that run in the process by choice", local, suite.local)
    ratio = totals["parquetry"] / totals["duckdb"]
    goals.at_most(f"{suite.name}: total against DuckDB over the raw files", ratio, suite.times)
    worst = max(r["seconds"]["parquetry"] / r["seconds"]["spark"] for r in results.values())
    goals.at_most(f"{suite.name}: the slowest query against plain Spark", worst, 1.2)
    if options.spark:
        on_spark = totals["parquetry on spark"] / totals["spark"]
        goals.at_most(f"{suite.name}: total on Spark against plain Spark", on_spark, 0.6)
    return {"totals": totals, "queries": results}


def _query(
    wh: parquetry.Warehouse, spark: Any, duck: Any, name: str, sql: str, in_duckdb: str, options: argparse.Namespace
) -> dict[str, Any] | None:
    """Times and figures of one query; None if Spark does not accept its text."""
    from pyspark.errors import ParseException

    arms = {
        "parquetry": lambda: wh.sql(sql).arrow(),
        "duckdb": lambda: duck.execute(in_duckdb).to_arrow_table(),
        "spark": lambda: spark.sql(sql).toArrow(),
    }
    if options.spark:
        arms["parquetry on spark"] = lambda: wh.sql(sql, executor="spark").arrow()
    started = time.perf_counter()
    try:
        expected = arms["spark"]()
    except ParseException:
        print(f"  {name}: Spark does not accept the text")
        return None
    spark_s = time.perf_counter() - started
    first = wh.sql(sql)
    _compare(name, first.arrow(), expected)
    if options.spark:
        _compare(f"{name} on Spark", arms["parquetry on spark"](), expected)
    agrees = _rows(arms["duckdb"]()) == _rows(expected)
    slow = {"spark": arms.pop("spark")}
    seconds = {**interleaved(arms, options.rounds), **({"spark": [spark_s]} if options.quick else interleaved(slow, 1))}
    times = {arm: median(s) for arm, s in seconds.items()}
    executor, cold = first.stats["executor"], first.stats["elapsed_ms"] / 1e3
    shown = ", ".join(f"{arm} {s:.3f}" for arm, s in times.items())
    print(f"  {name} ({executor}): {shown} s; first {cold:.3f} s; {time.perf_counter() - started:.0f} s in all")
    return {
        "executor": executor,
        "seconds": times,
        "first_s": cold,
        "first_plan_ms": first.stats["plan_ms"],
        "skipped_by": first.stats["skipped_by"],
        "duckdb_agrees": agrees,
    }


def _compare(name: str, answer: pa.Table, expected: pa.Table) -> None:
    different = differences(answer, expected, ordered=False)
    assert not different, f"{name}: {different[:2]}"


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows in one order, decimals and floats as floats of some digits."""
    columns = [c.to_pylist() for c in table.columns]
    return sorted((tuple(map(_value, row)) for row in zip(*columns, strict=True)), key=repr)


def _value(v: Any) -> Any:
    if isinstance(v, Decimal | float) and math.isfinite(v):
        return float(f"{v:.{_DIGITS}g}")
    return v


if __name__ == "__main__":
    raise SystemExit(main())
