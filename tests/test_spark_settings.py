"""Answers do not depend on the settings of the user's session, nor on which executor runs the text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import parquetry
from parquetry.errors import ParquetryError
from parquetry.spark import active_session_kept, private_session
from parquetry.spark_settings import MEANING, is_dropped, is_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHERWISE = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.groupByAliases": "false",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "true",
    "spark.sql.legacy.setopsPrecedence.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushDownPredicates",
    "spark.sql.orderByOrdinal": "false",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.variable.substitute": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
}
KEPT = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.artifact.isolation.enabled": "false",  # else every session starts Python workers of its own
    "fs.some.key": "x",
}


@contextmanager
def settings(spark: SparkSession, changed: dict[str, str]) -> Iterator[None]:
    before = {k: spark.conf.get(k, None) for k in changed}
    try:
        for key, value in changed.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def test_every_setting_of_spark_sql_is_kept_pinned_or_has_its_default() -> None:
    for key in [*OTHERWISE, "spark.sql.legacy.something.of.a.later.version"]:
        assert is_dropped(key) != (key in MEANING)
        assert not is_kept(key)
    assert all(is_kept(key) and not is_dropped(key) for key in KEPT)
    assert not any(map(is_kept, MEANING))


def test_our_queries_see_no_setting_that_answers_depend_on(spark: SparkSession) -> None:
    """Goes through Spark's own list: whatever a session is set to, ours has Spark's default, or what MEANING says."""
    listed = [row.key for row in spark.sql("SET -v").collect()]
    jvm_conf = spark._jsparkSession.conf()
    changed = {k: "1" for k in listed if jvm_conf.isModifiable(k) and not is_kept(k)}
    odd: dict[str, str] = {}
    for key in changed:  # not every value is one of the setting's; those that are will do
        for value in ("true", "17", "x"):
            try:
                spark.conf.set(key, value)
            except Exception:
                continue
            odd[key] = value
    try:
        assert len(odd) > 200
        with active_session_kept():
            ours = private_session(spark)
        for key in odd:
            assert key in MEANING or not ours._jsparkSession.conf().contains(key) or _is_default(ours, key), key
        for key, value in MEANING.items():
            assert ours.conf.get(key) == value
    finally:
        for key in odd:
            spark.conf.unset(key)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def _is_default(session: SparkSession, key: str) -> bool:
    """Not set, so that Spark's default counts."""
    return not session._jsparkSession.sessionState().conf().settings().containsKey(key)


def test_what_makes_spark_fast_is_taken_over(spark: SparkSession) -> None:
    with settings(spark, KEPT), active_session_kept():
        ours = private_session(spark)
        assert {k: ours.conf.get(k) for k in KEPT} == KEPT


def test_views_variables_and_functions_of_the_session_are_not_ours(
    spark: SparkSession, wh: parquetry.Warehouse
) -> None:
    spark.range(1).createOrReplaceTempView("mine")
    spark.udf.register("abs", lambda x: 7, "int")
    spark.sql("DECLARE OR REPLACE VARIABLE k5 BIGINT DEFAULT 5")
    try:
        with active_session_kept():
            ours = private_session(spark)
            assert not ours.catalog.tableExists("mine")
            assert ours.sql("SELECT abs(-3) AS x").collect()[0].x == 3
            assert private_session(spark, trusted=True).sql("SELECT abs(-3) AS x").collect()[0].x == 3
        for variable in ("k5", "session.k5", "system.session.k5"):
            for executor in ("auto", "spark"):
                with pytest.raises(ParquetryError):
                    wh.sql(f"SELECT k FROM t WHERE k = {variable}", executor=executor).arrow()
    finally:
        spark.catalog.dropTempView("mine")
        spark.sql("DROP TEMPORARY FUNCTION abs")
        spark.sql("DROP TEMPORARY VARIABLE k5")


@pytest.fixture(scope="module")
def wh(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[parquetry.Warehouse]:
    with parquetry.connect(Path(tmp_path_factory.mktemp("meaning")) / "wh", spark=spark) as wh:
        wh.create_table("t", "k bigint not null, s string", ["k"])
        import pyarrow as pa

        wh.ingest("t", pa.table({"k": list(range(9)), "s": ["x${y}", 'say "hi"', "ab"] * 3}))
        wh.maintain()
        yield wh


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k FROM t WHERE s = 'x${y}' ORDER BY k",
        "SELECT k, '${env:HOME}' AS h, '${spark:spark.app.name}' AS a FROM t WHERE k = 1",
        'SELECT k FROM t WHERE s = "ab" ORDER BY k',
        "SELECT k FROM t WHERE s = 'a' 'b' ORDER BY k",
        "SELECT s, count(*) AS n FROM t GROUP BY 1 ORDER BY 1 DESC",
        "SELECT S AS q, count(*) AS n FROM T GROUP BY q ORDER BY 2, 1",
        "SELECT K FROM t WHERE k = 3",
    ],
)
def test_session_settings_and_executors_give_one_answer(sql: str, wh: parquetry.Warehouse, spark: SparkSession) -> None:
    def answers() -> list[Any]:
        found = [wh.sql(sql, executor=e).arrow() for e in ("auto", "spark")]
        return [(t.column_names, t.to_pylist()) for t in found]

    with settings(spark, {k: v for k, v in OTHERWISE.items() if spark._jsparkSession.conf().isModifiable(k)}):
        under_others = answers()
    plain = answers()
    assert under_others == plain
    assert plain[0] == plain[1]
    assert plain[0][1]
