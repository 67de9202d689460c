"""Where a warehouse lies has no part in its answers, even where other engines read meaning into names of folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry import RelayoutOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["k=5", "a*b[1]{c}?", "what?", "100%41 #", "ünï, 'quoted' \"too\" back\\slash"])
def test_the_name_of_a_folder_changes_no_row(name: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / name / "warehouse"
    csv = tmp_path / name / f"{name}.csv"
    with parquetry.connect(folder, spark=spark) as wh:
        wh.create_table("t", "k int, v int", key=["k"], model="upsert", settings={"max_query_deltas": 2})
        for v in (1, 2):
            wh.ingest("t", pa.table({"k": pa.array([1, v], pa.int32()), "v": pa.array([v, v], pa.int32())}), tasks=1)
        csv.write_text("k,v\n3,3\n")
        wh.ingest("t", str(csv), tasks=1)
        wh.create_view("by_v", "SELECT v, count(*) AS n FROM t GROUP BY v")
        wh.maintain()
    with parquetry.connect(folder, spark=spark) as wh:
        for executor, splits in (("local", None), ("spark", None), ("spark", 2)):
            rows = wh.sql("SELECT k, v FROM t ORDER BY k", executor=executor, splits=splits).rows()
            assert rows == [{"k": 1, "v": 2}, {"k": 2, "v": 2}, {"k": 3, "v": 3}]
            grouped = wh.sql("SELECT v, count(*) AS n FROM t GROUP BY v ORDER BY v", executor=executor, splits=splits)
            assert grouped.rows() == [{"v": 2, "n": 2}, {"v": 3, "n": 1}]
        relaid = wh.relayout("t", "kdtree", options=RelayoutOptions(block_rows=1, columns=["k"]))
        assert relaid.rows == 3
        assert wh.sql("SELECT v FROM t WHERE k = 3").rows() == [{"v": 3}]
        assert wh.verify() == []
    with parquetry.connect(folder, spark=spark) as wh:
        assert wh.vacuum(grace_s=0).deltas > 0
        assert wh.verify() == []
        assert wh.sql("SELECT count(*) AS n FROM t", executor="spark").rows() == [{"n": 3}]
    assert {p.name for p in tmp_path.iterdir()} == {name}
