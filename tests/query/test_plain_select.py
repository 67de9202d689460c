"""The local plan's promises that need no Spark: what is refused, what it reads, what may go below a merge."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from parquetry.model.schema import Column, TableSchema
from parquetry.query.compile.plain_select import LocalPlan, Refusal
from parquetry.query.compile.whole import WholeQuery
from parquetry.query.planning.bind import bind
from tests.query.sample_table import SCHEMA, sample_rows


def plan(sql: str, schema: TableSchema = SCHEMA) -> LocalPlan:
    made = bind(sql, {"t": schema}).local
    assert isinstance(made, LocalPlan), made
    return made


NAMELESS = "Spark's name for column 1 is not certain; give it an alias"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT 1", "it reads no table"),
        ('SELECT k AS "x" FROM t', "its words or clauses are not in Spark's order"),
        ("SELECT soundex(s) AS u FROM t", "SOUNDEX(s) is left to Spark"),
        ("SELECT CAST(ts AS DATE) AS x FROM t", "a cast from timestamp to date"),
        ("SELECT date(ts) AS x, count(*) FROM t GROUP BY 1", "a cast from timestamp to date"),
        ("SELECT year(ts) AS x FROM t", "year of a timestamp"),
        ("SELECT dt = ts AS x FROM t", "a conversion from date to timestamp"),
        ("SELECT avg(d3) FROM t", "an average of decimal(38,6): too many digits to be exact"),
        ("SELECT sum(s) FROM t", "a sum of string"),
        ("SELECT sum(DISTINCT d) FROM t", "a sum of distinct double"),
        ("SELECT count(DISTINCT i, l) FROM t", NAMELESS),
        ("SELECT sum(i) FILTER (WHERE b) FROM t", NAMELESS),
        ("SELECT s = 5 AS x FROM t", "a comparison of string with int"),
        ("SELECT i IN (1, '2') AS x FROM t", "an IN list of mixed types"),
        ("SELECT s LIKE s AS x FROM t", "LIKE on anything but a string with a constant pattern"),
        ("SELECT i < 5.5 FROM t", NAMELESS),
        ("SELECT +i + 1 FROM t", NAMELESS),
        ("SELECT nvl(i, 0) FROM t", NAMELESS),
        ("SELECT k, count(*) FROM t GROUP BY ALL", "it groups by ALL, or in a way that is left to Spark"),
        ("SELECT k FROM t ORDER BY ALL", "it orders by ALL"),
        ("SELECT k, count(*) FROM t", "column k is neither grouped nor aggregated"),
        ("SELECT k FROM t LIMIT 1 + 1", "LIMIT is not a plain number"),
        ("SELECT k FROM t WHERE l < 12345678901234567890.5", "an integer compared with a decimal beyond bigint"),
        ("SELECT NULL AS x FROM t", "a column of NULL without a type"),
        ("SELECT k FROM t WHERE s = 'a\\nb'", "the text has backslash escapes"),
        ("SELECT k FROM t TABLESAMPLE (5 ROWS)", "the text has SAMPLE"),
        ("SELECT k FROM t DISTRIBUTE BY k", "it has DISTRIBUTE"),
        ("SELECT i AS x, x + 1 AS y FROM t", "x stands for another expression of the SELECT list"),
        ("SELECT -i AS i, max(k) AS k FROM t GROUP BY t.i HAVING i > 1", "the name i is both a column and an alias"),
        ("SELECT DISTINCT g FROM t ORDER BY k", "it orders DISTINCT rows by something that is not selected"),
    ],
)
def test_refuses_with_a_reason(sql: str, reason: str) -> None:
    assert bind(sql, {"t": SCHEMA}).local == Refusal(reason)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a.k FROM t a JOIN t b ON a.k = b.k",
        "SELECT k FROM (SELECT k FROM t)",
        "WITH c AS (SELECT 1 AS x) SELECT k FROM t",
        "SELECT k FROM t UNION ALL SELECT 1",
        "SELECT row_number() OVER (ORDER BY k) AS n FROM t",
        "SELECT k FROM t WHERE k = (SELECT 1)",
        "SELECT upper(s) AS u FROM t",
        "SELECT i / 0 AS x FROM t",
        "SELECT i / l AS x FROM t",
        "SELECT d1 / 2 AS x FROM t",
        "SELECT d3 * d3 AS x FROM t",
        "SELECT CAST(d AS INT) AS x FROM t",
        "SELECT CAST(i AS STRING) AS x FROM t",
        "SELECT CAST(d3 AS DOUBLE) AS x FROM t",
        "SELECT k FROM t GROUP BY ROLLUP (k)",
        "SELECT k FROM t WHERE NULL",
    ],
)
def test_what_is_no_plain_select_is_compiled_whole(sql: str) -> None:
    assert isinstance(bind(sql, {"t": SCHEMA}).local, WholeQuery)


def test_nested_columns_are_left_to_spark() -> None:
    nested = TableSchema((Column("k", "int"), Column("v", "array<int>")), key=("k",))
    assert bind("SELECT * FROM t", {"t": nested}).local == Refusal("column v has the nested type array<int>")
    assert plan("SELECT k FROM t", nested).columns == ("k",)


def test_reads_only_the_columns_it_names() -> None:
    assert plan("SELECT sum(i) FROM t WHERE l > 3 GROUP BY g HAVING max(d) > 1 ORDER BY min(s)").columns == (
        *("g", "i", "l", "d", "s"),
    )
    assert plan("SELECT count(*) FROM t").columns == ()


def test_an_aggregate_over_no_rows_is_one_row() -> None:
    table = sample_rows()
    made = plan("SELECT count(*) AS n, sum(d1) AS s, avg(d1) AS a, avg(i) AS b FROM t WHERE k < 0")
    with duckdb.connect() as connection:
        connection.register("rows", table)
        assert connection.execute(made.sql("rows")).fetchall() == [(0, None, None, None)]
    assert made.schema.types == [pa.int64(), pa.decimal128(25, 2), pa.decimal128(19, 6), pa.float64()]


@pytest.mark.parametrize("digits", [15, 18])
def test_averages_of_decimals_round_half_away_from_zero(digits: int) -> None:
    schema = TableSchema((Column("k", "int"), Column("v", f"decimal({digits},2)")), key=("k",))
    made = plan("SELECT k, avg(v) AS a FROM t GROUP BY k ORDER BY k", schema)
    values = (
        "(1, 0.01), (1, 0.00), (1, 0.01), (2, -0.01), (2, 0.00), (2, -0.01), (3, 9999999999.99), (3, 9999999999.98)"
    )
    with duckdb.connect() as connection:
        source = f"(SELECT k, CAST(v AS DECIMAL({digits},2)) AS v FROM (VALUES {values}) r(k, v))"
        answer = [str(a) for _, a in connection.execute(made.sql(source)).fetchall()]
    assert answer == ["0.006667", "-0.006667", "9999999999.985000"]


SALES = TableSchema(
    tuple(
        Column(n, t)
        for n, t in {
            "customer": "int",
            "day": "date",
            "revenue": "bigint",
            "orders": "bigint",
            "low": "int",
            "high": "int",
            "note": "string",
        }.items()
    ),
    key=("customer", "day"),
    model="aggregate",
    values={"revenue": "sum", "orders": "count", "low": "min", "high": "max", "note": "replace"},
)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT day, sum(revenue), sum(orders), min(low), max(high) FROM t WHERE customer = 3 GROUP BY day", True),
        ("SELECT sum(revenue) FROM t", True),
        ("SELECT year(day) AS y, sum(revenue) FROM t GROUP BY 1 HAVING sum(revenue) > 5", True),
        ("SELECT min(customer), max(day) FROM t", True),
        ("SELECT sum(revenue) FROM t WHERE revenue > 3", False),
        ("SELECT sum(revenue) FROM t WHERE customer = 1 OR high > 3", False),
        ("SELECT count(*) FROM t", False),
        ("SELECT count(revenue) FROM t", False),
        ("SELECT avg(revenue) FROM t", False),
        ("SELECT max(revenue) FROM t", False),
        ("SELECT max(low) FROM t", False),
        ("SELECT max(note) FROM t", False),
        ("SELECT sum(revenue + 1) FROM t", False),
        ("SELECT sum(-revenue) FROM t", False),
        ("SELECT sum(DISTINCT revenue) FROM t", False),
        ("SELECT low, sum(revenue) FROM t GROUP BY low", False),
        ("SELECT sum(customer) FROM t", False),
        ("SELECT customer, revenue FROM t", False),
        ("SELECT DISTINCT customer FROM t", False),
        ("SELECT customer FROM t GROUP BY customer ORDER BY count(*)", False),
        ("SELECT customer FROM t GROUP BY customer HAVING count(*) > 1", False),
    ],
)
def test_merging_may_wait_only_where_every_aggregate_merges_like_its_column(sql: str, expected: bool) -> None:
    can, why = plan(sql, SALES).can_skip_merge(SALES)
    assert can is expected, why
    assert why


def test_append_tables_have_nothing_to_merge() -> None:
    assert plan("SELECT count(*) FROM t WHERE i > 3").can_skip_merge(SCHEMA)[0]


def test_key_conditions_go_below_the_merge_and_no_others() -> None:
    made = plan(
        "SELECT * FROM t WHERE customer = 3 AND day > DATE '2020-01-01' AND revenue > 5 AND (customer = 1 OR low = 2)",
        SALES,
    )
    assert made.key_filter(SALES) == """("customer" = CAST(3 AS INTEGER)) AND ("day" > DATE '2020-01-01')"""
    assert made.filters_values
    only_key = plan("SELECT * FROM t WHERE customer = 3", SALES)
    assert not only_key.filters_values
    assert plan("SELECT * FROM t", SALES).key_filter(SALES) is None
