"""Compaction in parts: on Spark, of runs in one order, without an exchange, and equal to one in the process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry.layouts.write_rows import fits_here
from parquetry.maintain import merge_deltas
from parquetry.storage.index_reader import open_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODELS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"model": "upsert"},
    "aggregate": {"model": "aggregate", "values": {"n": "sum", "s": "replace", "f": "max"}},
}


def batch(seed: int, rows: int = 3000) -> pa.Table:
    rng = np.random.default_rng(seed)
    k = rng.permutation(20_000)[:rows] if seed % 2 else rng.integers(0, 20_000, rows)
    _, first = np.unique(k, return_index=True)
    k = k[np.sort(first)]
    floats = rng.normal(size=len(k))
    floats[::97] = np.nan
    return pa.table(
        {
            "k": pa.array(k, pa.int64()),
            "d": pa.array([f"é{v % 7}\x00" for v in k.tolist()]),
            "n": pa.array(rng.integers(-5, 5, len(k)), pa.int64()),
            "s": pa.array([None if v % 5 == 0 else f"s{v}" for v in k.tolist()]),
            "f": pa.array(floats),
        }
    )


def made(folder: Path, model: str, executor: str, learner: str | None) -> parquetry.Warehouse:
    wh = parquetry.connect(folder)
    settings = {"in_process_bytes": 0 if executor == "spark" else 1 << 30, "row_group_rows": 1000}
    wh.create_table("t", batch(0).schema, key=["d", "k"], settings=settings, **{"model": "append", **MODELS[model]})
    if learner:
        wh.ingest("t", batch(99))
        wh.maintain()
        wh.relayout("t", learner, workload=None, options=parquetry.RelayoutOptions(columns=("k",)))
    for seed in range(4):
        wh.ingest("t", batch(seed))
    return wh


@pytest.mark.parametrize("learner", [None, "kdtree"])
@pytest.mark.parametrize("model", MODELS)
def test_runs_merged_on_spark_are_the_delta_that_the_process_makes(
    tmp_path: Path, spark: SparkSession, model: str, learner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_deltas, "rewriting_tasks", lambda *_: 3)
    found = {}
    for executor in ("process", "spark"):
        with made(tmp_path / executor, model, executor, learner) as wh:
            table = wh.catalog.state().tables["t"]
            assert fits_here(table, table.deltas) == (executor == "process")
            tracker = spark.sparkContext.statusTracker()
            before = set(tracker.getJobIdsForGroup(None))
            wh.maintain()
            if executor == "spark":
                jobs = set(tracker.getJobIdsForGroup(None)) - before
                stages = [len(i.stageIds) for j in jobs if (i := tracker.getJobInfo(j))]
                assert stages, "it ran on Spark"
                assert set(stages) == {1}, "an exchange would be a stage of its own"
            (delta,) = wh.catalog.state().tables["t"].deltas
            groups = open_index(wh.store, delta.index).row_groups().batch
            rows = sorted(map(repr, wh.sql("SELECT * FROM t", executor="local").arrow().to_pylist()))
            found[executor] = (rows, groups["start"][0].as_py(), groups["end"][-1].as_py(), delta.rows)
            assert not list(wh.verify())
    assert found["process"] == found["spark"]
