"""SQL is not code: only Spark's pure functions may be called, whatever way they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parquetry.errors import QueryError
from parquetry.workload.allowed import check_allowed
from parquetry.workload.functions import PURE, REACHING
from parquetry.workload.lexemes import lexemes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT abs(k), builtin.upper(s), system.builtin.concat(s, s) FROM t WHERE k IN (1, 2) AND NOT (k < 2)",
        "WITH a(x, y) AS (SELECT 1, 2), b(z) AS (SELECT 3) SELECT * FROM a JOIN b USING (x) JOIN t u(p, q) ON (p = x)",
        "SELECT CAST(k AS decimal(10, 2)), TRY_CAST(s AS varchar(3)), count(*) FILTER (WHERE k > 1) FROM t AS v(k, s)",
        "SELECT sum(k) OVER (PARTITION BY g) FROM t GROUP BY GROUPING SETS ((g), ()) HAVING (sum(k) > 1) LIMIT (3)",
        "SELECT /*+ UNHEARD(t) */ transform(array(1), x -> (x + 1)) FROM range(3) r(x) WHERE EXISTS (SELECT 1)",
        "SELECT * FROM VALUES (1), (2) AS v(a) UNION ALL (SELECT 3) EXCEPT (SELECT 4)",
        "SELECT k FROM t PIVOT (sum(k) FOR g IN (1)) UNPIVOT INCLUDE NULLS (x FOR n IN (a)) TABLESAMPLE (5 ROWS)",
        "SELECT 'reflect(1)', `reflect` FROM t -- reflect(1)",
    ],
)
def test_pure_functions_and_the_grammar_pass(sql: str) -> None:
    check_allowed(lexemes(sql), {"t"})


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT reflect('a', 'b')", "cannot call reflect: it runs code"),
        ("SELECT ReFlEcT /* x */\n('a', 'b')", "cannot call reflect: it runs code"),
        ("SELECT `java_method`('a', 'b')", "cannot call java_method: it runs code"),
        ("SELECT builtin.try_reflect('a', 'b')", "cannot call try_reflect: it runs code"),
        ("SELECT from_protobuf(b, 'm', '/etc/passwd') FROM t", "it reads a file"),
        ("SELECT from_avro(b, '{}', map('avroSchemaUrl', '/etc/passwd')) FROM t", "an option of it reads a file"),
        ("SELECT my_udf(k) FROM t", "cannot call my_udf: it is no function of Spark's own"),
        ("SELECT db.abs(k) FROM t", "cannot call db.abs"),
        ("SELECT spark_catalog.builtin.abs(k) FROM t", "cannot call spark_catalog.builtin.abs"),
        ("SELECT a.system.builtin.abs(k) FROM t", "cannot call a.system.builtin.abs"),
        ("SELECT * FROM IDENTIFIER('t')", "cannot call IDENTIFIER"),
        ("SELECT * FROM t, my_udtf(TABLE(t))", "cannot call my_udtf"),
        ("WITH select AS (SELECT 1) SELECT my_udf(1)", "cannot call my_udf"),
        ("SELECT 1, my_udf(k) AS (a, b) FROM t", "cannot call my_udf"),
        ("SELECT 1, my_udf(k) AS (select, b) FROM t", "cannot call my_udf"),
        ("SELECT TRANSFORM(k) USING 'sh' FROM t", "cannot run scripts"),
        ("FROM t MAP k USING 'sh'", "cannot run scripts"),
        ("SELECT TRANSFORM(k) ROW FORMAT DELIMITED USING 'sh' FROM t", "cannot run scripts"),
    ],
)
def test_all_else_is_refused(sql: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        check_allowed(lexemes(sql), {"t"})


def test_every_function_of_sparks_registries_is_reviewed(spark: SparkSession) -> None:
    """A new version of Spark fails here until its new functions are put on one of the lists."""
    analysis = spark._jvm.org.apache.spark.sql.catalyst.analysis  # type: ignore[union-attr]
    found = set()
    for registry in (analysis.FunctionRegistry, analysis.TableFunctionRegistry):
        names = registry.builtin().listFunction()
        found |= {str(names.apply(i).funcName()) for i in range(names.size())}
    words = {n for n in found if n.replace("_", "").isalnum()}
    assert words == PURE | REACHING.keys()
    assert not PURE & REACHING.keys()
