"""The local plan's statement, run by DuckDB, against Spark on the same file: rows, names and types must be equal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquetry.query.compile.plain_select import LocalPlan
from parquetry.query.planning.bind import bind
from tests.query.sample_table import SCHEMA, sample_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = Path(__file__).parent / "fixtures" / "local_queries.sql"
QUERIES = [line for line in _FILE.read_text().splitlines() if line and not line.startswith("--")]


@pytest.fixture(scope="module")
def stored(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = str(tmp_path_factory.mktemp("sample") / "t.parquet")
    pq.write_table(sample_rows(), path)
    spark.read.parquet(path).createOrReplaceTempView("t")
    yield path
    spark.catalog.dropTempView("t")


def test_there_are_enough_queries() -> None:
    assert len(QUERIES) >= 150


@pytest.mark.spark
@pytest.mark.parametrize("sql", QUERIES)
def test_answers_as_spark_does(sql: str, spark: SparkSession, stored: str) -> None:
    plan = bind(sql, {"t": SCHEMA}).local
    assert isinstance(plan, LocalPlan), plan
    with duckdb.connect() as connection:
        ours = connection.sql(plan.sql(f"(SELECT * FROM read_parquet('{stored}'))")).to_arrow_table()
    _check_types(ours, plan.schema)
    ours = ours.rename_columns(plan.schema.names).cast(plan.schema)
    theirs = spark.sql(sql).toArrow()
    assert ours.schema.names == theirs.schema.names
    assert [f.type for f in ours.schema] == [f.type for f in theirs.schema]
    mine, spark_rows = _rows(ours), _rows(theirs)
    if " ORDER BY " not in sql:
        mine, spark_rows = sorted(mine, key=repr), sorted(spark_rows, key=repr)
    assert len(mine) == len(spark_rows)
    for a, b in zip(mine, spark_rows, strict=True):
        assert all(_same(x, y) for x, y in zip(a, b, strict=True)), (a, b)


@pytest.mark.spark
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT i + 1 AS x FROM t",
        "SELECT -i8 AS x FROM t",
        "SELECT i8 * i8 AS x FROM t",
        "SELECT i16 - 1S AS x FROM t",
        "SELECT sum(l) FROM t WHERE l > 9000000000000000000 OR l = 5",
    ],
)
def test_what_overflows_in_spark_fails_here_or_is_left_to_spark(sql: str, spark: SparkSession, stored: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        spark.sql(sql).toArrow()
    plan = bind(sql, {"t": SCHEMA}).local
    if isinstance(plan, LocalPlan):
        with duckdb.connect() as connection, pytest.raises(duckdb.Error):
            connection.sql(plan.sql(f"read_parquet('{stored}')")).to_arrow_table()


def _check_types(table: pa.Table, expected: pa.Schema) -> None:
    """DuckDB's own result types, before the cast that only renames zones and string layouts."""
    for got, want in zip(table.schema, expected, strict=True):
        if pa.types.is_timestamp(want.type):
            assert pa.types.is_timestamp(got.type)
            assert (got.type.tz is None) == (want.type.tz is None)
        elif not (pa.types.is_string(want.type) or pa.types.is_binary(want.type)):
            assert got.type == want.type, got.name


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [c.to_pylist() for c in table.columns]
    return [tuple(_plain(v) for v in row) for row in zip(*columns, strict=True)]


def _plain(v: Any) -> Any:
    """One text for equal values, so that sorting by repr agrees: floats to nine digits, one zero."""
    if isinstance(v, float):
        return v if math.isnan(v) or math.isinf(v) else float(f"{v:.9g}") + 0.0
    return v


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9)
    if isinstance(a, Decimal):
        return isinstance(b, Decimal) and a == b and a.as_tuple().exponent == b.as_tuple().exponent
    return type(a) is type(b) and bool(a == b)
