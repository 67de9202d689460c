"""The results as tables: one line per arm, ratios to Parquetry beside it, and where Parquetry loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks._report import table
from benchmarks.peers._bench import OURS, OURS_ON_SPARK
from benchmarks.peers._measure import Figures

MB = 1 << 20
COLUMNS = (
    "", "p50 ms", "p99 ms", "p50 / ours", "p50 / ours on Spark", "MB read", "bytes / ours", "files read", "batch s",
    "batch / ours", "upkeep s", "ingest s", "rewrite s", "MB stored", "files", "row groups", "we lose",
)  # fmt: skip


def rows_of(figures: Mapping[str, Figures]) -> list[dict[str, Any]]:
    ours, on_spark = figures[OURS], figures.get(OURS_ON_SPARK)
    rows = []
    for f in figures.values():
        s = f.stored
        row: dict[str, Any] = {
            "": f.title,
            "p50 ms": f.p50 if f.ms else None,
            "p99 ms": f.p99 if f.ms else None,
            "p50 / ours": _ratio(f.p50, ours.p50) if f.ms and f is not ours else None,
            "p50 / ours on Spark": _ratio(f.p50, on_spark.p50) if f.ms and f.on_spark and on_spark else None,
            "MB read": None if f.bytes is None else f.bytes / MB,
            "bytes / ours": _ratio(f.bytes, ours.bytes) if f is not ours else None,
            "files read": f.files,
            "batch s": mean(f.batch_s) if f.batch_s else None,
            "batch / ours": _ratio(mean(f.batch_s), mean(ours.batch_s)) if f.batch_s and f is not ours else None,
            "upkeep s": mean(f.upkeep_s) if f.upkeep_s else None,
            "ingest s": s.ingest_s or None if s else None,
            "rewrite s": s.rewrite_s or None if s else None,
            "MB stored": s.bytes / MB if s else None,
            "files": s.files if s else None,
            "row groups": s.row_groups if s else None,
        }
        row["we lose"] = _lost(row, f)
        rows.append(row)
    return rows


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


def _lost(row: Mapping[str, Any], f: Figures) -> str:
    """What a peer does better than Parquetry, by the same measure that the table shows."""
    if f.peer == "parquetry":
        return ""
    time = "p50 / ours on Spark" if f.on_spark and row["p50 / ours on Spark"] is not None else "p50 / ours"
    worse = [("time", time), ("bytes", "bytes / ours"), ("batches", "batch / ours")]
    return ", ".join(name for name, column in worse if row[column] is not None and row[column] < 1)


def markdown(figures: Mapping[str, Figures]) -> str:
    rows = [{k: "" if v is None else v for k, v in row.items()} for row in rows_of(figures)]
    return table(rows, [c for c in COLUMNS if any(row[c] != "" for row in rows)])


def profile(figures: Mapping[str, Figures]) -> str:
    """What planning costs a query that was not asked before; locally, one that was is not planned again."""
    told = [f for f in figures.values() if f.peer == "parquetry" and f.plan_ms is not None and f.ms]
    return "; ".join(f"{f.title}: {f.plan_ms:.1f} ms to plan a new query" for f in told)


def best(figures: Mapping[str, Figures], peer: str, what: str) -> float | None:
    """The least of a peer's arms: each peer is judged where it is strongest."""
    found: Sequence[float] = [
        value for f in figures.values() if f.peer == peer and (value := _figure(f, what)) is not None
    ]
    return min(found, default=None)


def _figure(f: Figures, what: str) -> float | None:
    if what == "p50":
        return f.p50 if f.ms else None
    if what == "batch":
        return mean(f.batch_s) if f.batch_s else None
    return f.bytes
