"""Prepared statements of the local executor."""

from __future__ import annotations

import duckdb
import pytest

from parquetry.query import prepared
from parquetry.query.prepared import Prepared


@pytest.fixture
def cursor(monkeypatch: pytest.MonkeyPatch) -> duckdb.DuckDBPyConnection:
    monkeypatch.setattr(prepared, "_LEAST_ASKED", 1)
    return duckdb.connect(config={"threads": 1})


def test_a_statement_is_prepared_when_it_is_asked_for_often(
    cursor: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_LEAST_ASKED", 3)
    kept = Prepared(cursor)
    assert [kept.get("SELECT 8 AS x").startswith("EXECUTE") for _ in range(5)] == [False, False, False, True, True]


def test_a_query_that_is_asked_often_is_prepared_soon_when_its_text_changes(
    cursor: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_LEAST_ASKED", 3)
    kept = Prepared(cursor)
    assert [kept.get("SELECT 8 AS x", asked=n).startswith("EXECUTE") for n in (1, 2)] == [False, False]
    assert [kept.get("SELECT 9 AS x", asked=n).startswith("EXECUTE") for n in (5, 6, 7)] == [False, True, True]


def test_both_forms_give_the_same(cursor: duckdb.DuckDBPyConnection) -> None:
    kept = Prepared(cursor)
    forms = [kept.get("SELECT 7 AS x") for _ in range(3)]
    assert forms[0] == "SELECT 7 AS x"
    assert forms[1] == forms[2] != forms[0]
    assert [cursor.execute(f).to_arrow_table().to_pylist() for f in forms] == [[{"x": 7}]] * 3


def test_a_prepared_statement_reads_its_table_however_many_others_come_and_go(
    cursor: duckdb.DuckDBPyConnection,
) -> None:
    kept = Prepared(cursor)
    cursor.execute("CREATE TABLE a AS SELECT 1 AS x")
    text = "SELECT sum(x) AS s FROM a"
    kept.get(text)
    for i in range(3):
        cursor.execute(f"CREATE TABLE b{i} AS SELECT {i} AS y")
        assert cursor.execute(kept.get(text)).fetchall() == [(1,)]
        cursor.execute(f"DROP TABLE b{i}")
        assert cursor.execute(kept.get(text)).fetchall() == [(1,)]


def test_what_was_not_asked_for_long_is_forgotten(
    cursor: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_MOST", 2)
    kept = Prepared(cursor)
    for n in (1, 1, 2, 1, 3):  # 2 was asked for once and longest ago
        kept.get(f"SELECT {n}")
    assert kept.get("SELECT 1").startswith("EXECUTE")
    assert kept.get("SELECT 2") == "SELECT 2"
    first = kept.get("SELECT 1")
    for n in (4, 5, 6):
        kept.get(f"SELECT {n}")
    with pytest.raises(duckdb.Error):
        cursor.execute(first)


def test_a_statement_that_cannot_be_prepared_fails_each_time(cursor: duckdb.DuckDBPyConnection) -> None:
    kept = Prepared(cursor)
    assert kept.get("SELECT * FROM nothing") == "SELECT * FROM nothing"
    for _ in range(2):
        with pytest.raises(duckdb.Error):
            kept.get("SELECT * FROM nothing")
