"""ClickHouse in the process (chdb): MergeTree in the best single order, with min-max indexes on the other filters.

Its materialized views are AggregatingMergeTree tables that every insert adds to.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.peers._model import Answer, Stored, Table, View, arrow_rows, over

_DATABASE = "peers"
_FEW = 1_000
_AS_IN_SQL = " SETTINGS aggregate_functions_null_for_empty = 1"  # else the sum of no rows is 0
_READ = "SELECT sum(value) FROM system.events WHERE event = 'ReadCompressedBytes'"


class ClickHouse:
    """Ways of storing: ``mergetree``; ``views``, with materialized views that answer; and for tables with changing keys
    ``replacing``, which is asked with FINAL."""

    def __init__(self, folder: Path) -> None:
        from chdb.session import Session

        self._with_views: dict[str, Table] = {}
        self._session: Any = Session(str(folder))
        self._session.query(f"CREATE DATABASE IF NOT EXISTS {_DATABASE} ENGINE = Atomic")

    def versions(self) -> dict[str, str]:
        import chdb

        return {"chdb": chdb.__version__, "clickhouse": self._text("SELECT version()")}

    def load(self, table: Table, how: str) -> Stored:
        self.create(table, how)
        ingest_s = self.append(table, how, table.source)
        names = [self._name(table.name, how), *(self._view(table, v) for v in table.views if how == "views")]
        rewrite_s = sum(self._timed(f"OPTIMIZE TABLE {name} FINAL") for name in names)
        return self.stored(table, how, ingest_s, rewrite_s)

    def create(self, table: Table, how: str) -> None:
        name = self._name(table.name, how)
        engine = "ReplacingMergeTree" if how == "replacing" else "MergeTree"
        order = ", ".join(table.key if how == "replacing" else table.sort)
        # No table here has nulls, and columns that might have some cost ClickHouse time.
        columns = f"SELECT * FROM file('{table.source}', Parquet) SETTINGS schema_inference_make_columns_nullable = 0"
        self._session.query(f"CREATE TABLE {name} ENGINE = {engine} ORDER BY ({order}) EMPTY AS {columns}")
        for column in self._few_values(name, table.source):
            self._session.query(f"ALTER TABLE {name} MODIFY COLUMN {column} LowCardinality(String)")
        for column in table.filters:
            if column not in order.split(", ")[:1]:
                self._session.query(f"ALTER TABLE {name} ADD INDEX minmax_{column} {column} TYPE minmax GRANULARITY 1")
        if how == "views":
            self._with_views[table.name] = table
            for view in table.views:
                self._create_view(table, view)

    def append(self, table: Table, how: str, path: str) -> float:
        return self._timed(f"INSERT INTO {self._name(table.name, how)} SELECT * FROM file('{path}', Parquet)")

    def upsert(self, table: Table, how: str, path: str) -> float:
        return self.append(table, how, path)

    def stored(self, table: Table, how: str, ingest_s: float = 0.0, rewrite_s: float = 0.0) -> Stored:
        size, parts = self._text(
            "SELECT sum(bytes_on_disk), count() FROM system.parts "
            f"WHERE active AND database = '{_DATABASE}' AND {self._parts(table, how)}"
        ).split("\t")
        return Stored(int(size), int(parts), None, ingest_s, rewrite_s)

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        import pyarrow as pa

        before = int(self._text(_READ)) if measure else 0
        if how == "views":
            text = self._with_views[table].over_view(sql, f"{_DATABASE}.{table}_{{}}")
        else:
            text = over(sql, table, self._name(table, how) + (" FINAL" if how == "replacing" else ""))
        text += _AS_IN_SQL
        started = time.perf_counter()
        found = pa.ipc.open_stream(self._session.query(text, "ArrowStream").bytes()).read_all()
        ms = (time.perf_counter() - started) * 1e3
        return Answer(arrow_rows(found), ms, int(self._text(_READ)) - before if measure else None)

    def close(self) -> None:
        self._session.close()

    def _few_values(self, name: str, source: str) -> list[str]:
        """Text columns that ClickHouse stores best by numbers."""
        database, _, table = name.partition(".")
        texts = self._text(
            "SELECT name FROM system.columns WHERE type = 'String' AND is_in_sorting_key = 0 "
            f"AND database = '{database}' AND table = '{table}'"
        ).split()
        counts = ", ".join(f"uniq({c})" for c in texts)
        found = self._text(f"SELECT {counts} FROM file('{source}', Parquet)").split("\t") if texts else []
        return [c for c, n in zip(texts, found, strict=True) if int(n) < _FEW]

    def _create_view(self, table: Table, view: View) -> None:
        groups = ", ".join(view.groups)
        sums = ", ".join(f"sumSimpleState({c}) AS {c}" for c in view.sums)
        self._session.query(
            f"CREATE MATERIALIZED VIEW {self._view(table, view)} ENGINE = AggregatingMergeTree ORDER BY ({groups}) AS "
            f"SELECT {groups}, {sums}, sumSimpleState(toUInt64(1)) AS n FROM {self._name(table.name, 'views')} "
            f"GROUP BY {groups}"
        )

    def _parts(self, table: Table, how: str) -> str:
        """The parts of a table; a materialized view's own table has a name of ClickHouse's making."""
        return f"(table = '{table.name}_{how}'" + (" OR table LIKE '.inner%')" if how == "views" else ")")

    def _view(self, table: Table, view: View) -> str:
        return f"{_DATABASE}.{table.name}_{view.name}"

    def _timed(self, sql: str) -> float:
        started = time.perf_counter()
        self._session.query(sql)
        return time.perf_counter() - started

    def _text(self, sql: str) -> str:
        return str(self._session.query(sql, "TSV").bytes().decode().strip())

    def _name(self, table: str, how: str) -> str:
        return f"{_DATABASE}.{table}_{how}"


def open_system(folder: str) -> ClickHouse:
    return ClickHouse(Path(folder))
