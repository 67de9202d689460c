"""Plain Spark over Parquet: partitioned by the year of a date where the table has one, and sorted inside."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers._model import Answer, Stored, Table, over, parquet_files, stored_files
from benchmarks.peers._spark import ask, start

SHARED = "sorted"


class PlainSpark:
    """Ways of storing: ``sorted``, written once for all Sparks of a run, and ``appended``: each has its own."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark, self._folder = spark, folder

    def versions(self) -> dict[str, str]:
        return {"spark": self._spark.version}

    def load(self, table: Table, how: str) -> Stored:
        path, seconds = self._path(table.name, how), 0.0
        if not path.exists():
            seconds = self._write(table, path)
        self._open(table.name, how)
        return stored_files(parquet_files(path), seconds)

    def create(self, table: Table, how: str) -> None:
        """A folder needs no preparing."""

    def append(self, table: Table, how: str, path: str) -> float:
        """Without a catalog Spark remembers a folder's files: a reader has to look again."""
        started = time.perf_counter()
        self._spark.read.parquet(path).write.mode("append").parquet(str(self._path(table.name, how)))
        self._open(table.name, how)
        return time.perf_counter() - started

    def upsert(self, table: Table, how: str, path: str) -> float:
        raise NotImplementedError("Parquet files have no keys")

    def stored(self, table: Table, how: str) -> Stored:
        return stored_files(parquet_files(self._path(table.name, how)))

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        return ask(self._spark, over(sql, table, f"plain_{table}_{how}"), measure)

    def close(self) -> None:
        self._spark.stop()

    def _path(self, table: str, how: str) -> Path:
        return self._folder / (f"{table}-{how}" if how == SHARED else f"{table}-{how}-{self._spark.version}")

    def _open(self, table: str, how: str) -> None:
        self._spark.read.parquet(str(self._path(table, how))).createOrReplaceTempView(f"plain_{table}_{how}")

    def _write(self, table: Table, path: Path) -> float:
        frame = self._spark.read.parquet(table.source)
        files = table.files(frame.count())
        started = time.perf_counter()
        order = (*(["part_year"] if table.year_of else []), *table.sort)
        if table.year_of:
            frame = frame.selectExpr("*", f"year({table.year_of}) AS part_year")
        writer = frame.repartitionByRange(files, *order).sortWithinPartitions(*order).write
        writer = writer.partitionBy("part_year") if table.year_of else writer
        writer.option("parquet.block.row.count.limit", str(table.group_rows)).parquet(str(path))
        return time.perf_counter() - started


def open_system(folder: str, settings: Mapping[str, str]) -> PlainSpark:
    return PlainSpark(start(settings), Path(folder))
