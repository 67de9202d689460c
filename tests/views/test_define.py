"""What a view's definition is taken for, and why others are refused."""

from __future__ import annotations

import pytest

from parquetry.errors import ParquetryError, SchemaError
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import State, TableState
from parquetry.views.define import Definition, how_of, read_definition
from parquetry.views.parse_statement import CreateView, DropView, parse_statement

_COLUMNS = (Column("k", "int"), Column("day", "date"), Column("v", "int"), Column("w", "bigint"))


def table(table_id: int, name: str, model: str) -> TableState:
    values = {"v": "max", "w": "sum"} if model == "aggregate" else {}
    columns = tuple(Column(c.name, "bigint") if c.name == "v" and values else c for c in _COLUMNS)
    schema = TableSchema(columns, ("k", "day"), model, values)
    return TableState(table_id, name, schema, 1, (), 0, Settings())


STATE = State(1, 0, 0, {"t": table(1, "t", "append"), "u": table(2, "u", "upsert"), "a": table(3, "a", "aggregate")})


def read(sql: str, *order: str) -> Definition:
    return read_definition(sql, STATE, order)


def test_groups_and_aggregates_are_told_apart() -> None:
    found = read("SELECT T.Day, year(day) AS y, sum(v + 1) AS s, count(*) AS n FROM t WHERE k > 3 GROUP BY 1, y")
    assert [(c.name, c.function, c.argument) for c in found.columns] == [
        ("Day", "group", "`day`"),
        ("y", "group", "YEAR(`day`)"),
        ("s", "sum", "`v` + 1"),
        ("n", "count", "*"),
    ]
    assert found.where == "(k > 3)"
    assert found.key == ("Day", "y")


def test_order_by_puts_groups_first() -> None:
    assert read("SELECT day, k, count(*) AS n FROM t GROUP BY day, k", "K").key == ("k", "day")
    with pytest.raises(SchemaError, match="no group of the view"):
        read("SELECT day, count(*) AS n FROM t GROUP BY day", "n")


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT day, count(DISTINCT v) AS n FROM t GROUP BY day", "distinct values"),
        ("SELECT day, median(v) AS m FROM t GROUP BY day", "cannot be merged"),
        ("SELECT day, sum(v) / count(*) AS m FROM t GROUP BY day", "computed from aggregates"),
        ("SELECT day, sum(v) FROM t GROUP BY day", "has no name"),
        ("SELECT sum(v) AS s FROM t", "no GROUP BY"),
        ("SELECT sum(v) AS s FROM t GROUP BY day", "does not select it"),
        ("SELECT day, sum(v) AS s FROM t GROUP BY day HAVING sum(v) > 1", "HAVING"),
        ("SELECT day, sum(v) AS s FROM t GROUP BY day ORDER BY day", "ORDER BY"),
        ("SELECT day, sum(v) AS s FROM t GROUP BY day LIMIT 3", "LIMIT"),
        ("SELECT DISTINCT day FROM t", "DISTINCT"),
        ("SELECT day, sum(v) AS s FROM t GROUP BY ROLLUP (day)", "ROLLUP"),
        ("SELECT day, sum(v) AS s FROM (SELECT * FROM t) GROUP BY day", "subquery"),
        ("SELECT day, sum(v) AS s FROM t WHERE day = current_date() GROUP BY day", "another value"),
        ("SELECT day, sum(rand()) AS s FROM t GROUP BY day", "another value"),
        ("SELECT day, sum(v) FILTER (WHERE v > 1) AS s FROM t GROUP BY day", "FILTER"),
        ("SELECT day, sum(sum(v)) OVER () AS s FROM t GROUP BY day", "window"),
        ("SELECT day, day AS d2, sum(v) AS s FROM t GROUP BY day", "selected twice"),
        ("SELECT day, sum(v) AS s, max(v) AS S FROM t GROUP BY day", "two columns are called"),
        ("SELECT day, sum(v) AS s__sum, avg(v) AS s FROM t GROUP BY day", "kept for what the view stores"),
        ("SELECT t.day, count(*) AS n FROM t LEFT JOIN u ON t.k = u.k GROUP BY t.day", "LEFT"),
        ("SELECT t.day, count(*) AS n FROM t JOIN u ON t.k < u.k GROUP BY t.day", "not an equality"),
        ("SELECT a.day, count(*) AS n FROM t a JOIN t b ON a.k = b.k GROUP BY a.day", "with itself"),
        ("SELECT day, count(*) AS n FROM t JOIN u ON t.k = u.k GROUP BY day", "several tables"),
        ("SELECT 1 AS one, count(*) AS n FROM t GROUP BY 1", "constant"),
        ("WITH x AS (SELECT * FROM t) SELECT day, count(*) AS n FROM x GROUP BY day", "WITH"),
        ("SELECT day, sum(v) AS s FROM t UNION SELECT day, sum(v) AS s FROM t", "plain SELECT"),
    ],
)
def test_what_cannot_be_maintained_is_refused_with_the_reason(sql: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        read(sql)


def test_unknown_names_are_named() -> None:
    with pytest.raises(ParquetryError, match="unknown column 'x'"):
        read("SELECT x, count(*) AS n FROM t GROUP BY x")
    with pytest.raises(ParquetryError, match="unknown table 'nope'"):
        read("SELECT x, count(*) AS n FROM nope GROUP BY x")


@pytest.mark.parametrize(
    ("sql", "how"),
    [
        ("SELECT day, min(v) AS m, sum(v) AS s, avg(v) AS a FROM t GROUP BY day", "merge"),
        ("SELECT day, sum(w) AS s, max(v) AS m, max(k) AS mk FROM a WHERE k > 2 GROUP BY day", "merge"),
        ("SELECT day, sum(w) AS s FROM a WHERE w > 2 GROUP BY day", "retract"),
        ("SELECT day, count(*) AS n FROM a GROUP BY day", "retract"),
        ("SELECT day, min(v) AS m FROM a GROUP BY day", "replace"),
        ("SELECT day, sum(v) AS s, count(v) AS n FROM u GROUP BY day", "retract"),
        ("SELECT day, max(v) AS m FROM u GROUP BY day", "replace"),
        ("SELECT t.day, sum(u.v) AS s FROM t JOIN u ON t.k = u.k GROUP BY t.day", "retract"),
    ],
)
def test_how_deltas_reach_the_view_follows_from_the_table(sql: str, how: str) -> None:
    assert how_of(read(sql), exact_sums=True) == how


def test_sums_of_floats_are_never_taken_away_from() -> None:
    assert how_of(read("SELECT day, sum(v) AS s FROM u GROUP BY day"), exact_sums=False) == "replace"


def test_statements_are_read() -> None:
    made = parse_statement(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS v ORDER BY (a, b) AS SELECT b, a, 'x AS y' AS c FROM t GROUP BY b, a;"
    )
    assert made == CreateView("v", "SELECT b, a, 'x AS y' AS c FROM t GROUP BY b, a", ("a", "b"), True)
    assert parse_statement("create materialized view v order by a as select a from t") == CreateView(
        "v", "select a from t", ("a",), False
    )
    assert parse_statement("DROP MATERIALIZED VIEW IF EXISTS v") == DropView("v", True)
    assert parse_statement("SELECT 1") is None
