"""Iceberg: sorted, Z-ordered or in Hilbert's order by its own rewrite procedure, with metrics of every column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers._model import Answer, Stored, Table, over, stored_files
from benchmarks.peers._spark import ask, columns_of, jar_version, merge_into, start, timed

CATALOG = "ice"
EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_PROPERTIES = {"write.parquet.compression-codec": "snappy", "write.metadata.metrics.default": "full"}
_ON_READ = {f"write.{change}.mode": "merge-on-read" for change in ("delete", "update", "merge")}
_WHOLE = "whole_"


def catalog_settings(folder: Path) -> dict[str, str]:
    return {
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(folder),
    }


class Iceberg:
    """Ways of storing: ``sort``, ``zorder``, ``hilbert``; with ' default' behind it in row groups as Iceberg cuts them,
    with ' on read' merging changes only when it is read. ``plain`` is a table as it comes.

    Iceberg's curves take no decimals. Such a column has a copy in whole numbers, which the curve goes by.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def versions(self) -> dict[str, str]:
        return {"spark": self._spark.version, "iceberg": jar_version(self._spark, "iceberg")}

    def load(self, table: Table, how: str) -> Stored:
        order = how.split()[0]
        name = self._name(table.name, how)
        self.create(table, how)
        ingest_s = self.append(table, how, table.source)
        rows, size = self._spark.sql(f"SELECT sum(record_count), sum(file_size_in_bytes) FROM {name}.files").first()
        if not how.endswith(" default"):
            # A row group is closed by its bytes, looked at every so many rows: with few bytes, after just these.
            groups = {
                "write.parquet.row-group-size-bytes": str(table.group_rows),
                "write.parquet.row-group-check-min-record-count": str(table.group_rows),
                "write.parquet.row-group-check-max-record-count": str(table.group_rows),
            }
            self._spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({_quoted(groups)})")
        curve = ", ".join(_WHOLE + c if c in self._decimals(table) else c for c in table.filters)
        ordered = ", ".join(table.sort) if order == "sort" else f"{order}({curve})"
        rewrite_s = timed(
            self._spark,
            f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', strategy => 'sort', "
            f"sort_order => '{ordered}', options => map('rewrite-all', 'true', "
            f"'target-file-size-bytes', '{size // table.files(rows)}'))",
        )
        return self.stored(table, how, ingest_s, rewrite_s)

    def create(self, table: Table, how: str) -> None:
        name = self._name(table.name, how)
        properties = _PROPERTIES | (_ON_READ if how.endswith(" on read") else {})
        columns = columns_of(self._spark, table.source)
        columns += "".join(f", {_WHOLE}{c} bigint" for c in self._copies(table, how))
        self._spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg TBLPROPERTIES ({_quoted(properties)})")

    def append(self, table: Table, how: str, path: str) -> float:
        copies = "".join(f", CAST({c} * 100 AS BIGINT)" for c in self._copies(table, how))
        return timed(self._spark, f"INSERT INTO {self._name(table.name, how)} SELECT *{copies} FROM parquet.`{path}`")

    def upsert(self, table: Table, how: str, path: str) -> float:
        return timed(self._spark, merge_into(self._name(table.name, how), path, table.key))

    def stored(self, table: Table, how: str, ingest_s: float = 0.0, rewrite_s: float = 0.0) -> Stored:
        rows = self._spark.sql(f"SELECT file_path FROM {self._name(table.name, how)}.files").collect()
        return stored_files([r[0] for r in rows], ingest_s, rewrite_s)

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        return ask(self._spark, over(sql, table, self._name(table, how)), measure)

    def close(self) -> None:
        self._spark.stop()

    def _name(self, table: str, how: str) -> str:
        return f"{CATALOG}.peers.{table}_{how.replace(' ', '_')}"

    def _decimals(self, table: Table) -> list[str]:
        types = dict(self._spark.read.parquet(table.source).dtypes)
        return [c for c in table.filters if types[c].startswith("decimal")]

    def _copies(self, table: Table, how: str) -> list[str]:
        return self._decimals(table) if how.startswith(("zorder", "hilbert")) else []


def _quoted(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())


def open_system(settings: Mapping[str, str]) -> Iceberg:
    return Iceberg(start(settings))
