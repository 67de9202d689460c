"""Lookups of many keys at once in a table where one id has half of the rows: groups of twenty ids and some days."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

from benchmarks._data import CACHE
from benchmarks._harness import Goals
from benchmarks.peers._bench import OURS, Bench
from benchmarks.peers._measure import Figures, ask, load
from benchmarks.peers._model import Table
from benchmarks.peers._systems.duck import answers
from benchmarks.splits_spark import DAYS, LARGE, skewed_rows

ARMS = {
    "parquetry": ("key",),
    "spark": ("sorted",),
    "delta": ("liquid", "zorder"),
    "iceberg": ("sort",),
    "duckdb": ("parquet", "own"),
    "clickhouse": ("mergetree",),
}
KEY = ("k1", "k2", "k3")
ROWS = 4_000_000  # per unit of scale
_IDS = 20


def run(bench: Bench, goals: Goals) -> dict[str, Figures]:
    rows = max(50_000, round(ROWS * bench.scale))
    source = CACHE / "peers" / f"skewed-{rows}.parquet"
    if not source.exists():
        source.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(skewed_rows(np.random.default_rng(0), rows, rows // 2, rows), source)
    # Row groups as long as ClickHouse's granules.
    table = Table("skewed", str(source), KEY, KEY[:2], KEY, file_rows=1 << 20, group_rows=8_192)
    arms = bench.arms(ARMS)
    figures = load(arms, table, bench.note)
    queries = _queries(4 if bench.quick else 40)
    ask(arms, figures, table.name, queries, answers(table.name, str(source), queries), bench.rounds, bench.note)
    check(figures, goals)
    return figures


def _queries(count: int) -> list[str]:
    """Every fourth one has the large id among its ids."""
    rng = np.random.default_rng(1)
    found = []
    for i in range(count):
        ids = rng.choice(20_000, _IDS, replace=False).tolist() + ([LARGE] if i % 4 == 0 else [])
        first = int(rng.integers(0, DAYS // 2))
        found.append(
            "SELECT k1, count(*) AS n, sum(v1) AS a, sum(v2) AS b FROM skewed "
            f"WHERE k1 IN ({', '.join(map(str, ids))}) AND k2 BETWEEN {first} AND {first + 100} GROUP BY k1 ORDER BY k1"
        )
    return found


def check(figures: dict[str, Figures], goals: Goals) -> None:
    for peer, limit in (("duckdb", 1.2), ("clickhouse", 2)):
        for f in figures.values():
            if f.peer == peer:
                goals.at_most(f"lookups, p50: Parquetry / {f.title}", figures[OURS].p50 / f.p50, limit)
