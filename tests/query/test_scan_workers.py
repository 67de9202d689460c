"""Scan workers answer as the unsplit scan does, for every model, layout and number of splits, and during ingestion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry import failpoints
from parquetry.errors import QueryError
from tests.query.sample_table import SCHEMA, sample_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {"row_group_rows": 200, "max_query_deltas": 16, "compaction_width": 16}
DDL = "k1 int not null, k2 string not null, v bigint, d decimal(15,2), f double"
MERGES = {"v": "sum", "d": "max", "f": "replace"}
ORDER = "ORDER BY 1, 2"
QUERIES = [
    "SELECT count(*) AS n, sum(v) AS v, min(k2) AS a, max(d) AS b, avg(d) AS c, count(f) AS cf FROM {t}",
    f"SELECT k1 % 5 AS g, k2, count(*) AS n, sum(d) AS s, avg(v) AS a FROM {{t}} GROUP BY k1 % 5, k2 {ORDER}",
    "SELECT k1, sum(v) AS s FROM {t} WHERE k1 IN (3, 7, 11, 500) GROUP BY k1 HAVING sum(v) > 0 ORDER BY s DESC, k1",
    "SELECT k1, max(v) - min(v) AS r FROM {t} WHERE k1 BETWEEN 5 AND 90 AND v > 10 GROUP BY k1 ORDER BY k1 LIMIT 7",
    "SELECT DISTINCT k2, count(*) > 5 AS many FROM {t} GROUP BY k1, k2 ORDER BY 1, 2",
    "SELECT k1, k2, v, d FROM {t} WHERE k1 < 12 ORDER BY k1, k2, v, d",
    "SELECT sum(v) AS s FROM {t} WHERE k1 = 4 AND k1 = 5",
]


def batch(rng: np.random.Generator, rows: int, keys: int) -> pa.Table:
    k1 = np.minimum(rng.zipf(1.3, rows), keys).astype(np.int32)
    null = rng.random(rows) < 0.1
    return pa.table(
        {
            "k1": pa.array(k1),
            "k2": pa.array([f"s{i % 7}" for i in rng.integers(0, 50, rows)]),
            "v": pa.array(rng.integers(-50, 100, rows), mask=null),
            "d": pa.array([Decimal(int(c)).scaleb(-2) for c in rng.integers(-9999, 9999, rows)], pa.decimal128(15, 2)),
            "f": pa.array(rng.integers(0, 64, rows) / 8),
        }
    )


@pytest.fixture(scope="module")
def wh(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[parquetry.Warehouse]:
    rng = np.random.default_rng(0)
    with parquetry.connect(tmp_path_factory.mktemp("workers") / "w", spark=spark) as wh:
        for model in ("append", "upsert", "aggregate"):
            wh.create_table(model, DDL, ["k1", "k2"], model, MERGES if model == "aggregate" else None, settings=SMALL)
            for rows in (3000, 900, 250, 1):
                wh.ingest(model, batch(rng, rows, 300))
        wh.create_table("laid", DDL, ["k1", "k2"], "append", settings={**SMALL, "block_group_rows": 64})
        wh.ingest("laid", batch(rng, 3000, 300))
        wh.maintain()
        wh.relayout("laid", "kdtree", options=parquetry_options("k1", "v"), workload=None)
        wh.ingest("laid", batch(rng, 400, 300))
        wh.create_table("mixed", DDL, ["k1", "k2"], "upsert", settings={**SMALL, "block_group_rows": 64})
        for rows in (3000, 900):
            wh.ingest("mixed", batch(rng, rows, 300))
        wh.maintain()
        arriving: dict[str, Callable[[], object]] = {}
        arriving["relayout.before_commit"] = lambda: wh.ingest("mixed", batch(rng, 700, 300))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(failpoints, "reach", lambda name: arriving.pop(name, lambda: None)())
            wh.relayout("mixed", "kdtree", options=parquetry_options("k2", "k1"), workload=None)
        wh.ingest("mixed", batch(rng, 400, 300))
        wh.maintain()
        yield wh


def parquetry_options(*columns: str) -> Any:
    from parquetry import RelayoutOptions

    return RelayoutOptions(block_rows=100, columns=columns)


def unsplit(wh: parquetry.Warehouse, sql: str) -> pa.Table:
    return wh.sql(sql, executor="spark", off=["scan_workers"]).arrow()


@pytest.mark.parametrize("table", ["append", "upsert", "aggregate", "laid", "mixed"])
@pytest.mark.parametrize("query", QUERIES)
def test_answers_equal_the_unsplit_scan(wh: parquetry.Warehouse, table: str, query: str) -> None:
    sql = query.format(t=table)
    expected = wh.sql(sql, executor="local").arrow()
    for splits in (1, 13) if table == "append" else (5,):
        result = wh.sql(sql, splits=splits)
        assert result.arrow().to_pylist() == expected.to_pylist()
        assert result.arrow().schema.types == expected.schema.types
        assert result.arrow().column_names == expected.column_names
        if result.plan.scan is not None:
            assert 1 <= result.stats["splits"] <= splits


@pytest.mark.parametrize("table", ["append", "upsert", "aggregate", "laid", "mixed"])
def test_every_stored_row_is_in_one_split_and_equal_keys_in_the_same(wh: parquetry.Warehouse, table: str) -> None:
    """Counted worker by worker, in this process."""
    from parquetry.query.spark.scan_workers import Part, job_of, scan_split

    plan = wh.sql(f"SELECT k1, k2, count(*) AS n FROM {table} GROUP BY k1, k2", splits=23).plan
    assert plan.scan is not None
    assert len(plan.scan.tasks) > 10
    job = job_of(plan, plan.scan, wh.store)
    parts = [scan_split(job, Part(t.ordinal, (t,)))[0] for t in plan.scan.tasks]
    keys = [set(zip(p["g0"].to_pylist(), p["g1"].to_pylist(), strict=True)) for p in parts]
    assert sum(map(len, keys)) == len(set().union(*keys)) or table == "laid"  # there k1 and v decide the block
    whole = unsplit(wh, f"SELECT count(*) AS n FROM (SELECT k1, k2 FROM {table})").to_pylist()[0]["n"]
    assert sum(sum(p["p0"].to_pylist()) for p in parts) == whole


def test_deltas_of_several_layouts_are_cut_in_the_order_of_one(wh: parquetry.Warehouse) -> None:
    plan = wh.sql("SELECT k1, k2, sum(v) AS v FROM mixed GROUP BY k1, k2", splits=5).plan
    (mixed,) = plan.tables.values()
    assert len({d.layout_id for d in mixed.deltas}) == 2
    assert mixed.merge
    assert plan.scan is not None
    assert plan.scan.order.layout_id == mixed.state.layout_id
    assert "lie in another order" in next(d.why for d in plan.decisions if d.rule == "scan_workers")


def test_every_type_travels_in_the_frames_of_workers(wh: parquetry.Warehouse) -> None:
    wh.create_table("types", SCHEMA, settings={"row_group_rows": 20})
    wh.ingest("types", sample_rows(90))
    wh.maintain()
    flat = [c for c in SCHEMA.names if c != "k"]
    listed = ", ".join(f"min(`{c}`) AS a{i}, max(`{c}`) AS b{i}, count(`{c}`) AS c{i}" for i, c in enumerate(flat))
    queries = [f"SELECT {listed} FROM types", f"SELECT g, {listed} FROM types WHERE k > 7 GROUP BY g ORDER BY g"]
    queries += [f"SELECT `{c}` AS g, count(*) AS n, sum(g) AS s FROM types GROUP BY `{c}` ORDER BY 1" for c in flat]
    sums = ", ".join(f"sum({c}) AS s{c}, avg({c}) AS a{c}" for c in ("i8", "i16", "i", "d1", "d2", "dz"))
    queries += [f"SELECT b, {sums}, sum(d1) + 4 AS q FROM types GROUP BY b ORDER BY b"]
    for sql in queries:
        result = wh.sql(sql, splits=2)
        assert result.plan.scan is not None
        expected = wh.sql(sql, executor="local").arrow()
        assert result.arrow().schema.types == expected.schema.types
        assert repr(result.rows()) == repr(expected.to_pylist())  # NaN is not equal to itself


def test_splits_are_even_and_explained(wh: parquetry.Warehouse) -> None:
    explained = wh.explain("SELECT k2, sum(v) AS v FROM append GROUP BY k2", splits=4, analyze=True)
    (scan,) = [d for d in explained.decisions if d.rule == "scan_workers" and "splits" in d.decided]
    assert "θ" in scan.why
    assert "index nodes" in scan.why
    assert explained.stats is not None
    assert explained.stats["scan"]["workers"] == 4
    assert any("skew of rows" in d.why for d in explained.decisions)


def test_a_frame_of_a_split_query_is_the_same(wh: parquetry.Warehouse) -> None:
    sql = "SELECT k2, sum(v) AS v FROM upsert GROUP BY k2 ORDER BY k2"
    assert wh.sql(sql, splits=3).spark().toArrow().to_pylist() == unsplit(wh, sql).to_pylist()


def test_small_queries_are_left_to_sparks_own_reader(wh: parquetry.Warehouse) -> None:
    plan = wh.sql("SELECT count(*) AS n FROM append", executor="spark").plan
    assert plan.scan is None
    assert any(d.rule == "scan_workers" and "too few" in d.why for d in plan.decisions)


def test_what_cannot_be_cut_goes_to_spark_and_says_why(wh: parquetry.Warehouse) -> None:
    result = wh.sql("SELECT count(DISTINCT k2) AS n FROM append", splits=4)
    assert result.plan.scan is None
    assert any("DISTINCT" in d.why for d in result.plan.decisions)
    assert result.rows() == [{"n": 7}]


@pytest.mark.parametrize("bad", [{"splits": 0}, {"splits": 2, "executor": "local"}])
def test_senseless_numbers_are_refused(wh: parquetry.Warehouse, bad: dict[str, Any]) -> None:
    with pytest.raises(QueryError):
        wh.sql("SELECT count(*) AS n FROM append", **bad).arrow()


def test_long_keys_one_hot_key_and_thousands_of_values(spark: SparkSession, tmp_path: Path) -> None:
    with parquetry.connect(tmp_path / "w", spark=spark) as wh:
        wh.create_table("t", "k string not null, v bigint", ["k"], "append", settings={"row_group_rows": 50})
        long = "x" * 100_000
        keys = ["hot"] * 990 + [f"k{i}" for i in range(100)] + [long + "a", long + "b", long + "b"]
        wh.ingest("t", pa.table({"k": keys, "v": list(range(len(keys)))}))
        wh.ingest("t", pa.table({"k": ["hot"], "v": [5]}))
        wh.maintain()
        listed = ", ".join(f"'k{i}'" for i in range(3_000))
        for sql in (
            "SELECT length(k) AS n, count(*) AS c, sum(v) AS s FROM t GROUP BY length(k) ORDER BY 1",
            f"SELECT count(*) AS c, sum(v) AS s FROM t WHERE k IN ({listed})",
        ):
            expected = unsplit(wh, sql).to_pylist()
            for splits in (2, 40):
                assert wh.sql(sql, splits=splits).rows() == expected


def test_answers_hold_while_data_comes_in(spark: SparkSession, tmp_path: Path) -> None:
    """Every answer is that of some prefix of the batches: a batch counts wholly or not at all."""
    with parquetry.connect(tmp_path / "w", spark=spark) as wh:
        wh.create_table(
            "t", "k int not null, v bigint", ["k"], "aggregate", {"v": "sum"}, settings={"row_group_rows": 64}
        )
        every = pa.table({"k": pa.array(range(300), pa.int32()), "v": pa.array([1] * 300)})
        wh.ingest("t", every)
        wh.maintain()
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                wh.ingest("t", every)
                wh.maintain()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                (row,) = wh.sql("SELECT sum(v) AS s, min(v) AS a, max(v) AS b, count(*) AS n FROM t", splits=5).rows()
                assert row["n"] == 300
                assert row["a"] == row["b"]
                assert row["s"] == 300 * row["a"]
        finally:
            stop.set()
            writer.join()


def test_a_column_with_duckdbs_name_for_row_numbers_is_just_a_column(tmp_path: Path, spark: SparkSession) -> None:
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", "file_row_number bigint not null, v bigint", ["file_row_number"], settings=SMALL)
        wh.ingest("t", pa.table({"file_row_number": range(1000, 2000), "v": range(1000)}))
        wh.maintain()
        sql = "SELECT sum(v) AS s, count(*) AS n FROM t WHERE file_row_number BETWEEN 1500 AND 1509"
        expected = [{"s": sum(range(500, 510)), "n": 10}]
        assert wh.sql(sql, executor="spark", splits=3).rows() == expected
        assert wh.sql(sql, executor="local").rows() == expected
