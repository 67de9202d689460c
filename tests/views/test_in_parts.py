"""Refreshes of views that share leading key columns with their table: parts of its runs, each read by one task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry.views import refresh
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = {
    "full": ("SELECT a, b, count(*) AS n, sum(v) AS v, max(s) AS s FROM t GROUP BY a, b", 1),
    "part": ("SELECT a, c, count(v) AS n, avg(v) AS v FROM t WHERE v > -8 GROUP BY a, c", 2),
    "computed": ("SELECT a, c % 3 AS m, min(v + 1) AS v FROM t GROUP BY a, c % 3", 2),
    "none": ("SELECT c, count(*) AS n FROM t GROUP BY c", 3),
    "stops": ("SELECT a, upper(s) AS u, count(*) AS n FROM t GROUP BY a, upper(s)", 2),
}


def rows(seed: int, count: int = 20_000) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "a": pa.array(rng.integers(0, 50, count), pa.int32()),
            "b": pa.array(np.array(["x", "y\x00", "é"])[rng.integers(0, 3, count)]),
            "c": pa.array(rng.integers(0, 9, count), pa.int32()),
            "v": pa.array(rng.integers(-9, 9, count), pa.int64(), mask=rng.random(count) < 0.1),
            "s": pa.array(np.array(["ab", "ß", "q"])[rng.integers(0, 3, count)]),
        }
    )


@pytest.fixture
def wh(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    monkeypatch.setattr(refresh, "_TASK_BYTES", 20_000)
    monkeypatch.setattr(refresh, "AT_ONCE_ROWS", 0)
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        small = {"row_group_rows": 500, "file_bytes": 30_000, "compaction_width": 1000}
        wh.create_table("t", rows(0).schema, key=["a", "b", "c"], settings=small)
        wh.ingest("t", rows(1))
        yield wh


@pytest.mark.parametrize("name", VIEWS)
def test_a_refresh_in_parts_makes_the_groups_that_the_table_has(wh: Warehouse, spark: SparkSession, name: str) -> None:
    definition, number = VIEWS[name]
    wh.create_view(name, definition, settings={"in_process_bytes": 0})
    tracker = spark.sparkContext.statusTracker()
    for seed in (2, 3):
        before = set(tracker.getJobIdsForGroup(None))
        wh.maintain()
        jobs = set(tracker.getJobIdsForGroup(None)) - before
        stages = [job.stageIds for j in jobs if (job := tracker.getJobInfo(j))]
        if number < 3 and name != "stops":
            assert [len(s) for s in stages] == [1], "an exchange would be a stage of its own"
            (stage,) = stages[0]
            info: Any = tracker.getStageInfo(stage)
            assert info.numTasks > 2
        made = wh.sql(definition, executor="local")
        assert made.stats["view"] == name
        executor = "spark" if name == "stops" else "local"
        assert key(made) == key(wh.sql(definition, executor=executor, off=["views"]))
        wh.ingest("t", rows(seed, 15_000))
    assert not list(wh.verify())


def key(result: Any) -> list[str]:
    return sorted(map(repr, result.arrow().to_pylist()))
