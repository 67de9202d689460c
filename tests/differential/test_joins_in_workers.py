"""Joins that are dealt to workers on Spark answer as plain Spark over the raw files, whichever way they are dealt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import sqlglot
from pyspark.errors import PySparkException

from parquetry.query.compile.plain_select import Refusal
from parquetry.warehouse import Warehouse
from tests.differential.golden import QUERIES
from tests.differential.reference import differences
from tests.query.compile.random_queries import Generator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = ("co_range_join", "hyper_join", "broadcast_join", "one_worker")
TPCH = [n for n in QUERIES if n.startswith("tpch ")]
RANDOM, FIRST_SEED = 16, 1000
_TAKEN: dict[str, set[str]] = {}


def answers(wh: Warehouse, sql: str, way: str) -> pa.Table | None:
    """The rows by this way alone; None where it cannot be taken, which is told."""
    result = wh.sql(sql, splits=3, off=[w for w in WAYS if w != way])
    if result.plan.join is None:
        assert result.plan.scan is not None or any(d.rule == way and d.why for d in result.plan.decisions)
        return None
    assert result.plan.join.way == way
    return result.arrow()


@pytest.mark.parametrize("name", TPCH)
def test_tpch_in_workers(name: str, uncompacted: Warehouse, reference: SparkSession) -> None:
    sql = QUERIES[name]
    expected = reference.sql(sql).toArrow()
    ordered = sqlglot.parse_one(sql, dialect="spark").args.get("order") is not None
    _TAKEN[name] = set()
    for way in WAYS:
        found = answers(uncompacted, sql, way)
        if found is not None:
            _TAKEN[name].add(way)
            told = differences(found, expected, ordered=ordered)
            assert not told, f"{way}: " + "; ".join(told[:5])


def test_most_of_tpch_can_be_dealt_out() -> None:
    if len(_TAKEN) == len(TPCH):
        counts = {way: sum(way in taken for taken in _TAKEN.values()) for way in WAYS}
        assert counts["one_worker"] >= 20
        assert counts["co_range_join"] >= 10
        assert counts["hyper_join"] >= 12


def test_random_joins_in_workers(join_seed: int, uncompacted: Warehouse, reference: SparkSession) -> None:
    sql = Generator(join_seed).query()
    if isinstance(uncompacted.explain(sql).plan.bound.local, Refusal):
        pytest.skip("Spark's alone")
    try:
        expected = reference.sql(sql).toArrow()
    except PySparkException as e:  # an overflow, say: then there is no answer to compare with
        pytest.skip(str(e).splitlines()[0])
    for way in WAYS[join_seed % 2 : 3 + join_seed % 2]:
        found = answers(uncompacted, sql, way)
        if found is not None:
            told = differences(found, expected, ordered=False)
            assert not told, f"{sql}\n{way}: " + "; ".join(told[:5])
