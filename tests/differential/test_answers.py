"""Every query gives the same rows on both executors, whatever rules are on, before and after compaction, and as plain
Spark over the raw files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlglot

from parquetry.query.compile.plain_select import LocalPlan, Refusal
from parquetry.query.result import Result
from parquetry.query.rules import RULE_NAMES as RULES
from parquetry.warehouse import Warehouse
from tests.differential.golden import QUERIES
from tests.differential.reference import differences
from tests.query.compile.random_queries import Generator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATS = {
    "executor",
    "qt",
    "view",
    "replica",
    "deltas",
    "blocks_total",
    "blocks_read",
    "skipped_by",
    "files_read",
    "rows_scanned",
    "rows_out",
    "bytes_read",
    "splits",
    "elapsed_ms",
    "plan_ms",
}
RANDOM, FIRST_SEED = 60, 0  # queries with joins, subqueries, windows and sets
WHOLLY_READ = list(QUERIES)[::3]
_EXPECTED: dict[str, pa.Table] = {}


def test_there_are_enough_queries() -> None:
    assert len(QUERIES) >= 60
    assert sum(n.startswith("tpch ") for n in QUERIES) == 22


@pytest.mark.parametrize("name", QUERIES)
def test_uncompacted_deltas_answer_as_plain_spark(name: str, uncompacted: Warehouse, reference: SparkSession) -> None:
    expected = _expected(name, reference)
    _check_locally(name, uncompacted, expected)
    _check(name, uncompacted, expected, executor="spark", off=())


@pytest.mark.parametrize("name", QUERIES)
def test_compacted_deltas_answer_as_plain_spark(name: str, compacted: Warehouse, reference: SparkSession) -> None:
    expected = _expected(name, reference)
    _check_locally(name, compacted, expected, one_by_one=False)
    # With rules on, the files of a single delta give Spark the same plan as above; without them it reads all.
    if name in WHOLLY_READ:
        _check(name, compacted, expected, executor="spark", off=RULES)


@pytest.mark.parametrize("name", [n for n in QUERIES if "aggregate" in n or "upsert" in n or "NaN" in n])
def test_spark_without_rules_answers_over_uncompacted_deltas_too(
    name: str, uncompacted: Warehouse, reference: SparkSession
) -> None:
    _check(name, uncompacted, _expected(name, reference), executor="spark", off=RULES)


def test_most_queries_run_locally(uncompacted: Warehouse) -> None:
    """Otherwise the comparisons above would say little about the local executor."""
    plans = {n: uncompacted.explain(sql).plan.bound.local for n, sql in QUERIES.items()}
    refused = {n: p.reason for n, p in plans.items() if isinstance(p, Refusal)}
    assert len(plans) - len(refused) >= 80, refused
    assert not [n for n in refused if n.startswith("tpch ")], refused


def test_most_random_joins_run_locally(uncompacted: Warehouse) -> None:
    plans = [uncompacted.explain(Generator(seed).query()).plan.bound.local for seed in range(RANDOM)]
    refused = [p.reason for p in plans if isinstance(p, Refusal)]
    assert len(refused) <= RANDOM // 4, refused


def test_random_joins_answer_as_plain_spark(join_seed: int, uncompacted: Warehouse, reference: SparkSession) -> None:
    sql = Generator(join_seed).query()
    local = uncompacted.explain(sql).plan.bound.local
    if isinstance(local, Refusal):
        pytest.skip(local.reason)
    from pyspark.errors import PySparkException

    try:
        expected = reference.sql(sql).toArrow()
    except PySparkException as e:  # an overflow, say: then there is no answer to compare with
        pytest.skip(str(e).splitlines()[0])
    for off in ((), RULES):
        found = differences(uncompacted.sql(sql, executor="local", off=off).arrow(), expected, ordered=False)
        assert not found, f"{sql}\n{off=}: " + "; ".join(found[:5])


def _expected(name: str, reference: SparkSession) -> pa.Table:
    if name not in _EXPECTED:
        _EXPECTED[name] = reference.sql(QUERIES[name]).toArrow()
    return _EXPECTED[name]


def _check_locally(name: str, wh: Warehouse, expected: pa.Table, *, one_by_one: bool = True) -> None:
    local = wh.explain(QUERIES[name]).plan.bound.local
    if not isinstance(local, Refusal):
        each = [(rule,) for rule in RULES] if one_by_one and isinstance(local, LocalPlan) else []
        for off in ((), RULES, *each):
            _check(name, wh, expected, executor="local", off=off)


def _check(name: str, wh: Warehouse, expected: pa.Table, *, executor: str, off: tuple[str, ...]) -> None:
    sql = QUERIES[name]
    result = wh.sql(sql, executor=executor, off=off)
    ordered = sqlglot.parse_one(sql, dialect="spark").args.get("order") is not None
    found = differences(result.arrow(), expected, ordered=ordered)
    assert not found, f"{executor}, {off=}: " + "; ".join(found[:5])
    _check_stats(result, executor)


def _check_stats(result: Result, executor: str) -> None:
    stats: dict[str, Any] = result.stats
    assert set(stats) - {"beyond_plan", "scan"} == STATS  # these only where there is something to tell
    assert stats["executor"] == executor
    assert stats["rows_out"] == result.arrow().num_rows
    assert stats["blocks_total"] >= stats["blocks_read"] >= 0
    assert stats["blocks_total"] - sum(stats["skipped_by"].values()) == sum(
        t.groups_read for t in result.plan.tables.values()
    )
    plain = not isinstance(result.plan.bound.local, LocalPlan) or not result.plan.bound.local.aggregated
    if stats["rows_out"] and plain:
        assert stats["rows_scanned"] > 0
        assert stats["bytes_read"] > 0
