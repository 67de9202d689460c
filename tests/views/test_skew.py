"""One heavy value of the shared prefix is cut up and aggregated in two steps; everything else still streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry.model.state import TableState
from parquetry.views import skew
from parquetry.views.classes import plan_class
from parquetry.views.refresh import RefreshWork
from parquetry.views.skew import cluster, heavy_clusters
from parquetry.warehouse import Warehouse
from tests.views import without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "a int, b string, page int, v bigint"
VIEW = "SELECT a, page, sum(v) AS v, count(*) AS n, approx_count_distinct(b) AS d FROM t GROUP BY a, page"


def rows(count: int, heavy: dict[int, int]) -> pa.Table:
    """Ten values of ``a`` with ``count`` rows each, some with more."""
    rng = np.random.default_rng(5)
    a = np.concatenate([np.full(heavy.get(i, count), i) for i in range(10)])
    return pa.table(
        {
            "a": pa.array(a, pa.int32()),
            "b": pa.array(np.array(["x", "y", "é"])[rng.integers(0, 3, len(a))]),
            "page": pa.array(rng.integers(0, 700, len(a)), pa.int32()),
            "v": pa.array(rng.integers(-9, 9, len(a)), pa.int64()),
        }
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skew, "LEAST_HEAVY_ROWS", 4_000)


def stored(path: Path, data: pa.Table) -> tuple[Warehouse, TableState]:
    wh = parquetry.connect(path)
    wh.create_table("t", DDL, key=["a", "b", "page"], settings={"row_group_rows": 500})
    without_spark.ingest(wh, "t", data, "all")
    return wh, wh.catalog.state().table("t")


@pytest.mark.parametrize(
    ("heavy", "shared", "found"),
    [
        ({}, 1, ()),
        ({4: 9_000}, 1, ((4,),)),
        ({0: 9_000, 9: 7_000}, 1, ((0,), (9,))),
        ({4: 30_000}, 2, ((4, "x"), (4, "y"), (4, "é"))),
        ({4: 6_000}, 2, ()),
    ],
)
def test_heavy_clusters_are_found_in_the_index(
    tmp_path: Path, small: None, heavy: dict[int, int], shared: int, found: tuple[tuple[object, ...], ...]
) -> None:
    wh, t = stored(tmp_path / "wh", rows(600, heavy))
    with wh:
        assert heavy_clusters(t.deltas[0], t.schema, shared, wh.store) == found


@pytest.fixture
def skewed(spark: SparkSession, tmp_path: Path, small: None) -> Iterator[Warehouse]:
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", DDL, key=["a", "b", "page"], settings={"row_group_rows": 500})
        wh.ingest("t", rows(600, {3: 12_000, 7: 9_000}), "all", tasks=1)
        wh.create_view("v", VIEW, settings={"in_process_bytes": 0})
        yield wh


def test_a_view_with_skew_equals_its_definition(skewed: Warehouse) -> None:
    skewed.maintain()
    (refreshed,) = (h["detail"] for h in skewed.history() if h["kind"] == "refresh view")
    assert refreshed["class"] == 2
    assert "2 heavy clusters" in refreshed["why"]
    got = skewed.sql("SELECT * FROM v", executor="local").arrow()
    wanted = skewed.sql(VIEW, executor="spark", off=["views"]).arrow()
    by = [("a", "ascending"), ("page", "ascending")]
    assert got.sort_by(by).to_pylist() == wanted.sort_by(by).to_pylist()
    assert got.select(["a", "page"]).equals(got.select(["a", "page"]).sort_by(by)), "one run in the order of the key"
    assert skewed.verify() == []
    assert len(skewed.catalog.state().table("v").deltas[0].files) >= 5, "two heavy clusters and three stretches"
    sql = "SELECT page, n FROM v WHERE a = 3 AND page = 77"
    assert skewed.sql(sql, executor="local").rows() == skewed.sql(sql, executor="spark").rows()


def test_the_stream_has_no_shuffle_and_the_heavy_cluster_is_aggregated_twice(skewed: Warehouse) -> None:
    state = skewed.catalog.state()
    view, base = state.table("v"), state.table("t")
    how = plan_class(view, base, base.deltas, skewed.store)
    assert (how.number, how.heavy) == (2, ((3,), (7,)))
    work = RefreshWork(lambda: skewed.spark, skewed.store, state, view, base.deltas[0].t_hi, "unused", how, ("a",))
    streamed = work.streamed()._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in streamed
    assert "Sort" not in streamed
    assert "Aggregate" not in streamed
    assert work.streamed().rdd.getNumPartitions() == 3
    heavy = work.shuffled(cluster(("a",), (3,)))._jdf.queryExecution().executedPlan().toString()
    first, second = heavy.rindex("partial_sum"), heavy.index("Exchange hashpartitioning(")
    assert second < first, "plans are printed from the end: the exchange is between both steps"
    assert heavy.count("Aggregate(") >= 2
    assert "(a#" in heavy
