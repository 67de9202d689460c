"""A view's types without Spark are Spark's, and no JVM is asked for them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import parquetry
from parquetry.query.planning.definition import compile_definition
from parquetry.views.create import _typed_by_spark
from parquetry.views.define import read_definition
from parquetry.views.typed_here import typed_here
from tests.views.random_views import DDL, random_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGGREGATED = {"v": "max", "w": "max", "d": "sum", "f": "min"}
OTHERS = (
    "SELECT c, sum(d * 2) AS s, avg(v + w) AS a, max(f) AS m FROM {t} WHERE NOT c IS NULL GROUP BY c",
    "SELECT x.g, count(*) AS n, sum(y.d) AS d FROM {t} AS x JOIN other AS y ON x.k = y.k GROUP BY x.g",
    "SELECT day AS d, c AS `a b`, avg(d) AS v FROM {t} GROUP BY day, c",
    "SELECT CASE WHEN g > 1 THEN 'x' ELSE c END AS g, min(day) AS day, count(w) AS n FROM {t} "
    "GROUP BY CASE WHEN g > 1 THEN 'x' ELSE c END",
)


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with parquetry.connect(tmp_path_factory.mktemp("typed") / "wh") as wh:
        wh.create_table("appended", DDL, key=["k", "day"])
        wh.create_table("other", DDL, key=["k"])
        wh.create_table("upserted", DDL, key=["k", "day", "c"], model="upsert")
        wh.create_table("merged", DDL, key=["k", "day", "c", "g"], model="aggregate", values=AGGREGATED)
        yield wh


@pytest.mark.parametrize("table", ["appended", "upserted", "merged"])
def test_types_are_sparks(wh: parquetry.Warehouse, spark: SparkSession, table: str) -> None:
    rng, state, here = random.Random(table), wh.catalog.state(), 0
    texts = [random_view(rng, table) for _ in range(25)] + [t.format(t=table) for t in OTHERS]
    for sql in texts:
        definition = read_definition(sql, state)
        found = typed_here(definition, compile_definition)
        if found is not None:
            here += 1
            assert found == _typed_by_spark(lambda: spark, definition), sql
    assert here > 0.8 * len(texts)


def test_no_spark_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr("parquetry.spark.session", asked)
    with parquetry.connect(tmp_path / "wh") as wh:
        wh.create_table("t", DDL, key=["k"])
        wh.create_view("v", "SELECT c, sum(d) AS d, avg(v) AS v FROM t WHERE g > 1 GROUP BY c")
        (view,) = wh.views()
        assert view["view"] == "v"
