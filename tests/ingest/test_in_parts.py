"""Large batches of Parquet files, read and written by the same tasks: what Spark's frames would have made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquetry
from parquetry.errors import DataError
from parquetry.ingest import in_parts
from tests.maintain.test_merge_deltas import MODELS, batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch counts as large."""
    monkeypatch.setattr(in_parts, "LEAST_BYTES", 0)
    monkeypatch.setattr(in_parts, "TASK_BYTES", 20_000)


def source(folder: Path, *, in_order: bool, bad: bool = False) -> list[str]:
    """Two files of several row groups each, with keys that come more than once."""
    rows = pa.concat_tables([batch(seed) for seed in range(3)])
    if in_order:
        rows = rows.sort_by([("d", "ascending"), ("k", "ascending")])
    if bad:
        rows = rows.set_column(
            1, "d", pa.array([None if i == 5000 else v for i, v in enumerate(rows["d"].to_pylist())])
        )
    half = rows.num_rows // 2
    paths = []
    for i, part in enumerate((rows.slice(0, half), rows.slice(half))):
        paths.append(str(folder / f"{i}.parquet"))
        pq.write_table(part, paths[-1], row_group_size=700)
    return paths


def made(folder: Path, model: str, learner: str | None) -> parquetry.Warehouse:
    wh = parquetry.connect(folder)
    settings = {"in_process_bytes": 0, "row_group_rows": 1000}
    wh.create_table("t", batch(0).schema, key=["d", "k"], settings=settings, **{"model": "append", **MODELS[model]})
    if learner:
        wh.ingest("t", batch(99))
        wh.maintain()
        wh.relayout("t", learner, workload=None, options=parquetry.RelayoutOptions(columns=("k",)))
    return wh


def content(wh: parquetry.Warehouse) -> list[str]:
    wh.maintain()
    return sorted(map(repr, wh.sql("SELECT * FROM t", executor="local").arrow().to_pylist()))


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("learner", [None, "kdtree"])
@pytest.mark.parametrize("model", MODELS)
def test_the_batch_is_the_one_that_spark_writes(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    learner: str | None,
    in_order: bool,
) -> None:
    paths, found = source(tmp_path, in_order=in_order), []
    for name, least in (("parts", 0), ("spark", 1 << 60)):
        monkeypatch.setattr(in_parts, "LEAST_BYTES", least)
        monkeypatch.setattr(in_parts, "TASK_BYTES", 20_000)
        tracker = spark.sparkContext.statusTracker()
        with made(tmp_path / name, model, learner) as wh:
            before = set(tracker.getJobIdsForGroup(None))
            taken = wh.ingest("t", paths, "one")
            jobs = set(tracker.getJobIdsForGroup(None)) - before
            if name == "parts":
                assert {len(job.stageIds) for j in jobs if (job := tracker.getJobInfo(j))} == {1}
                assert len(jobs) == (1 if in_order and model == "append" and not learner else len(jobs))
            delta = wh.catalog.state().tables["t"].deltas[-1]
            folder = wh.store.url(delta.index.path).rpartition("/")[0]
            there = {p.name for p in Path(folder.removeprefix("file://")).iterdir()}
            assert there == {f.path.rpartition("/")[2] for f in delta.files} | {"index.pqx"}
            assert wh.ingest("t", paths, "one").repeated
            label = wh.catalog.label(1, "one")
            assert label is not None
            found.append((taken.rows, label.digest, delta.rows, content(wh)))
            assert not list(wh.verify())
    assert found[0] == found[1]


@pytest.mark.usefixtures("large")
def test_a_bad_row_is_told_as_spark_tells_it_and_nothing_stays(tmp_path: Path, spark: SparkSession) -> None:
    with made(tmp_path / "wh", "append", None) as wh:
        with pytest.raises(DataError, match="null in key column 'd'"):
            wh.ingest("t", source(tmp_path, in_order=False, bad=True))
        assert wh.deltas("t") == []
        assert not list(Path(wh.folder).glob("data/*/*/*"))


@pytest.mark.usefixtures("large")
def test_values_that_need_spark_are_left_to_it(tmp_path: Path, spark: SparkSession) -> None:
    """A decimal goes into a double by Spark's rounding."""
    rows = pa.table({"k": pa.array(range(5000), pa.int64()), "x": pa.array(np.arange(5000)).cast(pa.decimal128(24, 3))})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=500)
    with parquetry.connect(tmp_path / "wh") as wh:
        wh.create_table("t", "k bigint, x double", key=["k"], settings={"in_process_bytes": 0})
        assert wh.ingest("t", tmp_path / "a.parquet").rows == 5000
        wh.maintain()
        found: Any = wh.sql("SELECT sum(x) AS x FROM t").rows()
        assert found == [{"x": 12497500.0}]
