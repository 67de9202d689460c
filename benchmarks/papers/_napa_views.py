"""What views save: NA-E1, covered dashboards under load, and views suggested from the log (points 4 and 5)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import parquetry
from benchmarks.papers._napa_data import HAND_PICKED, TEMPLATES, log_of
from benchmarks.papers._napa_warehouse import (
    FixedWork,
    Rows,
    drop_views,
    filled,
    note,
    percentiles,
    planned_rows,
    same_answers,
    timed,
)
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW_COUNTS = (0, 1, 2, 4, 8, 12)
_E1_TEMPLATES = 12
_TIMED = 120  # queries of NA-E1's log that are run; what the others read is known from the index
_DRAWS = 5  # of each dashboard template
_SUGGESTED = 5  # views that point 5 allows
_BATCH_ROWS = 20_000
_CALM_ROUNDS = 30  # of the dashboards, without load: p99 of fewer queries is two or three of them
_AROUND = 41  # fixed work by turns with queries, about 0.1 s
LOADS = ("nice", "background")


def more_views(folder: Path, spark: SparkSession, rows: int, queries: int) -> Rows:
    """NA-E1: rows read and time per query with ever more views, each time the set that ``suggest_views`` chooses."""
    wh = filled(folder, spark, rows)
    log = log_of(queries, 1, _E1_TEMPLATES)
    run = log[: min(_TIMED, queries)]
    timed(wh, run)  # from this log views are suggested, while there are none
    wanted = {n: {s.name: s.sql for s in wh.suggest_views("hits", most=n).views} for n in VIEW_COUNTS if n}
    found: Rows = []
    for count in VIEW_COUNTS:
        _make(wh, wanted.get(count, {}))
        same_answers(wh, run[:40])
        timed(wh, run[:40])
        times = timed(wh, run)
        views = wh.views()
        row: dict[str, Any] = {"views": count, "made": len(views), "view rows": sum(v["rows"] for v in views)}
        row |= percentiles(planned_rows(wh, log), "rows") | percentiles(times["ms"], "ms")
        row["mean plan ms"] = float(np.mean(times["plan ms"]))
        note(f"E1: {row}")
        found.append(row)
    drop_views(wh)
    wh.close()
    return found


def _make(wh: Warehouse, wanted: dict[str, str]) -> None:
    """Leaves exactly the wanted views."""
    there = {v["view"]: v["sql"] for v in wh.views()}
    drop_views(wh, [n for n, sql in there.items() if wanted.get(n) == sql])
    for name, sql in wanted.items():
        if there.get(name) != sql:
            wh.create_view(name, sql)
    started = time.perf_counter()
    stages = wh.maintain()
    note(f"{len(wanted)} views, {len(stages)} stages in {time.perf_counter() - started:.0f} s")


def dashboards(folder: Path, spark: SparkSession, rows: int, load_s: float | None) -> dict[str, Rows]:
    """Points 4 and 5: twenty covered templates over the table, eight hand-picked views and at most five suggested ones.

    Both sets of views are timed by turns, over two warehouses with the same rows. With ``load_s`` the hand-picked ones
    also while another process ingests and maintains as fast as it can, for so many seconds.
    """
    wh = filled(folder, spark, rows)
    log = log_of(len(TEMPLATES) * _DRAWS, 2, len(TEMPLATES), even=True)
    base = timed(wh, log)
    note(f"D4: {percentiles(base['ms'], 'ms')} over the table")
    suggested = {s.name: s.sql for s in wh.suggest_views("hits", most=_SUGGESTED).views}
    wh.close()
    wh, twin = (parquetry.connect(f, spark=spark) for f in (folder, _twin(folder)))
    names = "8 hand-picked views", f"{len(suggested)} suggested views"
    sets = dict(zip(names, (wh, twin), strict=True))
    for (what, over), views in zip(sets.items(), (HAND_PICKED, suggested), strict=True):
        _make(over, dict(views))
        same_answers(over, log[: len(TEMPLATES)])
        for sql in log:
            assert over.sql(sql, executor="local").plan.view is not None, f"not covered by the {what}: {sql}"
        timed(over, log * 9)  # until small files are in memory and statements prepared
    found: Rows = []
    for what, measured in _by_turns(sets, log * _CALM_ROUNDS, FixedWork()).items():
        held = sum(v["rows"] for v in sets[what].views())
        found.append({"": what, **_beside_fixed(measured), "view rows": held})
        note(f"D5: {found[-1]}")
    twin.close()
    shutil.rmtree(twin.folder)
    loaded: Rows = []
    for how in LOADS if load_s is not None else ():
        loaded.append({"": f"the same under load ({how})", **_under_load(wh, folder, log, load_s or 0, how)})
        note(f"D4: {loaded[-1]}")
        wh.maintain()
        timed(wh, log)
    drop_views(wh)
    wh.close()
    return {"D5": found} | ({"D4": [{"": "the table", **_summary(base)}, found[0], *loaded]} if loaded else {})


def _twin(folder: Path) -> Path:
    """The same warehouse once more, without its data: files never change once they are published, so links will do."""
    twin = folder.with_name(folder.name + "-twin")
    shutil.rmtree(twin, ignore_errors=True)

    def copied(source: str, to: str) -> None:
        (shutil.copy2 if Path(source).parent == folder else os.link)(source, to)

    shutil.copytree(folder, twin, copy_function=copied)
    return twin


def _summary(measured: dict[str, list[float]]) -> dict[str, float]:
    return percentiles(measured["ms"], "ms") | {
        "mean bytes": float(np.mean(measured["bytes"])),
        "p99 rows": float(np.percentile(measured["rows"], 99)),
        "mean plan ms": float(np.mean(measured["plan ms"])),
    }


def _under_load(wh: Warehouse, folder: Path, log: list[str], seconds: float, how: str) -> dict[str, Any]:
    """The queries again and again while a process of its own ingests batches and runs the controller.

    It runs as ``maintain --background`` does, which is judged, or, as a control, only 10 steps nicer on all cores; what
    it got done is part of the result. Work that is always the same is timed by turns with the queries.
    """
    program = [sys.executable, "-m", "benchmarks.papers._napa_load"]
    command = [*program, str(folder), str(seconds), str(_BATCH_ROWS), how]
    before = wh.catalog.state()
    loader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert loader.stdout is not None
    loader.stdout.readline()  # it has ingested and refreshed once: Spark is warm
    measured: dict[str, list[float]] = {}
    fixed = FixedWork()
    while loader.poll() is None:
        for name, values in _by_turns({how: wh}, log, fixed)[how].items():
            measured.setdefault(name, []).extend(values)
    done = json.loads(loader.communicate()[0])
    assert loader.returncode == 0
    after = wh.catalog.state()
    assert after.clock > before.clock, "nothing was ingested"
    return {**_beside_fixed(measured), **done, "QT moved by": after.qt - before.qt}


def _by_turns(arms: dict[str, Warehouse], log: list[str], fixed: FixedWork) -> dict[str, dict[str, list[float]]]:
    """Every query in one arm after the other, and work that is always the same."""
    found: dict[str, dict[str, list[float]]] = {arm: {} for arm in arms}
    for sql in log:
        one = {arm: timed(wh, [sql]) for arm, wh in arms.items()}
        same = [fixed.ms()]
        for arm, figures in one.items():
            for name, values in (figures | {"fixed ms": same}).items():
                found[arm].setdefault(name, []).extend(values)
    return found


def _beside_fixed(measured: dict[str, list[float]]) -> dict[str, float]:
    own = percentiles(measured["fixed ms"], "ms of fixed work")
    own |= percentiles(_in_terms_of(measured["fixed ms"], measured["ms"]), "times fixed work")
    return {**_summary(measured), **own, "queries": len(measured["ms"])}


def _in_terms_of(fixed: list[float], times: list[float]) -> list[float]:
    """Times over the median of the fixed work around them: how fast the machine was at that moment cancels out, what
    hits a single query does not."""
    side = _AROUND // 2
    padded = np.pad(np.array(fixed), side, mode="edge")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * side + 1), axis=1)
    return [float(x) for x in np.array(times) / around]
