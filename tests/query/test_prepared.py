"""Prepared statements of the local executor, over rows that DuckDB holds."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from parquetry.query.local import prepared
from parquetry.query.local.prepared import Held, Prepared, run


@pytest.fixture
def cursor() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def _held(cursor: Any, name: str, rows: str) -> Held:
    return Held(name, cursor.cursor().sql(rows).materialize())


def test_a_statement_is_prepared_once_and_gives_the_same(cursor: duckdb.DuckDBPyConnection) -> None:
    kept, held = Prepared(cursor), _held(cursor, "a", "SELECT 7 AS x UNION ALL SELECT 8")
    text = "SELECT sum(x) AS s FROM a"
    assert text not in kept
    assert [kept.run(text, [held]).to_pylist() for _ in range(2)] == [[{"s": 15}]] * 2
    assert text in kept
    assert kept.get(text, [held]) == kept.get(text, [held])
    assert run(cursor, "execute", text, [held]).fetchall() == [(15,)]


def test_a_statement_may_read_several(cursor: duckdb.DuckDBPyConnection) -> None:
    one, other = _held(cursor, "a1", "SELECT 1 AS x"), _held(cursor, "a2", "SELECT 2 AS x")
    kept = Prepared(cursor)
    assert kept.run("SELECT x FROM a1", [one]).to_pylist() == [{"x": 1}]
    assert kept.run("SELECT a1.x + a2.x AS x FROM a1, a2", [one, other]).to_pylist() == [{"x": 3}]


def test_statements_whose_rows_nobody_holds_are_forgotten(cursor: duckdb.DuckDBPyConnection) -> None:
    kept, held, stays = Prepared(cursor), _held(cursor, "a", "SELECT 1 AS x"), _held(cursor, "b", "SELECT 2 AS x")
    statement = kept.get("SELECT x FROM a", [held])
    kept.get("SELECT x FROM b", [stays])
    assert kept.alive()
    del held
    assert cursor.execute(statement).fetchall() == [(1,)], "it holds them itself"
    kept.get("SELECT x + 1 FROM b", [stays])
    assert "SELECT x FROM a" not in kept
    assert "SELECT x FROM b" in kept
    with pytest.raises(duckdb.Error):
        cursor.execute(statement)
    del stays
    assert not kept.alive()


def test_what_was_not_asked_for_long_is_forgotten(
    cursor: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_MOST", 5)
    kept, held = Prepared(cursor), _held(cursor, "a", "SELECT 1 AS x")
    texts = [f"SELECT x + {n} FROM a" for n in range(6)]
    for n in (0, 1, 2, 3, 4, 0):
        kept.get(texts[n], [held])
    assert all(text in kept for text in texts[:5])
    kept.get(texts[5], [held])
    assert [text in kept for text in texts] == [True, False, True, True, True, True]


def test_a_statement_that_cannot_be_prepared_fails_each_time(cursor: duckdb.DuckDBPyConnection) -> None:
    kept = Prepared(cursor)
    for _ in range(2):
        with pytest.raises(duckdb.Error):
            kept.get("SELECT * FROM nothing", [])
