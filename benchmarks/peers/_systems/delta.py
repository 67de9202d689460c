"""Delta Lake: Z-ordered, or clustered (liquid clustering), with statistics on every column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.peers._model import Answer, Stored, Table, over, stored_files
from benchmarks.peers._spark import ask, columns_of, jar_version, merge_into, start, timed

SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A file's rows stay in the order of the curve, so that its row groups skip as well as it does.
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
    # The log of a table with few files needs no fifty tasks per query.
    "spark.databricks.delta.snapshotPartitions": "2",
}
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_ROW_GROUPS = "parquet.block.row.count.limit"


class Delta:
    """Ways of storing: ``zorder``, ``liquid``; with ' default' behind it in row groups as Spark cuts them, with
    ' vectors' marking changed rows in deletion vectors. ``plain`` is a table as it comes, without OPTIMIZE.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def versions(self) -> dict[str, str]:
        return {"spark": self._spark.version, "delta": jar_version(self._spark, "delta-spark")}

    def load(self, table: Table, how: str) -> Stored:
        if how.endswith(" default"):
            self._spark.conf.unset(_ROW_GROUPS)
        else:
            self._spark.conf.set(_ROW_GROUPS, str(table.group_rows))
        self.create(table, how)
        ingest_s = self.append(table, how, table.source)
        name, columns = self._name(table.name, how), ", ".join(table.filters)
        # Files of the wished size: as many of them as that makes of the bytes that are there.
        rows = self._spark.read.parquet(table.source).count()
        size = self._spark.sql(f"DESCRIBE DETAIL {name}").first()["sizeInBytes"]
        for limit in ("maxFileSize", "minFileSize"):
            self._spark.conf.set(f"spark.databricks.delta.optimize.{limit}", str(size // table.files(rows)))
        how_to = "FULL" if how.startswith("liquid") else f"ZORDER BY ({columns})"
        rewrite_s = timed(self._spark, f"OPTIMIZE {name} {how_to}")
        return self.stored(table, how, ingest_s, rewrite_s)

    def create(self, table: Table, how: str) -> None:
        properties = {"delta.dataSkippingNumIndexedCols": -1, "delta.enableDeletionVectors": how.endswith(" vectors")}
        listed = ", ".join(f"'{k}' = '{str(v).lower()}'" for k, v in properties.items())
        clustered = f"CLUSTER BY ({', '.join(table.filters)})" if how.startswith("liquid") else ""
        self._spark.sql(
            f"CREATE TABLE {self._name(table.name, how)} ({columns_of(self._spark, table.source)}) USING delta "
            f"{clustered} TBLPROPERTIES ({listed})"
        )

    def append(self, table: Table, how: str, path: str) -> float:
        return timed(self._spark, f"INSERT INTO {self._name(table.name, how)} SELECT * FROM parquet.`{path}`")

    def upsert(self, table: Table, how: str, path: str) -> float:
        return timed(self._spark, merge_into(self._name(table.name, how), path, table.key))

    def stored(self, table: Table, how: str, ingest_s: float = 0.0, rewrite_s: float = 0.0) -> Stored:
        return stored_files(self._spark.table(self._name(table.name, how)).inputFiles(), ingest_s, rewrite_s)

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        return ask(self._spark, over(sql, table, self._name(table, how)), measure)

    def close(self) -> None:
        self._spark.stop()

    def _name(self, table: str, how: str) -> str:
        return f"spark_catalog.default.delta_{table}_{how.replace(' ', '_')}"


def open_system(settings: Mapping[str, str]) -> Delta:
    return Delta(start(settings))
