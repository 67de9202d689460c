"""WARP end to end on Spark: in memory as the paper has it (Figure 5), on disk, and what loading costs (WP-E3, WP-E5).

In memory the table is a cached frame in the order of its blocks. Spark keeps min and max of every column for each batch
of a cached frame and skips by them, as Shark did; feature skipping adds the numbers of the blocks that are left.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._harness import interleaved, median
from benchmarks.papers._warp_data import TABLE, TEMPLATES, logged, queries, schema_of
from benchmarks.papers._warp_measure import Stored

if TYPE_CHECKING:
    from benchmarks.papers.warp import Bench

BLOCK = "__block"
_EACH = 2  # test queries of every template
_ROUNDS = 3
_MOST_RANGES = 16


def end_to_end(path: Path, bench: Bench, note: Callable[[str], None]) -> dict[str, Any]:
    """Median seconds per query in memory and on disk, and the cost of loading; answers are compared first."""
    from parquetry.spark import session

    spark = session("local[2]", {"spark.driver.memory": "6g", "spark.sql.shuffle.partitions": "2"})
    spark.conf.set("spark.sql.inMemoryColumnarStorage.batchSize", str(bench.block_rows))
    whole = bench.data.thin(pq.read_table(path))
    layouts = {name: bench.stored[name] for name in ("range", "WARP")}
    rng = np.random.default_rng(2)
    sqls = {t: queries(t, _EACH, rng) for t in TEMPLATES}
    with tempfile.TemporaryDirectory() as folder:
        frames = {}
        for name, stored in layouts.items():
            order = np.argsort(stored.block, kind="stable")
            ordered = whole.take(order).append_column(BLOCK, pa.array(stored.block[order].astype(np.int64)))
            pq.write_table(ordered, f"{folder}/{name}.parquet", row_group_size=100_000)
            frames[name] = spark.read.parquet(f"{folder}/{name}.parquet")
        rows = []
        for where in ("on disk", "in memory"):
            for name, frame in frames.items():
                if where == "in memory":
                    note(f"caching {name}: {frame.cache().count():,} rows")
            rows.append({"": where, **_time(spark, frames, layouts, sqls, bench)})
            note(f"{rows[-1]}")
        loads = load(spark, path, bench, Path(folder), note)
    spark.stop()
    memory = rows[-1]
    return {
        "queries": rows,
        "ratio": memory["range"] / memory["WARP"],
        "load": loads,
        "load ratio": loads[1]["seconds"] / loads[0]["seconds"],
    }


def _time(spark: Any, frames: Any, layouts: Any, sqls: Any, bench: Bench) -> dict[str, float]:
    total = {"no skipping": 0.0, "range": 0.0, "WARP": 0.0}
    count = 0
    for template in TEMPLATES:
        for sql in sqls[template]:
            (asked,) = logged([sql], bench.data.schema)
            kept = _block_filter(layouts["WARP"], asked)
            for name, frame in frames.items():
                frame.createOrReplaceTempView(f"by_{name.lower()}")
            by_range_sql = sql.replace(f"FROM {TABLE}", "FROM by_range")
            arms = {
                "no skipping": _run(spark, by_range_sql, pruning=False),
                "range": _run(spark, by_range_sql),
                "WARP": _run(spark, sql.replace(f"FROM {TABLE} WHERE ", f"FROM by_warp WHERE ({kept}) AND (") + ")"),
            }
            answers = {name: arm() for name, arm in arms.items()}
            assert len(set(map(str, answers.values()))) == 1, f"{template}: {answers}"
            for name, seconds in interleaved(arms, _ROUNDS).items():
                total[name] += median(seconds)
            count += 1
    return {name: seconds / count for name, seconds in total.items()}


def _run(spark: Any, sql: str, pruning: bool = True) -> Callable[[], Any]:
    def run() -> Any:
        switch = str(pruning).lower()
        spark.conf.set("spark.sql.inMemoryColumnarStorage.partitionPruning", switch)
        spark.conf.set("spark.sql.parquet.filterPushdown", switch)
        return spark.sql(sql).collect()

    return run


def _block_filter(stored: Stored, asked: Any) -> str:
    """The blocks that are left, as ranges of their numbers. Of more ranges than Spark compiles quickly, those with the
    fewest rows between them are joined: the query's own condition still decides on every row."""
    keep = stored.by_minmax(asked.predicate) & stored.by_features(asked)
    if not keep.any():
        return "FALSE"
    edges = np.flatnonzero(np.diff(np.concatenate([[False], keep, [False]]).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    before = np.concatenate([[0], np.cumsum(stored.size)])
    gaps = before[starts[1:]] - before[ends[:-1]]
    apart = np.sort(np.argsort(-gaps, kind="stable")[: _MOST_RANGES - 1])
    first, last = stored.ids[starts[np.r_[0, apart + 1]]], stored.ids[ends[np.r_[apart, len(ends) - 1]] - 1]
    return " OR ".join(f"{BLOCK} BETWEEN {a} AND {b}" for a, b in zip(first.tolist(), last.tolist(), strict=True))


def load(spark: Any, path: Path, bench: Bench, folder: Path, note: Callable[[str], None]) -> list[dict[str, Any]]:
    """WP-E3: ingest in key order, and the same with WARP in every month, learned from the training queries."""
    import parquetry
    from parquetry.maintain.relayout import RelayoutOptions

    source = path
    if bench.data.step > 1:
        source = folder / "some.parquet"
        pq.write_table(bench.data.thin(pq.read_table(path)), source)
    train = folder / "train.sql"
    rng = np.random.default_rng(1)
    train.write_text("\n".join(sql for t in TEMPLATES for sql in queries(t, 100, rng)))
    with parquetry.connect(folder / "warehouse", spark=spark) as wh:
        schema = schema_of(path)
        wh.create_table(TABLE, ", ".join(f"{c.name} {c.type}" for c in schema.columns), key=list(schema.key))
        started = time.perf_counter()
        wh.ingest(TABLE, source, label="all")
        wh.maintain()
        plain = time.perf_counter() - started
        note(f"plain load {plain:.1f} s")
        started = time.perf_counter()
        phases: list[tuple[str, float]] = []
        options = RelayoutOptions(within="o_orderdate:month", block_rows=max(bench.block_rows, 2000), cells=1)
        say = lambda text: phases.append((text, time.perf_counter()))  # noqa: E731
        done = wh.relayout(TABLE, "warp", workload=train, options=options, phase=say)
        relaid = time.perf_counter() - started
        note(f"WARP {relaid:.1f} s, {done.blocks} blocks: {[(t, round(at - started, 1)) for t, at in phases]}")
    return [
        {"load": "plain, key order", "seconds": plain},
        {"load": "plain, then analysis, augmentation, clustering and rewrite", "seconds": plain + relaid},
    ]
