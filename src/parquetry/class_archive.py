"""Makes an archive of Spark's classes, which a JVM maps instead of loading and checking them: Spark starts sooner.

``python -m parquetry.class_archive``, once for a Python environment, where it takes 190 MB. Every session that
Parquetry starts from there uses it; a JVM that it does not fit, as another version of Java, starts as without.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parquetry.errors import ParquetryError
from parquetry.java import QUIET, class_archive, is_archive
from parquetry.spark import default_settings, machine_cores, machine_memory, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDS_WITHIN_S = 120


def make_archive() -> Path:
    """Runs Spark once, with work as Parquetry has it, and keeps the classes that this needed."""
    there = class_archive()
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=".spark-classes-", dir=there.parent)  # beside it: a rename puts it in place
    except OSError as e:
        raise ParquetryError(f"cannot write to '{there.parent}': {e.strerror}; make a virtual environment") from e
    try:
        draft = Path(folder, there.name)
        usual = default_settings("local[2]", machine_cores(), machine_memory())["spark.driver.extraJavaOptions"]
        options = {"spark.driver.extraJavaOptions": f'{usual} "-XX:ArchiveClassesAtExit={draft}" {QUIET}'}
        spark = session("local[2]", options)
        _work(spark, Path(folder, "data"))
        _end(spark)
        if not is_archive(draft):
            raise ParquetryError("this Java keeps no archive of classes; Spark starts as before")
        os.replace(draft, there)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return there


def _work(spark: SparkSession, folder: Path) -> None:
    """Shuffles, sorts, Python tasks, Parquet files, joins, aggregates and windows over a few rows."""

    def same(batches: Any) -> Any:
        yield from batches

    columns = ("id", "id % 7 AS k", "CAST(id AS decimal(12,2)) AS d", "CAST(id AS string) AS s")
    numbers = spark.range(1000).selectExpr(*columns)
    sorted_rows = numbers.repartitionByRange(2, "k").sortWithinPartitions("k", "id")
    sorted_rows.mapInArrow(same, sorted_rows.schema).write.parquet(str(folder))
    spark.read.parquet(str(folder)).createOrReplaceTempView("t")
    spark.sql(
        "SELECT k, sum(t.d) AS d, count(*) AS n, avg(u.d) AS a, max(t.id) AS m FROM t JOIN t AS u USING (k) "
        "WHERE t.id < 100 AND k IN (1, 2, 3) GROUP BY k HAVING count(*) > 1 ORDER BY k"
    ).toArrow()
    spark.sql("SELECT k, sum(d) OVER (PARTITION BY k ORDER BY id) AS s FROM t").persist().count()
    spark.createDataFrame(spark.sql("SELECT * FROM t").toArrow()).collect()


def _end(spark: SparkSession) -> None:
    """Ends Spark's JVM, and returns when it has: on its way out it writes the archive."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_ENDS_WITHIN_S)
    SparkContext._gateway = SparkContext._jvm = None


if __name__ == "__main__":
    try:
        print(make_archive())  # noqa: T201
    except ParquetryError as error:
        sys.exit(str(error))
