"""The PAW paper's default workload on lineitem: boxes on four columns, within 1 % of those in the log."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks._data import tpch
from benchmarks._harness import Goals
from benchmarks.peers._bench import OURS, OURS_ON_SPARK, Bench
from benchmarks.peers._measure import Figures, ask, load
from benchmarks.peers._model import Table, canonical
from benchmarks.peers._systems.duck import best_order
from benchmarks.peers._systems.ours import Layout
from benchmarks.peers._tables import best
from benchmarks.relayout import BLOCK_ROWS, DELTA, DIMS, KEY, make_workload
from parquetry import RelayoutOptions

ARMS = {
    "parquetry": ("paw",),
    "spark": ("sorted",),
    "delta": ("liquid", "zorder", "liquid default"),
    "iceberg": ("hilbert", "zorder", "sort", "hilbert default"),
    "duckdb": ("parquet", "own"),
    "clickhouse": ("mergetree",),
}
_CELLS = RelayoutOptions().cells
_LEAST_BLOCK_ROWS = 4_000  # of the smallest scales


def run(bench: Bench, goals: Goals) -> dict[str, Figures]:
    source = tpch("lineitem", bench.scale)
    workload = make_workload(source, SimpleNamespace(queries=5 if bench.quick else 50, seed=0), bench.work)
    logged = [sql.rstrip(";") for sql in workload.history.read_text().splitlines()]
    order = best_order("lineitem", str(source), DIMS, logged, bench.work)
    bench.note(f"best single order: {', '.join(order)}")
    block_rows = max(_LEAST_BLOCK_ROWS, round(BLOCK_ROWS * bench.scale))
    group_rows = block_rows // _CELLS
    table = Table(
        "lineitem", str(source), KEY, DIMS, order, file_rows=128 * group_rows, group_rows=group_rows,
        year_of="l_shipdate",
    )  # fmt: skip
    # As in the benchmark of layouts: cells order the rows inside a block, row groups end where cells do.
    bench.ours.layouts["paw"] = Layout(
        "paw",
        workload.history,
        RelayoutOptions(block_rows=block_rows, delta=DELTA),
        {"row_group_rows": 122_880, "block_group_rows": max(1, min(1024, group_rows // 2))},
    )
    arms = bench.arms(ARMS)
    figures = load(arms, table, bench.note)
    truth = [canonical([a]) for a in workload.answers]
    ask(arms, figures, table.name, workload.future, truth, bench.rounds, bench.note)
    check(figures, goals)
    return figures


def check(figures: dict[str, Figures], goals: Goals) -> None:
    """Against the best arm of each peer, by each measure on its own."""
    for peer, name in (("delta", "Delta"), ("iceberg", "Iceberg")):
        for arm in (OURS, OURS_ON_SPARK):
            ours, read, p50 = figures[arm], best(figures, peer, "bytes"), best(figures, peer, "p50")
            if read and ours.bytes and p50:
                goals.at_least(f"paw, bytes read: best {name} / {arm}", read / ours.bytes, 5)
                goals.at_least(f"paw, p50: best {name} / {arm}", p50 / ours.p50, 3)
