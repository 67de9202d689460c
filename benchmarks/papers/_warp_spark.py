"""WARP end to end on Spark: in memory as the paper has it (Figure 5), on disk (WP-E5), and what loading costs (WP-E3).

Rows are augmented with one column per feature, as the paper does. Spark keeps min and max of every column for each
batch of a cached frame and each row group of a file, and skips by them, as Shark did. A query that a feature subsumes
also asks for that feature's column, which skips every batch that no row with the feature is in: the union vector.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks._harness import interleaved, median
from benchmarks.papers._warp_data import REGIONS, SEGMENTS, TABLE, TEMPLATES, logged, queries, schema_of
from benchmarks.papers._warp_measure import FILTERED, MONTHS
from parquetry.layouts.learners.choose_features import choose_features
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.warp import cluster_counted, cut_clusters
from parquetry.layouts.nested import boundaries_of, rows_by_range
from parquetry.layouts.pruning.features import Evaluator, items_of, number_of, pack
from parquetry.layouts.pruning.subsume import implies
from parquetry.layouts.routing.spark_blocks import with_blocks
from parquetry.model.layout import Feature, FeatureLayout, NestedLayout
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import Opaque
from parquetry.model.schema import TableSchema
from parquetry.storage.merge import BLOCK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EACH = 2  # test queries of every template
_ROUNDS = 3
_SAMPLE_ROWS = 1_000_000
_PARTITIONS = 8
_RANGES = 80 * len(REGIONS) * len(SEGMENTS)  # months, regions and segments
READ = (*FILTERED, "l_extendedprice")


@dataclass(frozen=True)
class Learned:
    """The features of all months, and the blocks of each."""

    features: tuple[Feature, ...]
    layout: NestedLayout

    def subsuming(self, query: LoggedQuery) -> list[int]:
        """The features that every row of the query has."""

        def implied(item: Any) -> bool:
            return item in query.opaque if isinstance(item, Opaque) else implies(query.predicate, item)

        return [i for i, f in enumerate(self.features) if all(map(implied, items_of(f)))]


def _session() -> SparkSession:
    from parquetry.spark import session

    # Two layouts of 60 million rows are cached at once.
    settings = {"spark.driver.memory": "16g", "spark.memory.fraction": "0.75", "spark.sql.shuffle.partitions": "2"}
    return session("local[2]", settings)


def end_to_end(
    path: Path, blocks: int, features: int, folder: Path | None, note: Callable[[str], None]
) -> dict[str, Any]:
    """Seconds per query over files in ``folder``, or in memory without one; the answers of all arms are compared."""
    from pyspark.sql import functions as F

    spark = _session()
    whole = spark.read.parquet(str(path)).select(*READ)
    rows = whole.count()
    block_rows = max(20, rows // blocks)
    spark.conf.set("spark.sql.inMemoryColumnarStorage.batchSize", str(block_rows))
    schema = schema_of(path)
    learned = learn(whole, schema, rows, block_rows, features)
    note(f"{rows:,} rows, {len(learned.features)} features, {learned.layout.blocks} blocks learned")
    spread = {"range": by_range(whole, blocks), "WARP": augmented(whole, learned)}
    counts = {"range": range_blocks(blocks), "WARP": learned.layout.blocks}
    frames = {}
    for name, frame in spread.items():
        part = F.expr(f"CAST(least({_PARTITIONS} * {BLOCK} DIV {counts[name]}, {_PARTITIONS - 1}) AS INT)")
        frames[name] = frame.repartitionById(_PARTITIONS, part).sortWithinPartitions(BLOCK)
        if folder is not None:
            options = {"parquet.block.row.count.limit": max(1000, block_rows), "parquet.page.row.count.limit": 20_000}
            frames[name].write.options(**options).parquet(str(folder / name))
            frames[name] = spark.read.parquet(str(folder / name))
            note(f"{name}: written")
    rng = np.random.default_rng(2)
    asked = [(sql, logged([sql], schema)[0]) for t in TEMPLATES for sql in queries(t, _EACH, rng)]
    found = _time(spark, frames, learned, asked, folder is None, note)
    return {"": "in memory" if folder is None else "on disk", "rows": rows, **found}


def learn(whole: DataFrame, schema: TableSchema, rows: int, block_rows: int, features: int) -> Learned:
    """One set of features for all months, chosen greedily, and clusters in each month, from a sample."""
    rate = min(1.0, _SAMPLE_ROWS / rows)
    sample = (whole.sample(fraction=rate, seed=0) if rate < 1 else whole).select(*FILTERED).toArrow()
    options = LearnOptions(block_rows, sample.num_rows / rows, columns=FILTERED, features=features)
    rng = np.random.default_rng(1)
    train = logged([sql for t in TEMPLATES for sql in queries(t, 100, rng)], schema)
    chosen, _ = choose_features(sample, train, options)
    vectors = pack(Evaluator(chosen, sample.schema).bits(sample))
    boundaries = boundaries_of(sample.column(MONTHS.column), MONTHS)
    parts = []
    for own in rows_by_range(boundaries, sample.column(MONTHS.column)):
        distinct, counts = np.unique(vectors[own], return_counts=True)
        counted = {number_of(v): round(n / options.sample_rate) for v, n in zip(distinct, counts.tolist(), strict=True)}
        clusters, homes, _ = cluster_counted(chosen, counted, block_rows)
        uncut = FeatureLayout("warp", FILTERED, chosen, clusters, homes)
        parts.append(cut_clusters(uncut, sample.take(own), train, options))
    return Learned(chosen, NestedLayout("warp", MONTHS.column, boundaries, tuple(parts)))


def augmented(whole: DataFrame, learned: Learned) -> DataFrame:
    """Every row with its block and, per feature, whether it has it; evaluated by the code that routes."""
    from pyspark.sql import functions as F

    features = learned.features
    conditions = tuple(dict.fromkeys(o for f in features for o in f.opaque))
    names = [*FILTERED, *(o.text for o in conditions)]
    sent = [*(F.col(c) for c in FILTERED), *(F.expr(f"coalesce({o.text}, FALSE)") for o in conditions)]

    def vector(*arrays: pa.Array) -> pa.Array:
        table = pa.table(list(arrays), names=names)
        bits = Evaluator(features, table.schema).bits(table)
        return pa.array((bits.astype(np.int64) << np.arange(len(features))[:, None]).sum(axis=0))

    found = F.arrow_udf(vector, "bigint")(*sent)  # type: ignore[call-overload]
    routed = with_blocks(whole.withColumn("__vector", found), learned.layout)
    bits = [f"CAST((__vector >> {i}) & 1 AS TINYINT) AS {_bit(i)}" for i in range(len(features))]
    return routed.selectExpr(*READ, BLOCK, *bits)


def _bit(feature: int) -> str:
    return f"feature_{feature}"


def range_blocks(blocks: int) -> int:
    """About as many as ``blocks``: bands of quantity in every month, region and segment."""
    return _RANGES * max(1, round(blocks / _RANGES))


def by_range(whole: DataFrame, blocks: int) -> DataFrame:
    """Month, region, segment and bands of quantity: the scheme made by hand (WP-23), with about as many blocks."""
    bands = range_blocks(blocks) // _RANGES
    month = "(year(o_orderdate) - 1992) * 12 + month(o_orderdate) - 1"
    band = f"least(({bands} * (l_quantity - 1)) div 50, {bands - 1})"
    region, segment = _place(REGIONS, "r_name"), _place(SEGMENTS, "c_mktsegment")
    block = f"((({month}) * 5 + {region}) * 5 + {segment}) * {bands} + {band}"
    return whole.selectExpr(*READ, f"CAST({block} AS INT) AS {BLOCK}")


def _place(names: Sequence[str], column: str) -> str:
    quoted = ", ".join(f"'{n}'" for n in names)
    return f"CAST(array_position(array({quoted}), {column}) - 1 AS INT)"


def _time(
    spark: SparkSession,
    frames: dict[str, DataFrame],
    learned: Learned,
    asked: Sequence[tuple[str, LoggedQuery]],
    cached: bool,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Mean over the queries of each arm's median seconds, arms in turns; their answers are compared first."""
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"by_{name.lower()}")
        if cached:
            note(f"caching {name}: {frame.cache().count():,} rows, {_stored(spark) / 1e9:.1f} GB in memory")
    arms_of = []
    for sql, query in asked:  # the answers first, which also warms every arm
        has = "".join(f"{_bit(i)} = 1 AND " for i in learned.subsuming(query))
        by_hand = sql.replace(f"FROM {TABLE} ", "FROM by_range ")
        by_features = sql.replace(f"FROM {TABLE} WHERE ", f"FROM by_warp WHERE {has}(") + ")"
        arms = {"range": _asking(spark, by_hand), "WARP": _asking(spark, by_features)}
        unskipped, seconds = _timed(_asking(spark, by_hand, pruning=False))
        answers = {name: str(arm()) for name, arm in arms.items()} | {"no skipping": str(unskipped)}
        assert len(set(answers.values())) == 1, f"{sql}: {answers}"
        arms_of.append((arms, seconds))
    total: dict[str, Any] = {"range": 0.0, "WARP": 0.0, "no skipping": 0.0}
    for arms, seconds in arms_of:
        times = interleaved(arms, _ROUNDS) | {"no skipping": [seconds]}
        note(", ".join(f"{name} {median(of_arm):.3f} s" for name, of_arm in times.items()))
        for name, of_arm in times.items():
            total[name] += median(of_arm) / len(asked)
    for frame in frames.values():
        frame.unpersist(blocking=True)
    return total


def _asking(spark: SparkSession, sql: str, *, pruning: bool = True) -> Callable[[], Any]:
    def ask() -> Any:
        for name in ("spark.sql.inMemoryColumnarStorage.partitionPruning", "spark.sql.parquet.filterPushdown"):
            spark.conf.set(name, str(pruning).lower())
        return spark.sql(sql).collect()

    return ask


def _stored(spark: SparkSession) -> int:
    """The bytes of cached frames, all of them in memory."""
    found = list(spark.sparkContext._jsc.sc().getRDDStorageInfo())
    on_disk = sum(r.diskSize() for r in found)
    assert not on_disk, f"{on_disk:,} bytes did not fit into memory"
    return int(sum(r.memSize() for r in found))


def load(path: Path, blocks: int, note: Callable[[str], None]) -> dict[str, Any]:
    """WP-E3: a plain load in key order, and two loads into a WARP layout in every month.

    One learns from the first tenth and loads the rest into what it learned, as who knows his queries would; the other
    has loaded everything before it learns, and rewrites it.
    """
    import duckdb

    import parquetry
    from parquetry import RelayoutOptions

    spark = _session()
    schema = schema_of(path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(1)
        train = "\n".join(f"{sql};" for t in TEMPLATES for sql in queries(t, 100, rng))
        first, rest = folder / "first.parquet", folder / "rest.parquet"
        with duckdb.connect() as con:
            con.execute("SET enable_progress_bar = false")
            for target, kept in ((first, "="), (rest, "<>")):
                con.execute(f"COPY (FROM '{path}' WHERE hash(l_orderkey) % 10 {kept} 0) TO '{target}' (FORMAT parquet)")
        with parquetry.connect(folder / "warehouse", spark=spark) as wh:
            for table in ("warm_up", TABLE, "learned_first"):
                wh.create_table(table, ", ".join(f"{c.name} {c.type}" for c in schema.columns), key=list(schema.key))
            wh.ingest("warm_up", spark.read.parquet(str(path)).limit(10_000))  # a session's first batch pays its start
            rows, plain = _timed(lambda: wh.ingest(TABLE, path).rows, wh.maintain)
            note(f"plain load {plain:.1f} s")
            phases: list[tuple[str, float]] = []

            def lay_out(table: str, rows: int) -> Callable[[], Any]:
                log = folder / f"{table}.sql"
                log.write_text(train.replace(f"FROM {TABLE} ", f"FROM {table} "))
                options = RelayoutOptions(within=str(MONTHS), block_rows=rows, cells=1)
                return lambda: wh.relayout(
                    table, "warp", workload=log, options=options, phase=lambda t: phases.append((t, perf_counter()))
                )

            block_rows = max(2_000, rows // blocks)
            after, relaid = _timed(lay_out(TABLE, block_rows))
            ends = [at for _, at in phases[1:]] + [perf_counter()]
            steps = {text.split()[0]: end - at for (text, at), end in zip(phases, ends, strict=True)}
            note(f"laid out afterwards {relaid:.1f} s, {after.blocks} blocks: {steps}")
            _, started = _timed(lambda: wh.ingest("learned_first", first), wh.maintain)
            learned, learning = _timed(lay_out("learned_first", block_rows // 10))
            _, loaded = _timed(lambda: wh.ingest("learned_first", rest), wh.maintain)
            note(
                f"first tenth {started:.1f} s, laid out {learning:.1f} s, {learned.blocks} blocks, rest {loaded:.1f} s"
            )
            for sql in (s for t in TEMPLATES for s in queries(t, 1, rng)):
                answers = {
                    str(wh.sql(sql.replace(f"FROM {TABLE} ", f"FROM {t} ")).rows()) for t in (TABLE, "learned_first")
                }
                assert len(answers) == 1, sql
    return {
        "plain s": plain,
        "first tenth s": started,
        "learning from it s": learning,
        "loading the rest s": loaded,
        **{f"afterwards: {k} s": v for k, v in steps.items()},
        "ratio": (started + learning + loaded) / plain,
        "ratio afterwards": (plain + relaid) / plain,
    }


def _timed(work: Callable[[], Any], *then: Callable[[], Any]) -> tuple[Any, float]:
    started = perf_counter()
    found = work()
    for more in then:
        more()
    return found, perf_counter() - started
