"""Ten batches of changed orders, then lookups and sums over the newest rows; nobody optimises in between."""

from __future__ import annotations

from pathlib import Path

from benchmarks._data import tpch
from benchmarks._harness import Goals
from benchmarks.peers._bench import Bench
from benchmarks.peers._measure import Figures, add, ask, load
from benchmarks.peers._model import Table
from benchmarks.peers._systems.duck import answers

ARMS = {
    "parquetry": ("key",),
    "delta": ("liquid", "liquid vectors"),
    "iceberg": ("sort", "sort on read"),
    "duckdb": ("own",),
    "clickhouse": ("replacing",),
}
BATCH_ROWS = 5_000
KEY = ("o_orderkey",)


def run(bench: Bench, goals: Goals) -> dict[str, Figures]:
    """No goal is set for this one."""
    source = str(tpch("orders", bench.scale))
    batches = _changes(source, 3 if bench.quick else 10, bench.work / "changes")
    table = Table("orders", source, KEY, KEY, KEY, file_rows=500_000, group_rows=122_880, model="upsert")
    arms = bench.arms(ARMS)
    figures = load(arms, table, bench.note)
    add(arms, figures, table, batches, "upsert", bench.note)
    newest = bench.work / "newest.parquet"
    _newest(source, batches, newest)
    queries = _queries(batches[-1], 3 if bench.quick else 15)
    ask(arms, figures, table.name, queries, answers(table.name, str(newest), queries), bench.rounds, bench.note)
    return figures


def _changes(source: str, count: int, folder: Path) -> list[str]:
    """Batches of orders with new prices, each drawn from all of them, so that some change more than once."""
    import duckdb

    folder.mkdir()
    duck = duckdb.connect()
    (rows,) = duck.execute(f"SELECT count(*) FROM '{source}'").fetchall()[0]
    ways = max(10, rows // BATCH_ROWS)
    paths = [str(folder / f"{i:03}.parquet") for i in range(count)]
    for i, path in enumerate(paths):
        duck.execute(
            f"COPY (SELECT * REPLACE (CAST(o_totalprice + {i + 1} AS DECIMAL(15, 2)) AS o_totalprice) FROM '{source}' "
            f"WHERE hash(o_orderkey * {count} + {i}) % {ways} = 0) TO '{path}' (FORMAT parquet)"
        )
    return paths


def _newest(source: str, batches: list[str], target: Path) -> None:
    """The table as it has to be in the end."""
    import duckdb

    rows = " UNION ALL ".join(f"SELECT *, {i} AS batch FROM '{path}'" for i, path in enumerate([source, *batches]))
    duckdb.connect().execute(
        f"COPY (SELECT * EXCLUDE (batch) FROM ({rows}) QUALIFY "
        f"row_number() OVER (PARTITION BY o_orderkey ORDER BY batch DESC) = 1) TO '{target}' (FORMAT parquet)"
    )


def _queries(changed: str, each: int) -> list[str]:
    """Lookups of ten orders, some of which have changed, and sums over a quarter of a year."""
    import duckdb

    sampled = f"SELECT o_orderkey FROM '{changed}' ORDER BY hash(o_orderkey) LIMIT {10 * each}"
    keys = [key for (key,) in duckdb.connect().execute(sampled).fetchall()]
    lookups = [
        f"SELECT o_orderkey, o_totalprice, o_orderdate FROM orders WHERE o_orderkey IN ({', '.join(map(str, some))}) "
        "ORDER BY o_orderkey"
        for some in (keys[i::each] for i in range(each))
    ]
    sums = [
        "SELECT o_orderpriority, count(*) AS n, sum(o_totalprice) AS price FROM orders "
        f"WHERE o_orderdate BETWEEN DATE '{year}-{month:02}-01' AND DATE '{year}-{month + 2:02}-28' "
        "GROUP BY o_orderpriority ORDER BY o_orderpriority"
        for year, month in ((1993 + i // 4 % 5, 1 + 3 * (i % 4)) for i in range(each))
    ]
    return lookups + sums
