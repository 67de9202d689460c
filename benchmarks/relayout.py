"""Learned layouts through the warehouse (PW-E7): lineitem relaid on Spark, held-out queries on both executors.

The paper's default workload: 50 logged queries to learn from, 50 later ones within 1 % of them, boxes of up to 10 % of
each of four columns. Each layout is written twice: row group = block, and with its blocks' rows ordered by cells.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import parquetry
from benchmarks._data import CACHE, tpch
from benchmarks._harness import Goals, median
from benchmarks._memory import DriverMemory
from benchmarks._pruning import measure_pruning
from benchmarks._report import save, table, verdicts
from benchmarks._workloads import Setting, generate, perturb
from parquetry import RelayoutOptions
from parquetry.layouts.routing.spark_blocks import with_blocks
from parquetry.spark import session
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import stored_rows

KEY = ("l_orderkey", "l_linenumber")
DIMS = ("l_partkey", "l_suppkey", "l_linenumber", "l_quantity")
STEPS = np.array([1, 1, 1, 0.01])  # what a bound on each column is rounded to: the columns' own types
READ = (*DIMS, "l_extendedprice")
LEARNERS = ("paw", "qdtree", "kdtree", "zorder", "hilbert")
BLOCK_ROWS = 10_240  # per unit of scale: 586 blocks, as in the paper
DELTA = 0.01
COLUMNS = (
    "layout", "cells", "row groups", "rows %", "bytes %", "rows / LBblk", "bytes / LBblk", "bytes / LBexact",
    "local ms", "Spark ms", "Spark bytes %", "learn s", "rewrite s", "rows/s", "MB",
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """Logged queries to learn from, later ones with their true answers, and plain DuckDB's time for these."""

    history: Path
    future: tuple[str, ...]
    answers: tuple[tuple[Any, ...], ...]
    raw_ms: float

    @property
    def matching(self) -> list[int]:
        return [n for n, _ in self.answers]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="TPC-H scale factor (10 for the large run)")
    parser.add_argument("--learners", default=",".join(LEARNERS), help="comma-separated, to limit the run")
    parser.add_argument("--cells", default="1,8", help="cells per block to measure")
    parser.add_argument("--first-only", action="store_true", help="more than one cell for the first learner only")
    parser.add_argument("--block-rows", type=int, help=f"the least rows of a block; default {BLOCK_ROWS:,} x scale")
    parser.add_argument("--queries", type=int, default=50, help="logged queries, and as many later ones")
    parser.add_argument("--on-spark", type=int, default=10, help="later queries that run on Spark too")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of the comparison with plain Spark; 0: none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=CACHE / "bench", help="folder for results")
    options = parser.parse_args()
    block_rows = options.block_rows or max(1, round(BLOCK_ROWS * options.scale))
    learners = options.learners.split(",")
    work = CACHE / "bench" / "relayout-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    goals = Goals()
    rewrite: dict[str, Any] | None = None
    try:
        source = tpch("lineitem", options.scale)
        rows = pq.read_metadata(source).num_rows
        workload = make_workload(source, options, work)
        note(f"{rows:,} rows; DuckDB over the raw file answers a query in {workload.raw_ms:.0f} ms")
        with parquetry.connect(work / "wh") as wh:
            wh.create_table("lineitem", pq.read_schema(source), key=KEY)
            wh.ingest("lineitem", source, label="all")
            wh.maintain()
            layouts = [measure_queries(wh, workload, block_rows, options.on_spark) | {"layout": "key", "cells": ""}]
            note(str(layouts[-1]))
            if options.rounds:
                rewrite = measure_rewrite(wh, workload, learners[0], block_rows, options, work, goals)
            for number, cells in enumerate(int(c) for c in options.cells.split(",")):
                for learner in learners if number == 0 or not options.first_only else learners[:1]:
                    layouts.append(relaid(wh, workload, learner, cells, block_rows, options))
                    note(str(layouts[-1]))
        goals_of(layouts, goals)
        pruning = measure_pruning(work / "blocks", goals)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    results = {
        "scale": options.scale,
        "rows": rows,
        "block_rows": block_rows,
        "queries": options.queries,
        "seed": options.seed,
        "matching_rows": mean(workload.matching),
        "raw_duckdb_ms": workload.raw_ms,
        "layouts": layouts,
        "rewrite": rewrite,
        "pruning": pruning,
    }
    name = f"relayout-sf{options.scale:g}"
    text = report(results, goals)
    save(options.out, name, results, goals.checks, text)
    print(f"\n{text}\n\nresults: {options.out / name}.json")
    return 1 if goals.missed else 0


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# -- the workload -------------------------------------------------------------------------------------------------


def make_workload(source: Path, options: Any, work: Path) -> Workload:
    """The paper's queries as SQL. Later ones are within delta of the logged ones as these are written, rounded."""
    import duckdb

    duck = duckdb.connect()
    ends = ", ".join(f"min({c})::DOUBLE, max({c})::DOUBLE" for c in DIMS)
    domain = np.array(duck.execute(f"SELECT {ends} FROM '{source}'").fetchone()).reshape(-1, 2)
    setting = Setting(history=options.queries, delta=DELTA)
    history = _rounded(generate(setting, domain, options.seed)[0])
    low, length = domain[:, :1], domain[:, 1:] - domain[:, :1]
    later = perturb((history - low) / length, setting, np.random.default_rng(options.seed + 1))
    future = [_sql(q) for q in _rounded(low + later * length)]
    logged = work / "history.sql"
    logged.write_text("".join(f"{_sql(q)};\n" for q in history))
    answers: list[tuple[Any, ...]] = []
    times = []
    for sql in future:
        started = time.perf_counter()
        answers.extend(duck.execute(sql.replace("FROM lineitem", f"FROM '{source}'")).fetchall())
        times.append((time.perf_counter() - started) * 1e3)
    return Workload(logged, tuple(future), tuple(answers), median(times))


def _rounded(queries: np.ndarray) -> np.ndarray:
    return np.round(queries / STEPS[:, None]) * STEPS[:, None]


def _sql(query: np.ndarray) -> str:
    bounds = [
        f"{c} BETWEEN {_number(lo, step)} AND {_number(hi, step)}"
        for c, (lo, hi), step in zip(DIMS, query.tolist(), STEPS.tolist(), strict=True)
    ]
    return f"SELECT count(*) AS n, sum(l_extendedprice) AS price FROM lineitem WHERE {' AND '.join(bounds)}"


def _number(value: float, step: float) -> str:
    return f"{value:.0f}" if step == 1 else f"{Decimal(str(value)):.2f}"


# -- layouts ------------------------------------------------------------------------------------------------------


def relaid(
    wh: parquetry.Warehouse, workload: Workload, learner: str, cells: int, block_rows: int, options: Any
) -> dict[str, Any]:
    """The table relaid by one learner: what that took, and what the later queries read."""
    rows, seconds = _relayout(wh, workload, learner, cells, block_rows, options)
    wh.vacuum(grace_s=0)
    return {
        "layout": learner,
        "cells": cells,
        **measure_queries(wh, workload, block_rows, options.on_spark),
        "learn s": seconds["sampling"] + seconds["learning"],
        "rewrite s": seconds["rewriting"],
        "rows/s": f"{rows / seconds['rewriting']:,.0f}",
    }


def _relayout(
    wh: parquetry.Warehouse, workload: Workload, learner: str, cells: int, block_rows: int, options: Any
) -> tuple[int, dict[str, float]]:
    groups = (
        # Row group = block: as long as the longest block, and none shared by two.
        {"row_group_rows": 4 * block_rows, "block_group_rows": max(1, block_rows // 2)}
        if cells == 1
        else {"row_group_rows": 122_880, "block_group_rows": max(1, min(1024, block_rows // (2 * cells)))}
    )
    wh.change_settings("lineitem", **groups)
    how = RelayoutOptions(block_rows=block_rows, delta=DELTA, cells=cells, seed=options.seed)
    started: list[tuple[str, float]] = []
    done = wh.relayout(
        "lineitem",
        learner,
        workload=workload.history,
        options=how,
        phase=lambda text: started.append((text.split()[0], time.perf_counter())),
    )
    ends = [at for _, at in started[1:]] + [time.perf_counter()]
    seconds = {phase: end - at for (phase, at), end in zip(started, ends, strict=True)}
    return done.rows, seconds


def measure_queries(wh: parquetry.Warehouse, workload: Workload, block_rows: int, on_spark: int) -> dict[str, Any]:
    """Means over the later queries, every answer checked. The first pass counts what is read, the second is timed."""
    rows, width, size = _stored(wh)
    bound = [max(n, block_rows) for n in workload.matching]
    local = _run(wh, workload, workload.future, "local")
    local_ms = [s["elapsed_ms"] for s in _run(wh, workload, workload.future, "local")]
    spark = _run(wh, workload, workload.future[:on_spark], "spark")
    spark_ms = [s["elapsed_ms"] for s in _run(wh, workload, workload.future[:on_spark], "spark")]
    scanned, read = mean(s["rows_scanned"] for s in local), mean(s["bytes_read"] for s in local)
    return {
        "rows_scanned": scanned,
        "bytes_read": read,
        "blocks_read": mean(s["blocks_read"] for s in local),
        "row groups": local[0]["blocks_total"],
        "bytes_per_row": width,
        "LBblk_rows": mean(bound),
        "LBblk_bytes": mean(bound) * width,
        "LBexact_rows": mean(workload.matching),
        "LBexact_bytes": mean(workload.matching) * width,
        "rows %": 100 * scanned / rows,
        "bytes %": 100 * read / (rows * width),
        "rows / LBblk": scanned / mean(bound),
        "bytes / LBblk": read / (mean(bound) * width),
        "bytes / LBexact": read / (mean(workload.matching) * width),
        "local ms": median(local_ms),
        "Spark ms": median(spark_ms) if spark_ms else "",
        "Spark bytes %": 100 * mean(s["bytes_read"] for s in spark) / (rows * width) if spark else "",
        "MB": size / 2**20,
    }


def _run(wh: parquetry.Warehouse, workload: Workload, queries: Sequence[str], executor: str) -> list[dict[str, Any]]:
    stats = []
    for sql, truth in zip(queries, workload.answers, strict=False):
        result = wh.sql(sql, executor=executor)
        (row,) = result.rows()
        assert tuple(row.values()) == truth, (executor, sql, row, truth)
        stats.append(result.stats)
    return stats


def _stored(wh: parquetry.Warehouse) -> tuple[int, float, int]:
    """The table's rows, the stored bytes per row of the columns that queries read, and its size."""
    files = [f for d in wh.catalog.state().table("lineitem").deltas for f in d.files]
    rows = sum(f.rows for f in files)
    read = 0
    for f in files:
        footer = pq.read_metadata(wh.store.url(f.path))
        wanted = [i for i in range(footer.num_columns) if footer.schema.column(i).name in READ]
        groups = range(footer.num_row_groups)
        read += sum(footer.row_group(g).column(i).total_compressed_size for g in groups for i in wanted)
    return rows, read / rows, sum(f.bytes for f in files)


# -- the rewrite against plain Spark ------------------------------------------------------------------------------


def measure_rewrite(
    wh: parquetry.Warehouse, workload: Workload, learner: str, block_rows: int, options: Any, work: Path, goals: Goals
) -> dict[str, Any]:
    """Rewriting by a layout against plain Spark's range partitioning, sort and write of the same files, in turns."""
    spark = session()
    plain_s: list[float] = []
    ours, memory = [], []
    for _ in range(options.rounds):
        with _timed(plain_s):
            _plain(spark, wh, str(work / "plain"))
        with DriverMemory(spark) as watched:
            _, seconds = _relayout(wh, workload, learner, RelayoutOptions().cells, block_rows, options)
        ours.append(seconds)
        memory.append(watched.measured())
        wh.vacuum(grace_s=0)
    rewriting = median([s["rewriting"] for s in ours])
    ratio = rewriting / median(plain_s)
    goals.at_most(f"rewriting by {learner}, time ratio to plain Spark's range partition, sort and write", ratio, 1.5)
    goals.at_most(
        "driver's Python memory: growth during a relayout in MB", max(m["python_growth_mb"] for m in memory), 512
    )
    # After some rounds of a small table 64 MB more were in use, and gone by the next: the limit has room for that.
    goals.at_most("driver's JVM heap: kept after a relayout in MB", memory[-1]["jvm_heap_growth_mb"], 128)
    routing_s = _routing(spark, wh)
    whole = sum(median([s[p] for s in ours]) for p in ours[0])
    return {
        "learner": learner,
        "plain_seconds": plain_s,
        "seconds": ours,
        "ratio": ratio,
        "routing_seconds": routing_s,
        "routing_share": routing_s / rewriting,
        "rewriting_share_of_relayout": rewriting / whole,
        "memory": memory,
    }


@contextmanager
def _timed(into: list[float]) -> Iterator[None]:
    started = time.perf_counter()
    yield
    into.append(time.perf_counter() - started)


def _plain(spark: Any, wh: parquetry.Warehouse, target: str) -> None:
    """The same files with the same number of tasks, ordered by the layout's columns."""
    deltas = wh.catalog.state().table("lineitem").deltas
    tasks = max(2, -(-sum(d.bytes for d in deltas) // (64 << 20)))
    frame = spark.read.parquet(*[wh.store.url(f.path) for d in deltas for f in d.files])
    frame.repartitionByRange(tasks, *DIMS).sortWithinPartitions(*DIMS).write.mode("overwrite").parquet(target)


def _routing(spark: Any, wh: parquetry.Warehouse) -> float:
    """Seconds that finding every row's block adds to reading the layout's columns."""
    t = wh.catalog.state().table("lineitem")
    frame = stored_rows(spark, wh.store, plan_scan(t, t.deltas)).select(*DIMS)
    times: dict[str, list[float]] = {"read": [], "route": []}
    for _ in range(2):
        for name, layout in (("read", None), ("route", t.layout)):
            with _timed(times[name]):
                routed = with_blocks(frame, layout)
                routed.selectExpr(f"max(hash({', '.join(routed.columns)}))").collect()
    return max(0.0, min(times["route"]) - min(times["read"]))


# -- results ------------------------------------------------------------------------------------------------------


def goals_of(layouts: Sequence[dict[str, Any]], goals: Goals) -> None:
    by = {(r["layout"], r["cells"]): r for r in layouts}
    finest = RelayoutOptions().cells
    if ("paw", 1) not in by:
        return
    for other in ("zorder", "hilbert"):
        if (other, 1) in by:
            ratio = by[other, 1]["bytes_read"] / by["paw", 1]["bytes_read"]
            goals.at_least(f"bytes read: {other} / paw, row group = block", ratio, 5)
    if ("paw", finest) not in by:
        return
    goals.at_most("bytes read: paw with cells / LBblk", by["paw", finest]["bytes / LBblk"], 1)
    goals.at_most("rows of kept row groups: paw with cells / LBblk", by["paw", finest]["rows / LBblk"], 1)


def report(results: dict[str, Any], goals: Goals) -> str:
    layouts, rewrite, pruning = results["layouts"], results["rewrite"], results["pruning"]
    against = [
        {"layout": f"{r['layout']}, cells {r['cells']}", "bytes": r["bytes_read"] / p["bytes_read"],
         "rows": r["rows_scanned"] / p["rows_scanned"], "local time": r["local ms"] / p["local ms"]}
        for r in layouts for p in layouts if p["layout"] == "paw" and p["cells"] == r["cells"] and r is not p
    ]  # fmt: skip
    parts = [
        f"# Layouts on lineitem, scale {results['scale']:g}",
        f"{results['rows']:,} rows, blocks of at least {results['block_rows']:,}; {results['queries']} later queries "
        f"with {results['matching_rows']:,.0f} matching rows each on average. Means per query; bytes in percent of the "
        f"columns that queries read. Rows are those of the row groups that the plan keeps. Spark's bytes are its own "
        f"count, with footers and without vectored reads. DuckDB over the raw file: {results['raw_duckdb_ms']:.0f} ms.",
        table(layouts, COLUMNS),
        "Ratios to paw:",
        table(against, ("layout", "bytes", "rows", "local time")),
        *([] if rewrite is None else _rewritten(rewrite)),
        table([{"pruning": k, **v} for k, v in pruning.items()],
              ("pruning", "prune_p50_ms", "prune_p99_ms", "plan_p50_ms", "blocks_kept")),
        verdicts(goals.checks),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _rewritten(rewrite: dict[str, Any]) -> list[str]:
    return [
        f"Relayout by {rewrite['learner']} against plain Spark: rewriting takes {rewrite['ratio']:.2f} x, of which "
        f"routing is {100 * rewrite['routing_share']:.0f} %; routing and writing are "
        f"{100 * rewrite['rewriting_share_of_relayout']:.0f} % of the whole, sampling and learning the rest.",
        table(rewrite["memory"], tuple(rewrite["memory"][0])),
    ]


if __name__ == "__main__":
    sys.exit(main())
