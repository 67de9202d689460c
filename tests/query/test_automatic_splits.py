"""Scans that are large enough are cut for scan workers without being asked, within the table's settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.query.rules import cut_splits as splits
from parquetry.warehouse import Warehouse
from tests.views.without_spark import ingest, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "SELECT g, count(*) AS n, sum(v) AS v, min(k) AS k FROM t WHERE k >= 100 GROUP BY g ORDER BY g"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed warehouse, filled without a JVM."""
    made = tmp_path_factory.mktemp("splits") / "wh"
    with parquetry.connect(made) as wh:
        wh.create_table("t", "k int, g int, v bigint", key=["k"], settings={"row_group_rows": 50})
        for i in range(3):
            k = range(i, 3000, 3)
            rows = {"k": pa.array(k, pa.int32()), "g": pa.array([n % 7 for n in k], pa.int32()), "v": pa.array(k)}
            ingest(wh, "t", pa.table(rows), str(i))
        publish(wh)
    return made


@pytest.fixture
def wh(folder: Path) -> Iterator[Warehouse]:
    with parquetry.connect(folder) as opened:
        yield opened


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python workers start at once and the index is read for nothing, so that they pay for any number of bytes."""
    for cost in ("WORKER_FLOOR_S", "_ROUND_BYTES", "_NODE_BYTES"):
        monkeypatch.setattr(splits, cost, 0.0)
    monkeypatch.setattr(splits, "spark_cores", lambda: 2)


def scan_of(wh: Warehouse) -> tuple[int, str]:
    """The number of splits (0: none), and why."""
    plan = wh.explain(QUERY, executor="spark").plan
    (told,) = [d for d in plan.decisions if d.rule == "scan_workers"]
    return len(plan.scan.tasks) if plan.scan is not None else 0, f"{told.decided}; {told.why}"


def test_few_bytes_are_left_to_sparks_own_reader(wh: Warehouse) -> None:
    cut, why = scan_of(wh)
    assert cut == 0
    assert "too few to pay for Python workers" in why


def test_there_is_a_split_for_each_core(wh: Warehouse, worth_it: None) -> None:
    wh.change_settings("t", min_split_bytes=1)
    cut, why = scan_of(wh)
    assert cut == 2, why
    assert "for 2 cores" in why


def test_no_split_is_larger_than_the_settings_say(wh: Warehouse, worth_it: None) -> None:
    size = wh.explain(QUERY, executor="spark").plan.bytes_estimate
    wh.change_settings("t", min_split_bytes=1, max_split_bytes=size // 5)
    cut, why = scan_of(wh)
    assert 5 <= cut <= 6, why


def test_no_split_is_smaller_than_the_settings_say(wh: Warehouse, worth_it: None) -> None:
    wh.change_settings("t", min_split_bytes=1 << 30)
    cut, why = scan_of(wh)
    assert cut == 1, why


def test_answers_are_those_of_the_local_executor(folder: Path, spark: SparkSession, worth_it: None) -> None:
    with parquetry.connect(folder, spark=spark) as wh:
        wh.change_settings("t", min_split_bytes=1, max_split_bytes=4_000)
        result = wh.sql(QUERY, executor="spark")
        assert result.rows() == wh.sql(QUERY, executor="local").rows()
        assert result.stats["splits"] == len(result.plan.scan.tasks) > 1  # type: ignore[union-attr]
