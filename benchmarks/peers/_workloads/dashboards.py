"""A dashboard's aggregates over skewed facts, from four views where a system can keep some.

Parquetry chooses the view by itself. For ClickHouse and DuckDB the benchmark chooses, at no cost to them; DuckDB's
"summaries" are tables made by hand that nothing keeps up to date.
"""

from __future__ import annotations

import pyarrow.parquet as pq

from benchmarks._data import CACHE
from benchmarks._harness import Goals
from benchmarks.papers._napa_data import KEY, hits, log_of
from benchmarks.peers._bench import OURS, Bench
from benchmarks.peers._measure import Figures, ask, load
from benchmarks.peers._model import Table, View
from benchmarks.peers._systems.duck import answers

ARMS = {
    "parquetry": ("views",),
    "spark": ("sorted",),
    "delta": ("liquid",),
    "iceberg": ("sort",),
    "duckdb": ("parquet", "own", "summaries"),
    "clickhouse": ("views", "mergetree"),
}
ROWS = 2_000_000  # per unit of scale
SUMS = ("clicks", "views", "cost")
VIEWS = (
    View("by_page", ("page",), SUMS),
    View("by_place", ("day", "country", "device"), SUMS),
    View("by_campaign", ("campaign", "country", "device"), SUMS),
    View("by_customer", ("customer", "day"), SUMS),
)


def run(bench: Bench, goals: Goals) -> dict[str, Figures]:
    rows = max(20_000, round(ROWS * bench.scale))
    source = CACHE / "peers" / f"hits-{rows}.parquet"
    if not source.exists():
        source.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(hits(rows, 0), source)
    table = Table(
        "hits", str(source), KEY, ("day", "customer", "country", "campaign"), KEY, file_rows=500_000,
        group_rows=122_880, views=VIEWS,
    )  # fmt: skip
    arms = bench.arms(ARMS)
    figures = load(arms, table, bench.note)
    queries = list(dict.fromkeys(log_of(400, 1, 12)))[: 6 if bench.quick else 60]
    ask(arms, figures, table.name, queries, answers(table.name, str(source), queries), bench.rounds, bench.note)
    check(figures, goals)
    return figures


def check(figures: dict[str, Figures], goals: Goals) -> None:
    """Against what a system keeps up to date by itself: ClickHouse's views, DuckDB's tables."""
    for title in ("ClickHouse, views", "DuckDB, own", "DuckDB, parquet"):
        if title in figures:
            goals.at_most(f"dashboards, p50: Parquetry with views / {title}", figures[OURS].p50 / figures[title].p50, 1)
