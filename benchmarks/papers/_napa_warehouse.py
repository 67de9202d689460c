"""The warehouse that Napa's protocols measure: filled once, asked with and without views."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

import parquetry
from benchmarks.papers._napa_data import DDL, KEY, write_hits
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
_DONE = "filled"


def note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def filled(folder: Path, spark: SparkSession, rows: int, **settings: int) -> Warehouse:
    """A warehouse with the table ``hits`` and no views; one that was filled before is taken as it is."""
    if not (folder / _DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        started = time.perf_counter()
        source = folder.with_name(folder.name + "-source")
        paths = write_hits(source, rows)
        note(f"{rows:,} rows generated in {time.perf_counter() - started:.0f} s")
        with parquetry.connect(folder, spark=spark) as wh:
            wh.create_table("hits", DDL, key=list(KEY), settings=settings)
            wh.ingest("hits", paths, "all")
            wh.maintain()
        shutil.rmtree(source)
        (folder / _DONE).touch()
        note(f"{rows:,} rows ingested, {time.perf_counter() - started:.0f} s in all")
    wh = parquetry.connect(folder, spark=spark)
    drop_views(wh)
    return wh


def drop_views(wh: Warehouse, but: Iterable[str] = ()) -> None:
    for v in wh.views():
        if v["view"] not in but:
            wh.drop_view(v["view"])


def same_answers(wh: Warehouse, log: Iterable[str]) -> None:
    """Asserts that every query answers the same with views and without."""
    for sql in dict.fromkeys(log):
        with_views = wh.sql(sql, executor="local").arrow()
        without = wh.sql(sql, executor="local", off=["views"]).arrow()
        key = [(n, "ascending") for n in without.column_names]
        assert with_views.sort_by(key).equals(without.sort_by(key)), sql


def planned_rows(wh: Warehouse, log: Iterable[str]) -> list[int]:
    """The rows that every query would read, by the index; nothing is run."""
    return [sum(t.rows for t in wh.sql(sql, executor="local").plan.tables.values()) for sql in log]


def timed(wh: Warehouse, log: Iterable[str], off: Iterable[str] = ()) -> dict[str, list[float]]:
    """Milliseconds until the caller has the rows, of which planning, and what every query read, in this process."""
    found: dict[str, list[float]] = {"ms": [], "plan ms": [], "bytes": [], "rows": []}
    for sql in log:
        started = time.perf_counter()
        stats = wh.sql(sql, executor="local", off=list(off)).stats
        found["ms"].append((time.perf_counter() - started) * 1e3)
        for name, key in (("plan ms", "plan_ms"), ("bytes", "bytes_read"), ("rows", "rows_scanned")):
            found[name].append(float(stats[key]))
    return found


class FixedWork:
    """A piece of work that is always the same, about as long as a query from a view: what the machine itself does to
    times while others are measured."""

    def __init__(self) -> None:
        self._cursor = duckdb.connect(config={"threads": 1})
        self._cursor.execute("SET GLOBAL allocator_background_threads = true")
        self._cursor.execute("CREATE TABLE fixed AS SELECT i % 400 AS k, i AS v FROM range(60000) t(i)")
        self._cursor.execute("PREPARE work AS SELECT k, sum(v), max(v) FROM fixed GROUP BY k")

    def ms(self) -> float:
        started = time.perf_counter()
        self._cursor.execute("EXECUTE work").fetchall()
        return (time.perf_counter() - started) * 1e3


def percentiles(values: list[float] | list[int], name: str) -> dict[str, float]:
    return {f"mean {name}": float(np.mean(values))} | {
        f"p{p} {name}": float(np.percentile(values, p)) for p in (50, 90, 99)
    }
