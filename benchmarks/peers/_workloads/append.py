"""A hundred small batches one after the other, then queries over what came of it; nobody optimises in between."""

from __future__ import annotations

from pathlib import Path

from benchmarks._data import tpch
from benchmarks._harness import Goals
from benchmarks.peers._bench import OURS, OURS_ON_SPARK, Bench
from benchmarks.peers._measure import Figures, add, ask, empty
from benchmarks.peers._model import Table
from benchmarks.peers._systems.duck import answers
from benchmarks.peers._tables import best

ARMS = {
    "parquetry": ("key",),
    "spark": ("appended",),
    "delta": ("plain",),
    "iceberg": ("plain",),
    "duckdb": ("parquet", "own"),
    "clickhouse": ("mergetree",),
}
BATCH_ROWS = 10_000
KEY = ("l_orderkey", "l_linenumber")


def run(bench: Bench, goals: Goals) -> dict[str, Figures]:
    source = tpch("lineitem", bench.scale)
    count, rows = (10, 600) if bench.quick else (100, BATCH_ROWS)
    batches = cut(source, count, rows, bench.work / "batches")
    table = Table("appended", str(source), KEY, KEY, KEY, file_rows=1 << 30, group_rows=122_880)
    arms = bench.arms(ARMS)
    figures = empty(arms, table)
    add(arms, figures, table, [str(p) for p in batches], "append", bench.note)
    queries = _queries(batches[0].parent, 3 if bench.quick else 15)
    truth = answers(table.name, f"{batches[0].parent}/*.parquet", queries)
    ask(arms, figures, table.name, queries, truth, bench.rounds, bench.note)
    check(figures, goals)
    return figures


def cut(source: Path, count: int, rows: int, folder: Path) -> list[Path]:
    """Batches whose keys interleave, as those of arrivals do."""
    import duckdb

    duck = duckdb.connect()
    folder.mkdir()
    (total,) = duck.execute(f"SELECT count(*) FROM '{source}'").fetchall()[0]
    ways = max(count, total // rows)
    paths = [folder / f"{i:03}.parquet" for i in range(count)]
    for i, path in enumerate(paths):
        duck.execute(f"COPY (FROM '{source}' WHERE (l_orderkey // 32) % {ways} = {i}) TO '{path}' (FORMAT parquet)")
    return paths


def _queries(folder: Path, each: int) -> list[str]:
    """Lookups of one order, and sums over a quarter of a year."""
    import duckdb

    sampled = f"SELECT DISTINCT l_orderkey FROM '{folder}/*.parquet' ORDER BY hash(l_orderkey) LIMIT {each}"
    lookups = [
        "SELECT l_orderkey, l_linenumber, l_extendedprice, l_shipdate FROM appended "
        f"WHERE l_orderkey = {key} ORDER BY l_orderkey, l_linenumber"
        for (key,) in duckdb.connect().execute(sampled).fetchall()
    ]
    quarters = [(1993 + i // 4 % 5, 1 + 3 * (i % 4)) for i in range(each)]
    sums = [
        "SELECT l_shipmode, count(*) AS n, sum(l_quantity) AS quantity FROM appended "
        f"WHERE l_shipdate BETWEEN DATE '{year}-{month:02}-01' AND DATE '{year}-{month + 2:02}-28' "
        "GROUP BY l_shipmode ORDER BY l_shipmode"
        for year, month in quarters
    ]
    return lookups + sums


def check(figures: dict[str, Figures], goals: Goals) -> None:
    batch, p50 = best(figures, "delta", "batch"), best(figures, "delta", "p50")
    ours = best(figures, "parquetry", "batch")
    if batch is None or p50 is None or ours is None:
        return
    goals.at_most("append, time per batch: Parquetry / Delta", ours / batch, 1)
    for arm in (OURS, OURS_ON_SPARK):
        goals.at_most(f"append, p50 after it: {arm} / Delta without OPTIMIZE", figures[arm].p50 / p50, 1)
