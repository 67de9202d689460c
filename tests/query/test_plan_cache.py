"""Plans are remembered: as long as what they read is the same, and without holding a version."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow as pa
import pytest

import parquetry
from parquetry.query import engine
from parquetry.query.engine import Engine
from parquetry.query.memory import plan_cache as planned
from parquetry.query.planning.bind import bind
from parquetry.query.planning.rule import apply_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from parquetry.warehouse import Warehouse

QUERY = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE k >= 2"


@pytest.fixture
def wh(tmp_path: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with parquetry.connect(tmp_path / "warehouse", spark=spark) as opened:
        opened.create_table("t", "k int, v bigint", key=["k"])
        _add(opened, [1, 2, 3])
        yield opened


def _rows(keys: list[int]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys, pa.int64())})


def _add(wh: Warehouse, keys: list[int]) -> None:
    wh.ingest("t", _rows(keys))
    wh.maintain()


def test_the_same_text_is_planned_once_for_what_is_visible_and_each_set_of_rules(wh: Warehouse) -> None:
    with mock.patch.object(engine, "apply_rules", wraps=apply_rules) as pruned:
        assert [wh.sql(QUERY, executor="local").rows() for _ in range(3)] == [[{"n": 2, "v": 5}]] * 3
        assert pruned.call_count == 1
        wh.sql(QUERY, executor="local", off=["prune_minmax"]).rows()
        assert pruned.call_count == 2
        wh.ingest("t", _rows([4]))
        hidden = wh.sql(QUERY, executor="local")
        assert hidden.rows() == [{"n": 2, "v": 5}]
        assert f"version {wh.catalog.version()}, " in hidden.plan.decisions[0].why
        assert pruned.call_count == 2
        wh.maintain()
        assert wh.sql(QUERY, executor="local").rows() == [{"n": 3, "v": 9}]
        assert pruned.call_count == 3


def test_a_moved_qt_leaves_the_choice_of_a_view_unless_there_is_much_more_to_read(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_FEW_ROWS", 0)
    _add(wh, [2, 2, 3, 3])
    wh.create_view("by_k", "SELECT k, count(*) AS n, sum(v) AS v FROM t GROUP BY k")
    wh.maintain()
    with mock.patch.object(Engine, "_plan", autospec=True, side_effect=Engine._plan) as chosen:
        first = wh.sql(QUERY, executor="local")
        assert (first.rows(), first.plan.view, chosen.call_count) == ([{"n": 6, "v": 15}], "by_k", 1)
        _add(wh, [4, 5, 5])
        again = wh.sql(QUERY, executor="local")
        assert (again.rows(), again.plan.view, chosen.call_count) == ([{"n": 9, "v": 29}], "by_k", 1)
        assert again.stats["rows_scanned"] == sum(d.rows for d in again.plan.tables["by_k"].deltas)
        assert [d.rule for d in again.plan.decisions] == [d.rule for d in first.plan.decisions]
        _add(wh, list(range(6, 30)))
        more = wh.sql(QUERY, executor="local")
        assert (more.rows(), chosen.call_count) == ([{"n": 33, "v": 449}], 2)
        assert more.rows() == wh.sql(QUERY, executor="local", off=["views"]).rows()


def test_a_plan_stays_while_what_it_reads_stays(wh: Warehouse) -> None:
    asked = "SELECT odd, sum(n) AS n FROM w GROUP BY odd ORDER BY odd"
    wh.create_view("w", "SELECT k % 2 AS odd, count(*) AS n FROM t GROUP BY k % 2")
    wh.create_table("u", "k int", key=["k"])
    wh.maintain()
    expected = [{"odd": 0, "n": 1}, {"odd": 1, "n": 2}]
    with mock.patch.object(engine, "apply_rules", wraps=apply_rules) as pruned:
        assert wh.sql(asked, executor="local").rows() == expected
        before = pruned.call_count
        wh.ingest("u", pa.table({"k": pa.array([1], pa.int32())}))
        wh.maintain()
        again = wh.sql(asked, executor="local")
        assert again.rows() == expected
        assert again.plan.decisions[0].why == f"version {wh.catalog.version()}, QT {wh.catalog.state().qt}"
        assert pruned.call_count == before, "another table's rows are no reason to plan anew"
        wh.explain(asked, executor="local")
        assert pruned.call_count > before, "what is explained is planned anew"
        before = pruned.call_count
        _add(wh, [4])
        assert wh.sql(asked, executor="local").rows() == [{"odd": 0, "n": 2}, {"odd": 1, "n": 2}]
        assert pruned.call_count > before


def test_the_same_text_is_bound_once_until_a_schema_changes(wh: Warehouse) -> None:
    query = "SELECT count(*) AS n FROM t"
    wh.create_view("w", "SELECT k % 2 AS odd, count(*) AS n FROM t GROUP BY k % 2")
    wh.maintain()
    with mock.patch.object(planned, "bind", wraps=bind) as bound:
        for n in (3, 4, 5):
            found = wh.sql(query, executor="local")
            assert found.rows() == [{"n": n}]
            assert found.plan.view == "w"
            _add(wh, [1 + n])
        assert bound.call_count == 1
        wh.add_column("t", "w", "int")
        assert wh.sql(query, executor="local").rows() == [{"n": 6}]
        assert bound.call_count == 2
        wh.drop_view("w")
        assert wh.sql(query, executor="local").plan.view is None
        assert bound.call_count == 3


def test_what_was_read_is_measured_once_for_a_plan(wh: Warehouse) -> None:
    first, again = (wh.sql(QUERY, executor="local").stats for _ in range(2))
    for name in ("bytes_read", "rows_scanned", "blocks_read", "files_read", "rows_out"):
        assert first[name] == again[name] > 0


def test_many_plans_leave_in_the_order_of_their_use(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_MOST_BYTES", 4 * planned._BYTES)
    for n in range(10):
        assert wh.sql(f"SELECT count(*) AS n FROM t WHERE k > {n}", executor="local").rows()
    assert 1 <= len(wh._engine._planned._plans) <= 4


@pytest.mark.parametrize("query", [QUERY, "SELECT k FROM t WHERE k >= 2"])
def test_a_remembered_plan_holds_no_snapshot(wh: Warehouse, query: str) -> None:
    wh.create_view("w", "SELECT k % 2 AS odd, count(*) AS n FROM t GROUP BY k % 2")
    wh.maintain()
    result = wh.sql(query, executor="local")
    held = weakref.ref(result.plan.snapshot)
    assert result.rows()
    wh._engine.snapshots.move()
    del result
    gc.collect()
    assert held() is None
    assert wh.sql(query, executor="local").rows()
