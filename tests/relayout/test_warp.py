"""WARP through the warehouse: Spark routes as numpy does, and no answer changes, whatever the model and the layout."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.warp import learn_warp
from parquetry.layouts.pruning.features import Evaluator, number_of, pack
from parquetry.layouts.routing.route import route_numpy, route_spark
from parquetry.layouts.routing.spark_blocks import count_vectors
from parquetry.model.layout import FeatureLayout
from parquetry.model.state import PublishLayout
from parquetry.query.rules import RULE_NAMES as RULES
from tests.layouts.test_warp import logged_of, with_opaque
from tests.templates import Templates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {"block_group_rows": 50, "row_group_rows": 1000, "compaction_width": 50}


@pytest.mark.parametrize("seed", range(4))
def test_spark_and_numpy_route_alike_and_count_the_same_vectors(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    table, sqls = with_opaque(rng, 2000)
    spec = learn_warp(table, logged_of(sqls), LearnOptions(40))
    frame = spark.createDataFrame(table).repartition(3)
    routed = {r["k"]: r["block"] for r in frame.select("k", route_spark(spec).alias("block")).collect()}
    assert [routed[k] for k in range(2000)] == route_numpy(spec, table).tolist()
    vectors, counts = np.unique(pack(Evaluator(spec.features, table.schema).bits(table)), return_counts=True)
    assert count_vectors(frame, spec.features) == dict(zip(map(number_of, vectors), counts.tolist(), strict=True))


@pytest.fixture(params=["append", "upsert"])
def wh(request: pytest.FixtureRequest, tmp_path: Path, templates: Templates) -> Iterator[parquetry.Warehouse]:
    """Table t to be laid out, and the same rows in table plain."""
    values = dict.fromkeys("sudx", "replace") if request.param == "aggregate" else None

    def fill(wh: parquetry.Warehouse) -> None:
        for name in ("plain", "t"):
            schema = batch(0).schema
            wh.create_table(name, schema, key=["a", "b", "k"], model=request.param, values=values, settings=SMALL)
        add(wh, 1)
        for sql in QUERIES:
            wh.sql(sql, executor="local").rows()
        wh.sql(ON_SPARK[-1], executor="spark").rows()

    with templates.copied(f"warp-{request.param}", tmp_path / "wh", fill) as wh:
        yield wh


def batch(seed: int) -> pa.Table:
    table, _ = with_opaque(random.Random(seed), 2000)
    for i, c in enumerate(("a", "b"), start=1):
        table = table.set_column(i, c, pc.fill_null(table.column(c), 0))
    return table


def add(wh: parquetry.Warehouse, seed: int) -> None:
    for name in ("plain", "t"):
        wh.ingest(name, batch(seed), label=str(seed))
    wh.maintain()


SELECT = "SELECT count(*) AS n, sum(k) AS k, count(s) AS s, max(d) AS d FROM t WHERE "
QUERIES = [
    SELECT + where
    for where in (
        *(
            "a < b",
            "s LIKE '%x%'",
            "a < b AND s LIKE '%x%'",
            "a BETWEEN 3 AND 8 AND s LIKE '%x%'",
            "a = 3 OR s = 'abc'",
        ),
        *("a IN (1, 2, 3) AND s NOT LIKE '%a%'", "d >= DATE '1995-01-01' AND d < DATE '1996-01-01'", "x > 1.0"),
        *("a + b > 30", "(a < 5 AND b < 5) OR (a > 15 AND b > 15)", "s = u", "x = 0.0", "a = b"),
    )
]
ON_SPARK = [*QUERIES[::5], SELECT + "lower(s) = 'xa'"]


def check(wh: parquetry.Warehouse) -> dict[str, int]:
    """Every answer is that of the plain table, on both executors and without any rule; row groups skipped by proof."""
    skipped: dict[str, int] = {}
    for sql in QUERIES:
        expected = wh.sql(sql.replace("FROM t", "FROM plain"), executor="local").rows()
        local = wh.sql(sql, executor="local")
        assert local.rows() == expected == wh.sql(sql, executor="local", off=RULES).rows(), sql
        for proof, n in local.stats["skipped_by"].items():
            skipped[proof] = skipped.get(proof, 0) + n
    for sql in ON_SPARK:
        expected = wh.sql(sql.replace("FROM t", "FROM plain"), executor="spark").rows()
        assert wh.sql(sql, executor="spark").rows() == expected, sql
    assert wh.verify() == []
    return skipped


def test_answers_are_those_of_the_plain_layout_and_features_skip(wh: parquetry.Warehouse) -> None:
    done = wh.relayout("t", "warp", options=RelayoutOptions(block_rows=60, cells=1))
    assert done.learner == "warp"
    keyed = wh.catalog.state().table("t").schema.keyed
    spec = wh.catalog.state().table("t").layout
    assert isinstance(spec, FeatureLayout)
    assert not keyed or set(spec.columns) <= {"a", "b", "k"}
    assert check(wh)["prune_features"] > 0
    drawn = wh.draw_layout("t")
    assert "share of queries" in drawn
    assert drawn.count("<rect") > len(spec.features)
    assert any("`a` < `b`" in d.decided and "by prune_features" in d.why for d in wh.explain(QUERIES[0]).decisions)
    add(wh, 2)
    assert check(wh)["prune_features"] > 0


def test_deltas_of_an_older_layout_are_skipped_by_its_features(wh: parquetry.Warehouse) -> None:
    wh.relayout("t", "warp", options=RelayoutOptions(block_rows=60, cells=1))
    before = check(wh)["prune_features"]
    table = wh.catalog.state().table("t")
    wh.catalog.commit([PublishLayout(table.table_id, None)], kind="relayout")
    after = wh.catalog.state().table("t")
    assert after.layout is None
    assert after.layouts == {table.layout_id: table.layout}
    assert check(wh)["prune_features"] == before
    add(wh, 3)
    assert check(wh)["prune_features"] >= before


def test_warp_inside_ranges_of_another_column(wh: parquetry.Warehouse) -> None:
    wh.relayout("t", "warp", options=RelayoutOptions(block_rows=60, cells=1, within="a:3"))
    assert wh.layout("t")["learner"] == "warp"
    assert check(wh)["prune_features"] > 0
