"""DuckDB: over sorted Parquet files, and over its own storage in the same order."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._harness import median
from benchmarks.peers._model import Answer, Stored, Table, arrow_rows, canonical, over, parquet_files, stored_files

GROUP_ROWS = 20_480  # DuckDB skips by row group and reads small ones slowly: this size suits it


class Duck:
    """Ways of storing: ``parquet``, a folder of files; ``own``, a database file; ``summaries``, such a file with one
    table for each view, made once."""

    def __init__(self, folder: Path) -> None:
        import duckdb

        self._folder = folder
        self._summed: dict[str, Table] = {}
        self._duck: Any = duckdb.connect()
        # As for Parquetry's own executor: files do not change, so their footers may be remembered.
        self._duck.execute("SET parquet_metadata_cache = true")

    def versions(self) -> dict[str, str]:
        import duckdb

        return {"duckdb": duckdb.__version__}

    def load(self, table: Table, how: str) -> Stored:
        if how == "summaries":
            self._summed[table.name] = table
            self._attach(table, how)
            source = f"'{table.source}'"
            made = [f"CREATE TABLE {how}_{table.name}.{view.name} AS {view.sql(source)}" for view in table.views]
            return self.stored(table, how, sum(map(self._timed, made)))
        self.create(table, how)
        seconds = self._add(table, how, f"FROM '{table.source}' ORDER BY {', '.join(table.sort)}")
        return self.stored(table, how, seconds)

    def create(self, table: Table, how: str) -> None:
        if how == "parquet":
            (self._folder / table.name).mkdir()
            return
        self._attach(table, how)
        self._duck.execute(f"CREATE TABLE own_{table.name}.t AS FROM '{table.source}' LIMIT 0")
        if table.model == "upsert":
            self._duck.execute(f"ALTER TABLE own_{table.name}.t ADD PRIMARY KEY ({', '.join(table.key)})")

    def append(self, table: Table, how: str, path: str) -> float:
        return self._add(table, how, f"FROM '{path}'")

    def upsert(self, table: Table, how: str, path: str) -> float:
        return self._timed(f"INSERT OR REPLACE INTO own_{table.name}.t FROM '{path}'")

    def stored(self, table: Table, how: str, ingest_s: float = 0.0) -> Stored:
        if how == "parquet":
            return stored_files(parquet_files(self._folder / table.name), ingest_s)
        self._duck.execute(f"CHECKPOINT {how}_{table.name}")
        return Stored((self._folder / f"{how}_{table.name}.duckdb").stat().st_size, None, None, ingest_s)

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        if how == "summaries":
            text = self._summed[table].over_view(sql, f"{how}_{table}.{{}}")
        else:
            text = over(sql, table, f"own_{table}.t" if how == "own" else f"'{self._folder / table}/*.parquet'")
        if measure and how == "parquet":
            self._duck.execute("SET enable_profiling = 'no_output'")
        started = time.perf_counter()
        found = self._duck.sql(text).to_arrow_table()
        ms = (time.perf_counter() - started) * 1e3
        return Answer(arrow_rows(found), ms, self._bytes() if measure and how == "parquet" else None)

    def close(self) -> None:
        self._duck.close()

    def _attach(self, table: Table, how: str) -> None:
        """Each table in a file of its own, so that its size can be told."""
        self._duck.execute(f"ATTACH '{self._folder}/{how}_{table.name}.duckdb' AS {how}_{table.name}")

    def _add(self, table: Table, how: str, rows: str) -> float:
        if how == "own":
            return self._timed(f"INSERT INTO own_{table.name}.t {rows}")
        path = self._folder / table.name / f"{len(parquet_files(self._folder / table.name)):04}.parquet"
        return self._timed(f"COPY ({rows}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE {GROUP_ROWS})")

    def _timed(self, sql: str) -> float:
        started = time.perf_counter()
        self._duck.execute(sql)
        return time.perf_counter() - started

    def _bytes(self) -> int:
        """What the last query read, by its profile, which costs time and is switched off again."""
        profile = json.loads(self._duck.get_profiling_information(format="json"))
        self._duck.execute("PRAGMA disable_profiling")
        return int(profile.get("io", {}).get("total_bytes_read", 0))


def best_order(table: str, source: str, columns: Sequence[str], logged: Sequence[str], folder: Path) -> tuple[str, ...]:
    """The column that the table is best sorted by, then the others: the one whose order answers the log soonest."""
    import duckdb

    duck = duckdb.connect()
    path = folder / "order.parquet"
    times = {}
    for column in columns:
        duck.execute(
            f"COPY (FROM '{source}' ORDER BY {column}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE {GROUP_ROWS})"
        )
        took: list[float] = []
        for sql in logged:
            started = time.perf_counter()
            duck.execute(over(sql, table, f"'{path}'")).fetchall()
            took.append(time.perf_counter() - started)
        times[column] = median(took)
    path.unlink()
    return tuple(sorted(columns, key=times.__getitem__))


def answers(table: str, source: str, queries: Sequence[str]) -> list[list[list[Any]]]:
    """The true answers: a plain scan of the source."""
    import duckdb

    duck = duckdb.connect()
    return [canonical(duck.execute(over(sql, table, f"'{source}'")).fetchall()) for sql in queries]
