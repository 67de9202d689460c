"""Where a warehouse lies has no part in its answers, even where other engines read meaning into names of folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["k=5", "a*b[1]{c}?", "with space 100%", "ünï, 'quoted'"])
def test_the_name_of_a_folder_changes_no_row(name: str, spark: SparkSession, tmp_path: Path) -> None:
    with parquetry.connect(tmp_path / name / "warehouse", spark=spark) as wh:
        wh.create_table("t", "k int, v int", key=["k"], model="upsert")
        for v in (1, 2):
            wh.ingest("t", pa.table({"k": pa.array([1, v], pa.int32()), "v": pa.array([v, v], pa.int32())}), tasks=1)
        wh.maintain()
        for executor in ("local", "spark"):
            rows = wh.sql("SELECT k, v FROM t ORDER BY k", executor=executor).rows()
            assert rows == [{"k": 1, "v": 2}, {"k": 2, "v": 2}]
        assert wh.verify() == []
