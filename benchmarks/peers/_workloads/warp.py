"""The WARP paper's templates on TPC-H joined into one wide table: 100 queries of each to learn from, then others."""

from __future__ import annotations

import numpy as np

from benchmarks._harness import Goals
from benchmarks.papers._warp_data import TABLE, TEMPLATES, denormalised, queries
from benchmarks.peers._bench import Bench
from benchmarks.peers._measure import Figures, ask, load
from benchmarks.peers._model import Table
from benchmarks.peers._systems.duck import answers, best_order
from benchmarks.peers._systems.ours import Layout
from parquetry import RelayoutOptions

ARMS = {
    "parquetry": ("warp",),
    "spark": ("sorted",),
    "delta": ("liquid",),
    "iceberg": ("hilbert",),
    "duckdb": ("parquet", "own"),
    "clickhouse": ("mergetree",),
}
BLOCK_ROWS = 2_000
CLUSTERED = ("o_orderdate", "r_name", "c_mktsegment", "l_quantity")  # as the paper's own range partitioning
_ORDERS = ("o_orderdate", "l_shipdate", "l_receiptdate")


def run(bench: Bench, goals: Goals) -> dict[str, Figures]:
    """No goal is set for this one: it is here to show how far the advantage carries."""
    source = str(denormalised(bench.scale))
    log = bench.work / "warp.sql"
    logged = _asked(10 if bench.quick else 100, seed=1)
    log.write_text("".join(f"{sql};\n" for sql in logged))
    asked = _asked(1 if bench.quick else 5, seed=2)
    order = best_order(TABLE, source, _ORDERS, logged[:: len(logged) // 40], bench.work)
    bench.note(f"best single order: {', '.join(order)}")
    table = Table(
        TABLE, source, ("l_orderkey", "l_linenumber"), CLUSTERED, order, file_rows=128 * BLOCK_ROWS,
        group_rows=BLOCK_ROWS, year_of="o_orderdate",
    )  # fmt: skip
    options = RelayoutOptions(within="o_orderdate:month", block_rows=BLOCK_ROWS, cells=1)
    bench.ours.layouts["warp"] = Layout("warp", log, options, {"block_group_rows": BLOCK_ROWS // 2})
    arms = bench.arms(ARMS)
    figures = load(arms, table, bench.note)
    ask(arms, figures, TABLE, asked, answers(TABLE, source, asked), bench.rounds, bench.note)
    return figures


def _asked(each: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [sql for template in TEMPLATES for sql in queries(template, each, rng)]
