"""Joins of many tables are planned in bounded work, and one that explodes stops at the memory bound."""

from __future__ import annotations

import cProfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import parquetry
from parquetry.errors import QueryError
from parquetry.model.schema import Column, TableSchema
from parquetry.query.compile.whole import WholeQuery
from parquetry.query.local import executor, prepared
from parquetry.query.planning.bind import bind
from parquetry.query.planning.plan import Plan
from parquetry.query.rules import RULE_NAMES
from parquetry.query.spark.executor import SparkExecutor
from parquetry.warehouse import Warehouse
from tests.views.without_spark import ingest, publish

TABLES = 20
EXPLODING = "SELECT DISTINCT a.k * 4000 + b.k AS n FROM t0 AS a CROSS JOIN t0 AS b"


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    folder: Path = tmp_path_factory.mktemp("many") / "wh"
    with parquetry.connect(folder) as wh:
        for i in range(TABLES):
            wh.create_table(f"t{i}", "k int, a int", key=["k"])
            k = pa.array(range(4000 if i == 0 else 50), pa.int32())
            ingest(wh, f"t{i}", pa.table({"k": k, "a": k}), f"t{i}")
        publish(wh)
        yield wh


def chain(tables: int) -> str:
    """Each table joined with the next one; the first is filtered."""
    named = ", ".join(f"t{i}" for i in range(tables))
    equal = " AND ".join(f"t{i}.a = t{i + 1}.k" for i in range(tables - 1))
    return f"SELECT count(*) AS n FROM {named} WHERE {equal} AND t0.k < 10"


def test_a_join_of_twenty_tables_runs_in_the_process(wh: Warehouse) -> None:
    result = wh.sql(chain(TABLES))
    assert result.arrow().to_pylist() == [{"n": 10}]
    assert result.stats["executor"] == "local"


@pytest.mark.parametrize("star", [False, True])
def test_the_work_of_binding_grows_with_the_text_and_not_with_the_orders_of_a_join(star: bool) -> None:
    """Counted in calls: a text twice as long takes hardly more than twice the steps."""
    schema = TableSchema((Column("k", "int"), Column("a", "int")), key=("k",))
    tables = {f"t{i}": schema for i in range(TABLES)}

    def steps(count: int) -> int:
        joined = " ".join(f"JOIN t{i} ON t0.k = t{i}.k" for i in range(1, count))
        return _calls(f"SELECT count(*) AS n FROM t0 {joined} WHERE t0.a = 1" if star else chain(count), tables)

    steps(2)  # what is made once
    assert steps(TABLES) < 4 * steps(TABLES // 2)


def _calls(sql: str, tables: dict[str, TableSchema]) -> int:
    profile = cProfile.Profile()
    bound = profile.runcall(bind, sql, tables)
    assert isinstance(bound.local, WholeQuery)
    return sum(entry.callcount for entry in profile.getstats())


def test_a_join_that_explodes_stops_at_the_memory_bound_and_goes_to_spark(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_spark: list[str] = []

    def run(_: SparkExecutor, plan: Plan) -> tuple[pa.Table, dict[str, int]]:
        on_spark.append(plan.bound.sql)
        return pa.table({"n": [1]}), dict.fromkeys(("blocks_read", "files_read", "rows_scanned", "bytes_read"), 0)

    monkeypatch.setattr(executor, "machine_memory", lambda: 96 << 20)  # of which DuckDB has half
    monkeypatch.setattr(SparkExecutor, "run", run)
    with parquetry.connect(wh.folder) as small:
        with pytest.raises(QueryError, match="the query failed: Out of Memory"):
            small.sql(EXPLODING, executor="local").arrow()
        assert not on_spark
        assert small.sql(EXPLODING).stats["executor"] == "spark"
        assert on_spark == [EXPLODING]
        assert "DuckDB stopped before: Out of Memory" in str(small.explain(EXPLODING))


def test_joins_know_how_many_rows_were_picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB orders joins by numbers of rows. A stream tells none: two dimensions were joined with each other first."""
    given: list[Any] = []
    plain = prepared.run

    def spied(cursor: Any, method: str, text: str, *held: Any, **named: Any) -> Any:
        if "JOIN" in text:
            given.extend(named.values())
        return plain(cursor, method, text, *held, **named)

    monkeypatch.setattr("parquetry.query.local.executor.run", spied)
    with parquetry.connect(tmp_path / "wh") as wh:
        for name in ("facts", "one", "other"):
            wh.create_table(name, "k int not null, g int, v int", ["k"], settings={"row_group_rows": 50})
            rows = [{"k": k, "g": k % 2, "v": k % 9} for k in range(400)]
            wh.ingest(name, rows)
        wh.maintain()
        sql = (
            "SELECT count(*) AS n, sum(f.v) AS v FROM facts f JOIN one a ON f.k = a.k JOIN other b ON f.v = b.k "
            "AND a.g = b.g WHERE f.k BETWEEN 100 AND 220 AND a.v < 5"
        )
        found = wh.sql(sql, executor="local", off=["hold_rows"]).rows()
        assert found == wh.sql(sql, executor="local", off=RULE_NAMES).rows()
    assert given
    assert all(hasattr(g, "materialize") for g in given), "relations, which DuckDB has counted"
