"""What a query read is compared with the least possible: rows with rows, bytes with bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import parquetry
from parquetry.query.explain import Explanation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def explained(rows_scanned: int, bytes_read: int, matching: int) -> list[str]:
    settings = SimpleNamespace(row_group_rows=100)
    state = SimpleNamespace(layout=None, settings=settings)
    # 1,000 kept rows of 40 bytes, of which the query reads a quarter of the columns' bytes.
    table = SimpleNamespace(
        state=state, deltas=[SimpleNamespace(rows=5000)], bytes=40_000, rows=1000, column_share=0.25
    )
    plan: Any = SimpleNamespace(decisions=(), tables={"t": table})
    stats = {"rows_scanned": rows_scanned, "bytes_read": bytes_read, "elapsed_ms": 1.0}
    return [f"{d.decided} ({d.why})" for d in Explanation(plan, stats, matching)._compared()]


def test_both_ratios_are_told_and_each_is_of_one_unit() -> None:
    ran, bound = explained(rows_scanned=656, bytes_read=27_000, matching=7)
    assert "6.56 x the rows of the bound, 27.00 x its bytes" in ran
    assert "100 rows, about 1,000 bytes" in bound


def test_more_matching_rows_than_a_block_are_the_bound() -> None:
    ran, _ = explained(rows_scanned=400, bytes_read=4000, matching=200)
    assert "2.00 x the rows of the bound, 2.00 x its bytes" in ran


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[parquetry.Warehouse]:
    with parquetry.connect(tmp_path / "w", spark=spark) as opened:
        opened.create_table("t", "k bigint not null, a bigint, s array<bigint>", ["k"])
        opened.ingest("t", pa.table({"k": range(100), "a": [k % 10 for k in range(100)], "s": [[1, 2]] * 100}))
        opened.maintain()
        yield opened


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("TABLE t", 100),
        (f"SELECT k FROM t WHERE {'(' * 60}a = 1{')' * 60}", 10),
        ("SELECT k FROM t |> WHERE k > 94", 5),
        ("SELECT k FROM t TABLESAMPLE (7 ROWS) WHERE a < 10", 7),
        (r"SELECT k FROM t WHERE a = 1 AND '\t' <> ''", 10),
        ("SELECT k, x FROM t LATERAL VIEW explode(s) e AS x WHERE x = 2 AND a = 1", 10),
    ],
)
def test_a_text_that_is_not_bound_whole_runs_and_has_no_lower_bound(
    wh: parquetry.Warehouse, sql: str, rows: int
) -> None:
    told = wh.explain(sql, analyze=True)
    assert told.stats is not None
    assert told.stats["rows_out"] == rows
    assert told.matching is None
    assert {d.rule for d in told.decisions} & {"ran", "lower bound"} == {"ran"}


def test_the_matching_rows_are_counted_beside_the_users_queries(wh: parquetry.Warehouse) -> None:
    sql = "SELECT k FROM t WHERE a = 1 LIMIT 2"
    assert wh.explain(sql, analyze=True).matching == 10
    assert [q["sql"] for q in wh.queries()] == [sql]


def test_every_step_is_there_as_data(wh: parquetry.Warehouse) -> None:
    told = wh.explain("SELECT k FROM t WHERE a = 1", executor="local", analyze=True).to_json()
    assert (told["view"], told["picks"], told["holds"]) == (None, True, True)
    steps = {s["rule"]: s for s in told["steps"]}
    assert steps["pick_row_groups"]["figures"] == {"row_groups": 1, "of": 1}
    assert steps["hold_rows"]["figures"] == {"rows": 100, "pieces": 1}
    read = {"row_groups": 1, "of": 1, "files": 1, "of_files": 1, "rows": 100, "rows_read": 100}
    assert steps["read"]["figures"] == {**read, "whole": 0, "by_row_numbers": 0, "picked": 1}
    bound, ran = steps["lower bound"]["figures"], steps["ran"]["figures"]
    assert (bound["matching"], bound["rows"]) == (10, 100)
    assert ran["times_rows"] == 1.0
    assert ran["times_bytes"] == ran["bytes_read"] / bound["bytes"] > 0
    off = wh.explain("SELECT k FROM t", executor="local", off=["hold_rows", "pick_row_groups"]).to_json()
    assert (off["picks"], off["holds"]) == (False, False)


def test_the_workers_of_a_join_are_told_under_its_rule(wh: parquetry.Warehouse) -> None:
    told = wh.explain("SELECT count(*) AS n FROM t JOIN t AS u ON t.k = u.k", splits=2, analyze=True)
    assert told.plan.join is not None
    (shared,) = [d for d in told.decisions if "skew of rows" in d.why]
    assert shared.rule == "join_workers"
    assert shared.figures["wanted"] >= shared.figures["workers"] > 0


def test_what_merging_compares_is_read_too(wh: parquetry.Warehouse) -> None:
    wh.create_table("u", "k int, v int, at int, w int, x int", ["k"], model="upsert", sequence="at")
    for at in (1, 2):
        wh.ingest("u", pa.table({n: pa.array([at], pa.int32()) for n in ("k", "v", "at", "w", "x")}))
    wh.maintain()
    (t,) = wh.explain("SELECT v FROM u").plan.tables.values()
    assert t.merge
    assert t.column_share == 3 / 5
