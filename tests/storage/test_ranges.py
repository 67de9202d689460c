"""Rows dealt to tasks by ranges of the key: none lost, ranges apart, equal keys together."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from parquetry.storage import ranges

ROWS = 600
RNG = np.random.default_rng(3)
N = RNG.integers(0, 60, ROWS).tolist()
KEYS: dict[str, pa.Array] = {
    "whole": pa.array(N, pa.int64()),
    "text": pa.array([f"ключ {n} 🂡" for n in N]),
    "bytes": pa.array([bytes([n, 0, 255]) for n in N]),
    "decimal": pa.array([Decimal(n - 30).scaleb(-2) for n in N], pa.decimal128(12, 2)),
    "float": pa.array([float("nan") if n > 55 else n - 30.5 for n in N]),
    "date": pa.array([date(2020, 1, 1) + timedelta(n) for n in N]),
    "time": pa.array([datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in N], pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_sample_deals_every_row_to_one_range(kind: str, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_SHARE", 1.0)
    table = pa.table({"k": KEYS[kind], "k2": pa.array(RNG.integers(0, 5, ROWS), pa.int32()), "v": range(ROWS)})
    dealt = ranges.partition_by_range(spark.createDataFrame(table), 4, ["`k`", "`k2`"])
    assert "RangePartitioning" not in dealt._jdf.queryExecution().toString().split("== Physical Plan ==")[-1]
    rows = dealt.selectExpr("spark_partition_id() AS p", "k", "k2", "v").orderBy("k", "k2", "p", "v").collect()
    assert sorted(r["v"] for r in rows) == list(range(ROWS))
    tasks = [r["p"] for r in rows]
    assert len(set(tasks)) == 4
    # In the order of the key each task's rows stand together: its range meets no other's.
    assert sum(a != b for a, b in zip(tasks, tasks[1:], strict=False)) == 3
    by_key: dict[Any, set[int]] = {}
    for r in rows:
        by_key.setdefault((str(r["k"]), r["k2"]), set()).add(r["p"])
    assert all(len(where) == 1 for where in by_key.values())
