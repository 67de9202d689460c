"""The local executor reads the kept row groups and nothing else where that pays, and says what it read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.query.local import reader as local_source
from parquetry.query.rules.hold_rows import HOLD_ROWS
from parquetry.query.rules.pick_row_groups import PICK_ROW_GROUPS

ROWS = 20_000
HOT = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE a BETWEEN 400 AND 430 AND b BETWEEN 400 AND 430"
COLD = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE a BETWEEN 100 AND 101"


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Any:
    rng = np.random.default_rng(5)
    table = pa.table({c: pa.array(rng.integers(0, 1000, ROWS), pa.int64()) for c in ("a", "b", "v")})
    root: Path = tmp_path_factory.mktemp("picked")
    with parquetry.connect(root / "wh", spark=spark) as wh:
        small = {"block_group_rows": 50, "row_group_rows": 5000}
        wh.create_table("t", table.schema, key=["a", "b", "v"], model="append", settings=small)
        wh.ingest("t", table, tasks=1)
        wh.maintain()
        (root / "log.sql").write_text(f"{HOT};\n{COLD};\n")
        how = RelayoutOptions(block_rows=100, delta=0.0)
        wh.relayout("t", "paw", workload=root / "log.sql", options=how)
        yield wh


def test_a_file_holds_a_bounded_number_of_row_groups(wh: parquetry.Warehouse) -> None:
    (delta,) = wh.catalog.state().table("t").deltas
    counts = [pq.read_metadata(wh.store.url(f.path)).num_row_groups for f in delta.files]
    assert sum(counts) > 128
    assert max(counts) <= 128


@pytest.mark.parametrize("sql", [HOT, COLD])
def test_what_was_read_is_what_the_plan_keeps(wh: parquetry.Warehouse, sql: str) -> None:
    picked, whole = wh.sql(sql, executor="local"), wh.sql(sql, executor="local", off=[PICK_ROW_GROUPS.name])
    assert picked.rows() == whole.rows()
    (kept,) = picked.plan.tables.values()
    assert picked.stats["rows_scanned"] == kept.rows < ROWS // 4
    assert picked.stats["blocks_read"] == kept.groups_read
    chunks = 0
    assert kept.kept is not None
    for path, groups in kept.kept.row_groups().items():
        footer = pq.read_metadata(wh.store.url(path))
        assert footer.row_group(0).num_columns == 4  # the last are the numbers of row groups
        chunks += sum(footer.row_group(g).column(c).total_compressed_size for g in groups for c in range(3))
    assert 0 < picked.stats["bytes_read"] <= chunks
    assert picked.stats["bytes_read"] <= whole.stats["bytes_read"]


def test_where_streaming_costs_too_much_duckdb_is_told_the_rows(
    wh: parquetry.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    corner = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE a BETWEEN 425 AND 460 AND b BETWEEN 425 AND 460"
    for sql in (HOT, COLD, corner):
        by_statistics = wh.sql(sql, executor="local", off=[PICK_ROW_GROUPS.name])
        expected = by_statistics.rows()
        with monkeypatch.context() as costs:
            costs.setattr(local_source, "_PICKED_MS", 1e9)
            costs.setattr(local_source, "_DUCKDB_GAP", 0)
            told = wh.sql(sql, executor="local")
            assert told.rows() == expected
        (kept,) = told.plan.tables.values()
        assert kept.kept is not None
        assert sum(b - a for ranges in kept.kept.row_ranges().values() for a, b in ranges) == kept.rows
        assert told.stats["blocks_read"] == kept.groups_read <= by_statistics.stats["blocks_read"]
        assert told.stats["rows_scanned"] == kept.rows


def test_a_lost_file_is_named(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    (kept,) = wh.sql(HOT, executor="local").plan.tables.values()
    assert kept.kept is not None
    path = Path(wh.store.url(next(iter(kept.kept.row_groups()))))
    path.rename(tmp_path / "away")
    try:
        with pytest.raises(parquetry.ParquetryError, match=path.name):  # a copy in memory would answer without it
            wh.sql(HOT, executor="local", off=[HOLD_ROWS.name]).rows()
    finally:
        (tmp_path / "away").rename(path)


def test_spark_counts_the_bytes_that_it_reads(wh: parquetry.Warehouse) -> None:
    (delta,) = wh.catalog.state().table("t").deltas
    footers = [pq.read_metadata(wh.store.url(f.path)) for f in delta.files]
    chunks = sum(f.row_group(g).column(2).total_compressed_size for f in footers for g in range(f.num_row_groups))
    assert wh.sql("SELECT max(v) AS v FROM t", executor="spark").stats["bytes_read"] >= chunks
