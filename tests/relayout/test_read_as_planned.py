"""The local executor reads the rows and bytes that the plan keeps, of every type; what reads more says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.query.local import reader as local_source
from parquetry.query.local.reader import BEYOND_PLAN
from parquetry.query.rules.hold_rows import HOLD_ROWS
from parquetry.query.rules.pick_row_groups import PICK_ROW_GROUPS
from parquetry.storage import data_files

ROWS = 60_000
WINDOWS = [(a, b, w) for w in (8.0, 25.0, 55.0) for a in (-40.0, 5.0, 35.0) for b in (-30.0, 10.0)]
COLUMNS = ["lat", "lon", "id", "s", "d", "ts"]


def window(a: float, b: float, w: float, value: str) -> str:
    return (
        f"SELECT count(*) AS n, max({value}) AS v FROM p "
        f"WHERE lat BETWEEN {a - w} AND {a + w} AND lon BETWEEN {b - w} AND {b + w}"
    )


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[parquetry.Warehouse]:
    rng = np.random.default_rng(5)
    ids = pa.array(rng.permutation(ROWS), pa.int64())
    points = pa.table(
        {
            "id": ids,
            "lat": rng.normal(0, 30, ROWS),
            "lon": rng.normal(0, 30, ROWS),
            "s": pa.array([f"name {i}" for i in rng.integers(0, ROWS, ROWS)]),
            "d": ids.cast(pa.decimal128(22, 2)),
            "ts": ids.cast(pa.timestamp("us", "UTC")),
        }
    )
    root: Path = tmp_path_factory.mktemp("planned")
    with parquetry.connect(root / "wh", spark=spark) as wh:
        small = {"block_group_rows": 100, "row_group_rows": 5000}
        wh.create_table("p", points.schema, key=["id"], model="append", settings=small)
        wh.ingest("p", points, tasks=1)
        wh.maintain()
        (root / "log.sql").write_text(";\n".join(window(*w, "id") for w in WINDOWS))
        wh.relayout("p", "paw", workload=root / "log.sql", options=RelayoutOptions(block_rows=200))
        yield wh


def planned_bytes(wh: parquetry.Warehouse, kept: Any, columns: set[str]) -> int:
    found = 0
    for path, groups in kept.kept.row_groups().items():
        footer = pq.read_metadata(wh.store.url(path))
        chunks = (footer.row_group(g).column(i) for g in groups for i in range(footer.num_columns))
        found += sum(c.total_compressed_size for c in chunks if c.path_in_schema in columns)
    return found


@pytest.mark.parametrize("way", ["automatic", "numbered", "picked"])
@pytest.mark.parametrize("value", COLUMNS)
def test_no_more_is_read_than_is_kept(
    wh: parquetry.Warehouse, monkeypatch: pytest.MonkeyPatch, way: str, value: str
) -> None:
    if way != "automatic":
        monkeypatch.setattr(local_source, "_PICKED_MS", 1e9 if way == "numbered" else -1e9)
    if way == "numbered":
        monkeypatch.setattr(local_source, "_DUCKDB_GAP", 0)
    files, whole = [HOLD_ROWS.name], [HOLD_ROWS.name, PICK_ROW_GROUPS.name]
    wh.sql(f"SELECT count({value}) AS n FROM p", executor="local", off=whole).rows()  # reads footers
    some, most = 0, 0
    for w in WINDOWS:
        found = wh.sql(window(*w, value), executor="local", off=files)
        assert found.rows() == wh.sql(window(*w, value), executor="local", off=whole).rows()
        (kept,) = found.plan.tables.values()
        assert kept.rows <= found.stats["rows_scanned"] <= kept.rows * (1 + BEYOND_PLAN)
        if way != "numbered":  # these row groups are so small that DuckDB would read what lies between their chunks
            assert found.stats["bytes_read"] <= planned_bytes(wh, kept, {"lat", "lon", value}) * (1 + BEYOND_PLAN)
        assert "beyond_plan" not in found.stats
        some, most = some + (kept.rows < ROWS / 4), most + (kept.rows > ROWS / 2)
    assert some
    assert most


def test_workers_read_no_more_than_is_kept(wh: parquetry.Warehouse) -> None:
    found = wh.sql(window(*WINDOWS[0], "id"), executor="spark", splits=2)
    assert found.rows() == wh.sql(window(*WINDOWS[0], "id"), executor="local").rows()
    assert found.plan.scan is not None
    (kept,) = found.plan.tables.values()
    assert kept.rows <= found.stats["rows_scanned"] <= kept.rows * (1 + BEYOND_PLAN)
    assert "beyond_plan" not in found.stats


def test_explain_tells_what_is_read_of_the_files(wh: parquetry.Warehouse) -> None:
    sql = window(*WINDOWS[0], "id")

    def told(**how: Any) -> str:
        (step,) = [d for d in wh.explain(sql, **how).decisions if d.rule == "read"]
        return f"{step.decided} ({step.why})"

    assert "1.00 x the plan's" in told(executor="local")
    assert "picked" in told(executor="local")
    (kept,) = wh.sql(sql, executor="local").plan.tables.values()
    assert kept.kept is not None
    beyond = kept.kept.rows_in_files / kept.rows
    assert beyond > 2
    assert "1.00 x the plan's" in told(executor="spark")
    assert f"{beyond:.2f} x the plan's" in told(executor="spark", off=[PICK_ROW_GROUPS.name])
    assert f"{beyond:.2f} x the plan's" in told(executor="local", off=[PICK_ROW_GROUPS.name])
    assert "row groups in" in told(executor="spark", splits=2)


@pytest.mark.parametrize("value", COLUMNS)
def test_spark_reads_no_more_rows_than_are_kept(wh: parquetry.Warehouse, value: str) -> None:
    for w in WINDOWS[::3]:
        found = wh.sql(window(*w, value), executor="spark")
        assert found.rows() == wh.sql(window(*w, value), executor="local", off=[HOLD_ROWS.name]).rows()
        (kept,) = found.plan.tables.values()
        assert kept.kept is not None
        if kept.rows <= 0.95 * kept.kept.rows_in_files:
            assert found.stats["rows_scanned"] == kept.rows
        assert "beyond_plan" not in found.stats


def test_spark_reads_files_without_numbers_of_row_groups_whole(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier version; beside files that have them."""
    rows = pa.table({"k": pa.array(range(3000), pa.int64()), "x": np.arange(3000.0)})
    settings = {"row_group_rows": 100, "compaction_width": 1000}
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", rows.schema, key=["k"], settings=settings)
        with monkeypatch.context() as earlier:
            earlier.setattr(data_files, "ROW_GROUP", "__before")
            wh.ingest("t", rows)
        wh.ingest("t", rows)
        wh.maintain()
        sql = "SELECT count(*) AS n FROM t WHERE x BETWEEN 500 AND 650 OR x = 2999"
        found = wh.sql(sql, executor="spark")
        assert found.rows()[0]["n"] == wh.sql(sql, executor="local").rows()[0]["n"] == 304
        assert 3000 < found.stats["rows_scanned"] < 6000
        assert found.stats["beyond_plan"] > 1


@pytest.mark.parametrize("executor", ["local", "spark"])
def test_statistics_tell_when_more_was_read(wh: parquetry.Warehouse, executor: str) -> None:
    found = wh.sql(window(*WINDOWS[0], "id"), executor=executor, off=[PICK_ROW_GROUPS.name])
    (kept,) = found.plan.tables.values()
    assert found.stats["beyond_plan"] == pytest.approx(found.stats["rows_scanned"] / kept.rows, abs=0.01)
    assert found.stats["beyond_plan"] > 1 + BEYOND_PLAN
