"""Whole queries as one DuckDB statement: what it answers, and what it refuses by name."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from parquetry.model.schema import Column, TableSchema
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.compile.typed import quote
from parquetry.query.compile.whole import WholeQuery, compile_query
from parquetry.workload.sql_text import parse_query

ROWS = {
    "a": pa.table(
        {
            "k": pa.array([1, 2, 3, None], pa.int32()),
            "v": pa.array(["x", "y", None, "z"]),
            "m": pa.array([Decimal("1.00"), Decimal("2.50"), None, Decimal("-7.25")], pa.decimal128(7, 2)),
        }
    ),
    "b": pa.table(
        {
            "k": pa.array([2, 3, 3, 5], pa.int64()),
            "w": pa.array([20, 30, 31, 50], pa.int32()),
            "f": pa.array([0.0, -0.0, float("nan"), 1.5]),
        }
    ),
}
TYPES = {"a": {"k": "int", "v": "string", "m": "decimal(7,2)"}, "b": {"k": "bigint", "w": "int", "f": "double"}}
SCHEMAS = {
    name: TableSchema(tuple(Column(c, t) for c, t in types.items()), key=("k",)) for name, types in TYPES.items()
}


def compiled(sql: str) -> WholeQuery | Refusal:
    return compile_query(parse_query(sql), SCHEMAS, sql)


def answer(sql: str) -> pa.Table:
    query = compiled(sql)
    assert isinstance(query, WholeQuery), query.reason
    connection = duckdb.connect()
    for name, rows in ROWS.items():
        connection.register(f"table_{name}", rows)
    relations = {
        m.number: f"(SELECT {', '.join(map(quote, m.columns)) or '1'} FROM table_{m.table})" for m in query.mentions
    }
    table = connection.sql(query.sql(relations)).to_arrow_table()
    return table.rename_columns(query.schema.names).cast(query.schema)


def rows(sql: str) -> list[tuple[Any, ...]]:
    table = answer(sql)
    found = zip(*(c.to_pylist() for c in table.columns), strict=True)
    return sorted(found, key=lambda row: [(v is not None, str(v)) for v in row])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a.k, w FROM a JOIN b ON a.k = b.k", [(2, 20), (3, 30), (3, 31)]),
        ("SELECT a.k, w FROM a LEFT JOIN b ON a.k = b.k AND w > 30", [(None, None), (1, None), (2, None), (3, 31)]),
        ("SELECT v, w FROM a RIGHT JOIN b ON a.k = b.k", [(None, 30), (None, 31), (None, 50), ("y", 20)]),
        ("SELECT count(*) AS n FROM a FULL JOIN b ON a.k = b.k", [(6,)]),
        ("SELECT k FROM a LEFT SEMI JOIN b ON a.k = b.k", [(2,), (3,)]),
        ("SELECT k FROM a LEFT ANTI JOIN b ON a.k = b.k", [(None,), (1,)]),
        ("SELECT count(*) AS n FROM a CROSS JOIN b", [(16,)]),
        ("SELECT count(*) AS n FROM a, b WHERE a.k = b.k", [(3,)]),
    ],
)
def test_joins_give_the_rows_that_their_kind_promises(sql: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(sql) == expected


def test_using_gives_its_column_once_and_first_in_the_wider_type() -> None:
    table = answer("SELECT * FROM a FULL JOIN b USING (k)")
    assert table.schema.names == ["k", "v", "m", "w", "f"]
    assert table.schema.field("k").type == pa.int64()
    assert sorted(k for k in table["k"].to_pylist() if k is not None) == [1, 2, 3, 3, 5]


def test_natural_join_joins_by_the_common_columns() -> None:
    assert rows("SELECT k, w FROM a NATURAL JOIN b") == [(2, 20), (3, 30), (3, 31)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT k FROM b WHERE k IN (SELECT k FROM a)", [(2,), (3,), (3,)]),
        ("SELECT k FROM b WHERE k NOT IN (SELECT k FROM a)", []),  # a null among them: never TRUE
        ("SELECT k FROM b WHERE k NOT IN (SELECT k FROM a WHERE k IS NOT NULL)", [(5,)]),
        ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND w > 25)", [(3,)]),
        ("SELECT k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", [(None,), (1,)]),
        ("SELECT w FROM b WHERE w > (SELECT avg(w) FROM b)", [(50,)]),
        ("SELECT w FROM b AS o WHERE w = (SELECT max(w) FROM b AS i WHERE i.k = o.k)", [(20,), (31,), (50,)]),
        ("SELECT k FROM a WHERE 0 = (SELECT count(*) FROM b WHERE b.k = a.k)", [(None,), (1,)]),
    ],
)
def test_subqueries_follow_the_logic_of_three_values(sql: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT k FROM a UNION SELECT k FROM b", [(None,), (1,), (2,), (3,), (5,)]),
        ("SELECT k FROM b EXCEPT SELECT k FROM a", [(5,)]),
        ("SELECT k FROM b EXCEPT ALL SELECT k FROM a", [(3,), (5,)]),
        ("SELECT k FROM b INTERSECT SELECT k FROM a", [(2,), (3,)]),
        ("SELECT f FROM b WHERE w < 31 UNION SELECT f FROM b WHERE w < 31", [(0.0,)]),
        ("(SELECT w FROM b) UNION ALL (SELECT k FROM a) ORDER BY w DESC LIMIT 2", [(31,), (50,)]),
    ],
)
def test_set_operations_compare_rows_in_their_common_types(sql: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(sql) == expected


def test_a_cte_may_be_named_twice_and_by_another_one() -> None:
    sql = "WITH p AS (SELECT k, w FROM b), q(x) AS (SELECT max(w) FROM p) SELECT p.k, q.x FROM p JOIN q ON p.w = q.x"
    assert rows(sql) == [(5, 50)]


def test_a_cte_hides_the_table_of_its_name() -> None:
    assert rows("WITH b AS (SELECT 7 AS k) SELECT k FROM b") == [(7,)]


def test_grouping_sets_tell_which_columns_are_grouped() -> None:
    sql = "SELECT k, count(*) AS n, grouping(k) AS g FROM b GROUP BY ROLLUP (k)"
    assert rows(sql) == [(None, 4, 1), (2, 1, 0), (3, 2, 0), (5, 1, 0)]


def test_windows_rank_and_sum_over_groups_of_rows_and_over_aggregates() -> None:
    sql = "SELECT w, rank() OVER (PARTITION BY k ORDER BY w DESC) AS r, sum(w) OVER (PARTITION BY k) AS s FROM b"
    assert rows(sql) == [(20, 1, 20), (30, 2, 61), (31, 1, 61), (50, 1, 50)]
    assert rows("SELECT k, sum(sum(w)) OVER () AS s FROM b GROUP BY k") == [(2, 131), (3, 131), (5, 131)]


@pytest.mark.parametrize(
    ("expression", "type_", "expected"),
    [
        ("m / 3", "decimal(11,6)", ["0.333333", "0.833333", "-2.416667"]),
        ("CAST(m AS decimal(18,2)) / 3", "decimal(22,6)", ["0.333333", "0.833333", "-2.416667"]),
        ("m / -8", "decimal(11,6)", ["-0.125000", "-0.312500", "0.906250"]),
        ("m / m", "decimal(17,10)", ["1.0000000000"] * 3),
        ("m * m", "decimal(15,4)", ["1.0000", "6.2500", "52.5625"]),
        ("CAST(m AS decimal(6,1))", "decimal(6,1)", ["1.0", "2.5", "-7.3"]),
        ("round(m, 1)", "decimal(7,1)", ["1.0", "2.5", "-7.3"]),
    ],
)
def test_decimals_have_the_scale_and_the_rounding_of_spark(expression: str, type_: str, expected: list[str]) -> None:
    table = answer(f"SELECT {expression} AS x FROM a WHERE m IS NOT NULL")
    assert str(table.schema.field("x").type) == type_.replace("decimal", "decimal128").replace(",", ", ")
    assert table["x"].to_pylist() == [Decimal(v) for v in expected]


def test_an_alias_means_nothing_in_a_query_inside() -> None:
    sql = "SELECT k - 1 AS w, count(*) AS n FROM a GROUP BY k HAVING count(*) < (SELECT min(w) FROM b)"
    assert rows(sql) == [(None, 1), (0, 1), (1, 1), (2, 1)]


def test_a_counted_constant_is_part_of_the_name() -> None:
    assert answer("SELECT count(5), count('x'), count(*) FROM a, b").column_names == [
        "count(5)",
        "count(x)",
        "count(1)",
    ]


def test_columns_are_read_only_where_they_are_named() -> None:
    query = compiled("SELECT x.w FROM b AS x JOIN b AS y ON x.k = y.k WHERE y.f > 1")
    assert isinstance(query, WholeQuery)
    assert [(m.table, m.columns) for m in query.mentions] == [("b", ("k", "w")), ("b", ("k", "f"))]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT soundex(v) AS s FROM a JOIN b ON a.k = b.k", "SOUNDEX(v)"),
        ("SELECT k FROM a JOIN b ON a.k = b.k", "the name k is ambiguous"),
        ("SELECT v FROM a LATERAL VIEW explode(array(1)) AS x", "LATERALS"),
        ("SELECT * FROM a TABLESAMPLE (10 PERCENT)", "other than a plain table"),
        ("WITH RECURSIVE t AS (SELECT 1 AS n) SELECT n FROM t", "recursive"),
        ("SELECT (SELECT w FROM b WHERE b.k = a.k) AS x FROM a", "outside its WHERE|more than one row"),
        ("SELECT k FROM a WHERE (k, v) IN (SELECT k, 'x' FROM b)", "several columns IN"),
        ("SELECT w FROM b QUALIFY row_number() OVER (ORDER BY w) = 1", "QUALIFY"),
        ("SELECT a.k FROM a, b FULL JOIN a AS c ON b.k = c.k", "behind a comma"),
        ("SELECT a.m * CAST(2 AS bigint) AS x FROM a JOIN b ON a.k = b.k", "beside a decimal"),
        ("SELECT a.m + 2L AS x FROM a JOIN b ON a.k = b.k", "beside a decimal"),
    ],
)
def test_what_is_left_to_spark_is_named(sql: str, reason: str) -> None:
    query = compiled(sql)
    assert isinstance(query, Refusal)
    assert any(part in query.reason for part in reason.split("|")), query.reason


def test_averages_of_many_digits_are_exact_and_stop_where_128_bits_do_not_suffice() -> None:
    wide = "SELECT avg(CAST(k AS bigint) * m) AS a FROM a"  # decimal(28,2)
    assert answer(wide).to_pylist() == [{"a": Decimal("3.000000")}]
    assert answer(wide).schema.field("a").type == pa.decimal128(32, 6)
    large = "SELECT avg(CAST(w AS decimal(28,0)) * CAST(100000000000000000000 AS decimal(21,0))) AS a FROM b"
    refused = compiled(large)
    assert isinstance(refused, Refusal)
    assert "too many digits" in refused.reason
    fits = "SELECT avg(CAST(w AS decimal(28,20))) AS a FROM b WHERE w < 31"
    assert answer(fits).to_pylist() == [{"a": Decimal("25.000000000000000000000000")}]
    with pytest.raises(duckdb.Error, match="Out of Range"):
        answer("SELECT avg(CAST(m AS decimal(28,26))) AS a FROM a")
