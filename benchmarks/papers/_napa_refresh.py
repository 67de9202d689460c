"""What keeping views up costs: the three classes (NA-E6), and a refresh against the delta that it reads (point 3)."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import parquetry
from benchmarks._harness import median
from benchmarks.papers._napa_data import DDL, KEY, hits
from benchmarks.papers._napa_warehouse import Rows, note
from parquetry.model.queryable import next_step
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import stored_rows
from parquetry.views.classes import class_of, plan_class
from parquetry.views.refresh import RefreshWork, refresh
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASSES = {"one": "day, customer", "two": "day, customer, page", "three": "page, country, day"}
_REFRESHED = {"streamed": "day, customer", "small": "day, country, device", "large": "customer, country, day"}
_DELTAS = 3  # of each base size; the first one warms up


def classes(folder: Path, spark: SparkSession, rows: int) -> Rows:
    """NA-E6: a full prefix streams, a shared one sorts inside clusters, none is aggregated and sorted by Spark."""
    wh = parquetry.connect(folder, spark=spark)
    wh.create_table("hits", DDL, key=list(KEY), settings={"file_bytes": 1 << 32})
    data = hits(rows, 0)
    wh.ingest("hits", data, "all", tasks=1)
    wh.maintain()
    for name, groups in _CLASSES.items():
        wh.create_view(name, f"SELECT {groups}, sum(clicks) AS clicks, count(*) AS n FROM hits GROUP BY {groups}")
    clusters = data.group_by(["day", "customer"]).aggregate([([], "count_all")]).column("count_all").to_numpy()
    n = float(rows)
    # Of a sort inside each value of the shared prefix, and of one of all rows. Nothing counts what DuckDB compares.
    comparisons = {1: 0.0, 2: float((clusters * np.log2(np.maximum(clusters, 2))).sum()), 3: n * math.log2(n)}
    found: Rows = []
    for name in _CLASSES:
        state = wh.catalog.state()
        view, base = state.table(name), state.table("hits")
        how = plan_class(view, base, base.deltas, wh.store)
        assert how.number == class_of(view, base).number, how.why
        until = base.deltas[0].t_hi
        work = RefreshWork(lambda: spark, wh.store, state, view, until, "", how, base.schema.key[: how.shared])
        made = work.streamed() if how.number < 3 else work.shuffled()
        plan = made._jdf.queryExecution().executedPlan().toString()
        started = time.perf_counter()
        assert refresh(wh.catalog, wh.store, lambda: spark, state, view, until, "bench")
        found.append(
            {
                "class": how.number,
                "why": how.why,
                "shuffles": plan.count("Exchange"),
                "sorts": plan.count("Sort ["),
                "n log n": comparisons[how.number],
                "seconds": time.perf_counter() - started,
                "view rows": sum(d.rows for d in wh.catalog.state().table(name).deltas),
            }
        )
        note(f"E6: {found[-1]}")
    wh.maintain()
    _check(wh, list(_CLASSES))
    wh.close()
    return found


def upkeep(folder: Path, spark: SparkSession, base_rows: int, delta_rows: int) -> Rows:
    """Refreshes from deltas of one size over a table and one twice as large, and reading such a delta once.

    So few rows take the direct path (``views/direct.py``) whatever the view's class is.
    """
    found: Rows = []
    for times in (1, 2):
        wh = parquetry.connect(folder / str(times), spark=spark)
        wh.create_table("hits", DDL, key=list(KEY), settings={"max_query_deltas": 16, "compaction_width": 16})
        wh.ingest("hits", hits(base_rows * times, 0), "base")
        for name, groups in _REFRESHED.items():
            wh.create_view(name, f"SELECT {groups}, sum(clicks) AS clicks, count(*) AS n FROM hits GROUP BY {groups}")
        wh.maintain()
        took: dict[str, list[float]] = {name: [] for name in ("reading it once", *_REFRESHED)}
        for number in range(_DELTAS):
            wh.ingest("hits", hits(delta_rows, 50 + number), tasks=1)
            state = wh.catalog.state()
            (delta,) = (d for d in state.table("hits").deltas if d.t_hi == state.clock)
            started = time.perf_counter()
            scan = plan_scan(state.table("hits"), [delta])
            stored_rows(spark, wh.store, scan).write.format("noop").mode("overwrite").save()
            took["reading it once"].append(time.perf_counter() - started)
            for name in _REFRESHED:
                state = wh.catalog.state()
                view = state.table(name)
                assert [d.delta_id for d in next_step(state, view)] == [delta.delta_id]
                started = time.perf_counter()
                assert refresh(wh.catalog, wh.store, lambda: spark, state, view, delta.t_hi, "bench")
                took[name].append(time.perf_counter() - started)
        wh.maintain()
        _check(wh, list(_REFRESHED))
        wh.close()
        row = {"base rows": base_rows * times, "delta rows": delta_rows}
        found.append({**row, **{f"{name}, s": median(seconds[1:]) for name, seconds in took.items()}})
        note(f"D3: {found[-1]}")
    return found


def _check(wh: Warehouse, views: list[str]) -> None:
    """Asserts that every view equals its definition."""
    for name in views:
        view = wh.catalog.state().table(name).view
        assert view is not None
        direct = wh.sql(view.spec.sql, executor="local", off=["views"]).arrow()
        read = wh.sql(f"SELECT * FROM {name}", executor="local").arrow()
        key = [(c, "ascending") for c in read.column_names]
        assert read.sort_by(key).equals(direct.sort_by(key)), name
