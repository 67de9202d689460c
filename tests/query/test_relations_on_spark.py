"""Every way to name a relation: the answer is plain Spark's over all rows, or a refusal; nothing is pruned unseen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import parquetry
from parquetry.errors import ParquetryError
from tests.templates import Templates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, FILES = 2_000, 20  # some queries below compare every row with every other
TABLE = pa.table(
    {
        "k": pa.array(range(ROWS), pa.int64()),
        "g": pa.array([i % 7 for i in range(ROWS)], pa.int32()),
        "s": [f"s{i % 10}" for i in range(ROWS)],
    }
)

ANSWERED = [
    "WITH a AS (TABLE t) SELECT k, (SELECT count(*) FROM a) AS n FROM t WHERE k = 5",
    "WITH a AS (TABLE t) SELECT x.k, y.k FROM a AS x JOIN t AS y ON x.k = y.k + 500 WHERE y.k = 5",
    "WITH a(x, y, z) AS (TABLE t) SELECT t.k, (SELECT max(x) FROM a) FROM t WHERE k = 5",
    "SELECT k, (SELECT count(*) FROM (TABLE t)) AS n FROM t WHERE k = 5",
    "SELECT k FROM t WHERE k = 5 AND EXISTS (TABLE t)",
    "SELECT * FROM t WHERE k = 5 UNION ALL TABLE t",
    "(TABLE t) MINUS (SELECT * FROM t WHERE k = 5)",
    "SELECT b.k FROM t AS a JOIN (TABLE t) AS b ON a.k = b.k - 300 WHERE a.k = 5",
    "TABLE t",
    "FROM t",
    "FROM t SELECT k WHERE k = 5",
    "WITH a AS (FROM t) SELECT t.k, (SELECT count(*) FROM a) AS n FROM t WHERE t.k = 5",
    "SELECT (FROM t SELECT count(*)) AS n, k FROM t WHERE k = 5",
    "FROM t |> WHERE k = 5 |> SELECT k, (SELECT count(*) FROM t) AS n",
    "FROM t |> WHERE k = 5 |> UNION ALL TABLE t",
    "FROM t |> AS x |> WHERE k = 5 |> JOIN t AS y ON x.k = y.k - 900 |> SELECT y.k",
    "FROM t |> WHERE k < 9 |> AGGREGATE count(*) AS n GROUP BY g |> EXTEND n + 1 AS m |> SET n = 3 |> DROP g",
    "FROM t |> WHERE k < 9 |> PIVOT (sum(k) FOR g IN (1, 2))",
    "FROM t |> WHERE k = 5 |> UNION ALL SELECT 1L, 2, 'x'",
    "WITH a AS (TABLE t), b AS (TABLE a) FROM b |> WHERE k = 5 |> UNION ALL TABLE a",
    "WITH RECURSIVE r(n) AS (SELECT 1L UNION ALL SELECT n * 5 FROM r WHERE n < 999) TABLE r",
    "SELECT * FROM VALUES (5), (1500) AS v(a) JOIN t ON t.k = v.a",
    "SELECT k FROM t WHERE k = 5 UNION ALL VALUES (1L)",
    "SELECT r.id, t.k FROM range(3, 6) AS r JOIN t ON t.k = r.id * 300 WHERE r.id > 3",
    "SELECT t.k, e.x FROM t, LATERAL explode(array(1, 2)) AS e(x) WHERE t.k = 5",
    "SELECT t.k, e.x FROM t LATERAL VIEW OUTER explode(array(k, 2)) e AS x WHERE k = 5 AND x > 3",
    "SELECT t.k, l.n FROM t, LATERAL (SELECT count(*) AS n FROM t AS u WHERE u.k > t.k) AS l WHERE t.k = 5",
    "SELECT t.k, l.n FROM t LEFT JOIN LATERAL (SELECT max(k) AS n FROM t AS u WHERE u.g = t.g) l ON true WHERE t.k = 5",
    "SELECT t.k, u.k FROM t, LATERAL (TABLE t) AS u WHERE t.k = 5 AND u.k = 1500",
    "SELECT * FROM t PIVOT (count(k) FOR g IN (1 AS a, 2 AS b)) WHERE s = 's5'",
    "SELECT * FROM (SELECT k, g FROM t) PIVOT (max(k) FOR g IN (1, 2, 3))",
    "SELECT * FROM (SELECT k, g FROM t) UNPIVOT (x FOR n IN (g)) WHERE k = 5",
    "SELECT count(*) AS n FROM t TABLESAMPLE (100 PERCENT) WHERE k = 5",
    "SELECT a.k, b.k FROM t AS a JOIN t TABLESAMPLE (100 PERCENT) AS b ON a.k = b.k - 500 WHERE a.k = 5",
    "WITH t AS (SELECT k FROM t WHERE k = 5) SELECT count(*) AS n FROM t",
    "WITH a AS (WITH t AS (SELECT 1500L AS k) SELECT * FROM t) SELECT a.k, t.g FROM a JOIN t ON a.k = t.k",
    "WITH a AS (SELECT * FROM t), b AS (SELECT * FROM a WHERE k = 5) SELECT (SELECT count(*) FROM a), k FROM b",
    "WITH RECURSIVE r(n) AS (SELECT 1L UNION ALL SELECT n * 5 FROM r WHERE n < 999) SELECT t.k FROM r JOIN t ON k = n",
    "WITH RECURSIVE r AS (SELECT k FROM t WHERE k = 5 UNION ALL SELECT t.k FROM t JOIN r ON t.k = r.k * 9) FROM r",
    "SELECT k FROM (t) WHERE k = 5",
    "SELECT a.k, b.k FROM (t AS a JOIN t AS b ON a.k = b.k - 500) WHERE a.k = 5",
    "SELECT x.a FROM (t AS a JOIN t AS b ON a.k = b.k - 500) AS x(a, b, c, d, e, f) WHERE x.d = 5005",
    "SELECT a.k FROM t AS a JOIN t AS b JOIN t AS c ON b.k = c.k - 3 AND a.k = b.k - 300 WHERE a.k = 5",
    "SELECT /*+ BROADCAST(b) */ b.k FROM t AS a JOIN t AS b ON a.k = b.k - 500 WHERE a.k = 5",
    "SELECT k FROM t WHERE k = 5 QUALIFY row_number() OVER (ORDER BY k) = 1",
    "SELECT k, count(*) OVER w AS n FROM t WHERE k < 5 WINDOW w AS (PARTITION BY g)",
    "SELECT k FROM (SELECT k FROM t ORDER BY k DESC LIMIT 5) WHERE k > 1990",
    "SELECT k FROM t WHERE k = 5 IN (true)",
    "SELECT count(*) AS n FROM t WHERE NOT k = 5 = false",
    "SELECT k FROM t WHERE k & 1 + 4 = 5 AND k < 30",
    "SELECT count(DISTINCT *) AS n FROM t",
    "SELECT builtin.abs(k) AS a, system.builtin.upper(s) AS b FROM t WHERE k = 5",
]

REFUSED = [
    "WITH a AS (SELECT * FROM IDENTIFIER('t')) SELECT k, (SELECT count(*) FROM a) AS n FROM t WHERE k = 5",
    "SELECT * FROM t JOIN IDENTIFIER('t') AS u ON t.k = u.k WHERE t.k = 5",
    "SELECT * FROM IDENTIFIER('text.`/etc/hostname`')",
    "SELECT * FROM text.`/etc/hostname`",
    "FROM text.`/etc/hostname` |> LIMIT 1",
    "TABLE text.`/etc/hostname`",
    "SELECT k FROM t WHERE k IN (TABLE text.`/etc/hostname`)",
    "SELECT * FROM read_files('/etc/hostname')",
    "SELECT * FROM spark_catalog.default.t",
    "SELECT * FROM global_temp.others",
    "SELECT * FROM others",
    "FROM others |> LIMIT 1",
    "TABLE others",
    # A CTE's name is one word, known where it is in scope: it hides nothing elsewhere.
    "WITH `text./etc/hostname` AS (SELECT 1) FROM text.`/etc/hostname` |> LIMIT 1",
    "WITH `text./etc/hostname` AS (SELECT 1) TABLE text.`/etc/hostname`",
    "FROM others |> CROSS JOIN (WITH others AS (SELECT 1 AS a) SELECT a FROM others)",
    "WITH a AS (TABLE others), others AS (SELECT 1) TABLE a",
    "WITH a AS (WITH others AS (SELECT 1) TABLE others) SELECT * FROM a CROSS JOIN (TABLE others)",
    "SELECT * FROM STREAM t",
    "SELECT * FROM STREAM(t)",
    "SELECT * FROM t VERSION AS OF 1",
    "SELECT * FROM t TIMESTAMP AS OF '2020-01-01'",
    "SELECT * FROM t@v1",
    "SELECT * FROM t CHANGES FROM VERSION 1 TO VERSION 2",
    "SELECT * FROM a_udtf(TABLE(t))",
    "SELECT TRANSFORM(k) USING 'cat' AS (x) FROM t",
    "SELECT * FROM (FROM t MAP k USING 'cat' AS (x)) |> LIMIT 1",
    "FROM t REDUCE k USING 'cat'",
    "FROM t INSERT INTO u SELECT *",
    "FROM t |> INSERT INTO u",
    "WITH a AS (TABLE t) INSERT INTO u SELECT * FROM a",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "SET spark.sql.ansi.enabled = false",
    "ADD JAR '/tmp/x.jar'",
    "DECLARE VARIABLE v INT DEFAULT 5",
    "SET VAR v = 1",
    "USE others",
    "CACHE TABLE t",
    "CREATE TEMPORARY VIEW v AS SELECT 1",
    "BEGIN SELECT 1; END",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.name')",
    "SELECT builtin.java_method('java.lang.System', 'getProperty', 'user.name')",
    "SELECT `try_reflect`('java.lang.System', 'getProperty', 'user.name')",
    "SELECT reflect /* c */ ('java.lang.System', 'getProperty', 'user.name')",
    "TABLE t |> EXTEND reflect('java.lang.System', 'getProperty', 'user.name') AS x",
    "WITH extend AS (SELECT 1) FROM t |> EXTEND unheard_of(k) AS x",
    "SELECT spark_catalog.default.abs(k) FROM t",
    "SELECT session.abs(k) FROM t",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getProperty', 'user.name')",
    "SELECT unheard_of(k) FROM t",
    "SELECT k, unheard_of(k) AS (a, b) FROM t",
    "SELECT input_file_name() FROM t",
]


@pytest.fixture(scope="module")
def wh(templates: Templates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[parquetry.Warehouse]:
    def fill(empty: parquetry.Warehouse) -> None:
        small = {"row_group_rows": ROWS // FILES, "file_bytes": 1}
        empty.create_table("t", "k bigint not null, g int, s string", ["k"], settings=small)
        empty.ingest("t", TABLE)
        empty.maintain()

    with templates.copied("twenty-files", tmp_path_factory.mktemp("relations") / "wh", fill) as wh:
        assert len([f for d in wh.catalog.state().table("t").deltas for f in d.files]) == FILES
        yield wh


@pytest.mark.parametrize("sql", ANSWERED)
def test_every_way_to_name_a_relation_answers_as_plain_spark(
    sql: str, wh: parquetry.Warehouse, spark: SparkSession
) -> None:
    spark.createDataFrame(TABLE).createOrReplaceTempView("t")
    try:
        expected = Counter(repr(tuple(r)) for r in spark.sql(sql).collect())
    finally:
        spark.catalog.dropTempView("t")
    for wanted in ("auto", "spark"):
        found = wh.sql(sql, executor=wanted).arrow()
        columns: list[list[Any]] = [c.to_pylist() for c in found.columns]
        assert Counter(repr(row) for row in zip(*columns, strict=True)) == expected


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_no_pure_query_over_the_tables_is_refused_in_one_line(
    sql: str, wh: parquetry.Warehouse, spark: SparkSession
) -> None:
    spark.range(1).createOrReplaceTempView("others")
    spark.range(1).createOrReplaceGlobalTempView("others")
    try:
        for wanted in ("auto", "spark"):
            with pytest.raises(ParquetryError) as raised:
                wh.sql(sql, executor=wanted).arrow()
            assert "\n" not in str(raised.value)
    finally:
        spark.catalog.dropTempView("others")
        spark.catalog.dropGlobalTempView("others")


def test_a_relation_that_only_spark_sees_is_read_whole(
    wh: parquetry.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second lock: should the binder miss a mention, Spark's own parser does not."""
    from parquetry.query.sql import references

    monkeypatch.setattr(references, "Counter", lambda names: Counter(list(names)[1:]))
    sql = "SELECT a.k FROM t AS a, t AS b WHERE a.k = 5 AND b.k = 6 -- missed"
    result = wh.sql(sql, executor="spark")
    assert result.rows() == [{"k": 5}]
    assert result.stats["files_read"] == FILES


def test_what_is_understood_is_still_pruned(wh: parquetry.Warehouse) -> None:
    sql = "WITH a AS (SELECT * FROM t WHERE k = 7) SELECT t.k FROM t JOIN a ON t.k = a.k WHERE t.k < 9"
    assert wh.sql(sql, executor="spark").stats["files_read"] == 1


def test_trusted_callers_may_do_all_that_spark_does(
    wh: parquetry.Warehouse, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "file.txt").write_text("hello\n")
    spark.udf.register("twice", lambda x: 2 * x, "bigint")
    spark.udf.register("abs", lambda x: 7, "bigint")  # one of Spark's own names stays Spark's
    try:
        with parquetry.connect(wh.folder, spark=spark, trusted=True) as trusting:
            for sql, expected in [
                (
                    "SELECT k, (SELECT count(*) FROM IDENTIFIER('t')) AS n FROM t WHERE k = 5",
                    [5, ROWS],
                ),
                (f"SELECT value FROM text.`{tmp_path}/file.txt`", ["hello"]),
                ("SELECT TRANSFORM(k) USING 'cat' AS (x) FROM t WHERE k = 5", ["5"]),
                ("SELECT reflect('java.lang.Math', 'abs', -3) AS x", ["3"]),
                ("SELECT twice(k) AS x, abs(-k) AS y FROM t WHERE k = 5", [10, 5]),
            ]:
                assert [list(r.values()) for r in trusting.sql(sql).rows()] == [expected]
        with pytest.raises(ParquetryError, match="cannot call twice"):
            wh.sql("SELECT twice(k) AS x FROM t WHERE k = 5").rows()
        assert wh.sql("SELECT abs(-k) AS x FROM t WHERE k = 5", executor="spark").rows() == [{"x": 5}]
    finally:
        for name in ("twice", "abs"):
            spark.sql(f"DROP TEMPORARY FUNCTION {name}")
