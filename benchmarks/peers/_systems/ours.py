"""Parquetry through its public functions, on both executors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import parquetry
from benchmarks.peers._model import Answer, Stored, Table, arrow_rows, stored_files
from parquetry import RelayoutOptions


@dataclass(frozen=True)
class Layout:
    """How a table is laid out: a learner with its options, from the logged queries in a file."""

    learner: str
    log: Path
    options: RelayoutOptions
    settings: Mapping[str, Any] = field(default_factory=dict)


class Ours:
    """Ways of storing: ``key``, or one of ``layouts``; a table's views are kept with it.

    ``executor`` is Parquetry's own: ``auto`` or ``spark``.
    """

    def __init__(self, wh: parquetry.Warehouse, executor: str = "auto") -> None:
        self._wh, self._executor = wh, executor
        self.layouts: dict[str, Layout] = {}
        self.upkeep_s: list[float] = []  # of every batch

    def versions(self) -> dict[str, str]:
        return {"parquetry": parquetry.__version__, "spark": self._wh.spark.version}

    def load(self, table: Table, how: str) -> Stored:
        self.create(table, how)
        ingest_s = self.append(table, how, table.source)
        started = time.perf_counter()
        if how in self.layouts:
            layout = self.layouts[how]
            self._wh.change_settings(table.name, **layout.settings)
            self._wh.relayout(table.name, layout.learner, workload=layout.log, options=layout.options)
        for view in table.views:
            self._wh.create_view(view.name, view.sql(table.name))
            self._wh.maintain()
        return self.stored(table, how, ingest_s, time.perf_counter() - started)

    def create(self, table: Table, how: str) -> None:
        settings = {} if how in self.layouts else {"row_group_rows": table.group_rows}
        schema = pq.read_schema(table.source)
        self._wh.create_table(table.name, schema, key=list(table.key), model=table.model, settings=settings)

    def append(self, table: Table, how: str, path: str) -> float:
        """A batch is visible once the QT has moved, so that counts too. Compaction comes behind it: ``upkeep_s``."""
        started = time.perf_counter()
        batch = self._wh.ingest(table.name, path)
        visible = 0.0
        for _ in self._wh.maintaining():
            if not visible and self._wh.catalog.state().qt >= batch.t:
                visible = time.perf_counter()
        ended = time.perf_counter()
        visible = visible or ended
        self.upkeep_s.append(ended - visible)
        return visible - started

    def upsert(self, table: Table, how: str, path: str) -> float:
        return self.append(table, how, path)

    def stored(self, table: Table, how: str, ingest_s: float = 0.0, rewrite_s: float = 0.0) -> Stored:
        self._wh.vacuum(grace_s=0)
        deltas = self._wh.catalog.state().table(table.name).deltas
        return stored_files([self._wh.store.url(f.path) for d in deltas for f in d.files], ingest_s, rewrite_s)

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        started = time.perf_counter()
        result = self._wh.sql(sql, executor=self._executor)
        rows = result.arrow()
        ms = (time.perf_counter() - started) * 1e3
        s = result.stats
        return Answer(arrow_rows(rows), ms, s["bytes_read"], s["files_read"], s["plan_ms"])

    def close(self) -> None:
        """The warehouse belongs to whoever opened it."""
