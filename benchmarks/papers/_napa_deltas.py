"""What deltas cost a query, and what an outage of maintenance does not: NA-E2 and NA-E3."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import parquetry
from benchmarks._harness import median, percentile
from benchmarks.papers._napa_data import DDL, KEY, hits
from benchmarks.papers._napa_simulate import io_latency
from benchmarks.papers._napa_warehouse import FixedWork, Rows, note
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_COUNTS = (1, 2, 4, 8, 16, 32)
_SUBQUERIES, _COLUMNS = 20, 3  # of the modelled query
_ASKED = 100  # queries per step of the outage
_BATCH_ROWS = 2_000


def deltas(folder: Path, spark: SparkSession, rows: int, queries: int) -> Rows:
    """NA-E2: lookups that cannot aggregate lazily, over the same rows in ever more deltas, at default settings."""
    rng = np.random.default_rng(2)
    modelled = {
        lazily: io_latency(DELTA_COUNTS, lazily, subqueries=_SUBQUERIES, columns=_COLUMNS, queries=2_000, seed=0)
        for lazily in (False, True)
    }
    wh = parquetry.connect(folder, spark=spark)
    found: Rows = []
    data = hits(rows, 0)
    order = np.random.default_rng(3).permutation(data.num_rows)
    for count in DELTA_COUNTS:
        keep = {"max_query_deltas": 64, "compaction_width": 64}
        wh.create_table(f"hits{count}", DDL, key=list(KEY), model="upsert", settings=keep)
        for part in np.array_split(order, count):
            wh.ingest(f"hits{count}", data.take(pa.array(part)), tasks=1)
        wh.maintain()
    customers = [int(c) for c in np.minimum(rng.zipf(1.3, queries), 5_000)]
    days = [f"2026-02-{int(d):02d}" for d in rng.integers(1, 28, queries)]
    asked = [
        f"SELECT page, clicks FROM {{}} WHERE day = DATE '{d}' AND customer = {c}"
        for c, d in zip(customers, days, strict=True)
    ]
    answers: dict[str, int] = {}
    for count in DELTA_COUNTS:
        times = _least_times(wh, [sql.format(f"hits{count}") for sql in asked], rounds=3)
        read, files = [], []
        for sql in asked:
            result = wh.sql(sql.format(f"hits{count}"), executor="local")
            n = result.arrow().num_rows
            assert answers.setdefault(sql, n) == n, "the number of deltas changes no answer"
            read.append(result.stats["rows_scanned"])
            files.append(result.stats["files_read"])
        found.append(
            {
                "deltas": count,
                "files": float(np.mean(files)),
                "I/Os": float(np.mean(files)) * (len(KEY) + 1),
                "mean rows": float(np.mean(read)),
                "p50 ms": percentile(times, 0.5),
                "p99 ms": percentile(times, 0.99),
                "p50 of the I/O model": modelled[False][count][0],
                "p99 of the I/O model": modelled[False][count][1],
                "p99 of the model, merged lazily": modelled[True][count][1],
            }
        )
        note(f"E2: {found[-1]}")
    wh.close()
    return found


def _least_times(wh: Warehouse, asked: list[str], rounds: int, off: Sequence[str] = ()) -> list[float]:
    """Milliseconds of every query, the least of some rounds: what the machine does besides is not asked for."""
    each = [[wh.sql(sql, executor="local", off=off).stats["elapsed_ms"] for sql in asked] for _ in range(rounds + 1)]
    times = each[1:]
    return [min(of_one) for of_one in zip(*times, strict=True)]


def _least_times_beside(wh: Warehouse, asked: list[str], rounds: int, fixed: FixedWork) -> tuple[list[float], float]:
    """The same, and the milliseconds of fixed work, by turns with the queries."""
    times, own = [], []
    for _ in range(rounds + 1):
        pairs = [(wh.sql(sql, executor="local").stats["elapsed_ms"], fixed.ms()) for sql in asked]
        times.append([ms for ms, _ in pairs])
        own.append([ms for _, ms in pairs])
    least = [[min(of_one) for of_one in zip(*each[1:], strict=True)] for each in (times, own)]
    return least[0], median(least[1])


def outage(folder: Path, spark: SparkSession, steps: int) -> Rows:
    """NA-E3: ingestion and queries go on while maintenance stops between X and Y; with both negative controls.

    A coupled ingest ends when its views have it. A query of everything reads every delta there is: in a warehouse of
    its own, whose table is never compacted, not even in memory, and has no view to wait for. ``times`` are in terms of
    work that is always the same, timed by turns with them: minutes pass between the steps, and machines are not always
    as fast.
    """
    few = {"max_query_deltas": 4, "compaction_width": 2}
    everything = {"max_query_deltas": 1_000, "compaction_width": 1_000}
    down = range(steps // 3, 2 * steps // 3)
    asked = [f"SELECT page, clicks FROM hits WHERE customer = {c}" for c in range(1, _ASKED + 1)]
    found: Rows = []
    fixed = FixedWork()
    with parquetry.connect(folder, spark=spark) as wh, parquetry.connect(folder / "all", spark=spark) as all_of_it:
        for opened, settings in ((wh, few), (all_of_it, everything)):
            opened.create_table("hits", DDL, key=list(KEY), model="upsert", settings=settings)
        wh.create_view(
            "by_day", "SELECT day, count(*) AS n, sum(clicks) AS clicks FROM hits GROUP BY day", settings=few
        )
        for step in range(steps):
            batch = hits(_BATCH_ROWS, 100 + step)
            all_of_it.ingest("hits", batch, tasks=1)
            all_of_it.maintain()
            started = time.perf_counter()
            wh.ingest("hits", batch, tasks=1)
            ingested = time.perf_counter()
            if step not in down:
                wh.maintain()
            maintained = time.perf_counter()
            times, own = _least_times_beside(wh, asked, rounds=3, fixed=fixed)
            times_of_all = _least_times(all_of_it, asked, rounds=3, off=["hold_rows"])
            state = wh.catalog.state()
            found.append(
                {
                    "step": step,
                    "down": step in down,
                    "lag": state.clock - state.qt,
                    "ingest ms": (ingested - started) * 1e3,
                    "coupled ingest ms": (maintained - started) * 1e3,
                    "p50 ms": percentile(times, 0.5),
                    "p99 ms": percentile(times, 0.99),
                    "deltas": len([d for d in state.table("hits").deltas if d.t_hi <= state.qt]),
                    "p99 ms of everything": percentile(times_of_all, 0.99),
                    "deltas of everything": len(all_of_it.catalog.state().table("hits").deltas),
                    "ms of fixed work": own,
                    "times": [t / own for t in times],
                }
            )
            note(f"E3: step {step}, QT lags by {found[-1]['lag']}, p99 {found[-1]['p99 ms']:.1f} ms")
    return found
