"""The query log: what every query asked and read. Written beside the queries: none waits for the catalog."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from parquetry.catalog import Catalog, QueryRow
from parquetry.errors import CatalogError
from parquetry.model.predicate import ANYTHING
from parquetry.query.demands import shape_of
from parquetry.query.planning.plan import Plan

_FLUSH_ROWS = 256  # to write few takes as long as to write many
_FLUSH_S = 2.0
_MOST_WAITING = 10_000  # while the catalog does not answer; the oldest go


class QueryLog:
    """Keeps rows for at most a moment; a thread of its own writes them. A lost catalog loses only log rows."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: list[QueryRow] = []
        self._due = threading.Event()
        self._closed = False
        self._writer: threading.Thread | None = None

    def add(self, plan: Plan, stats: dict[str, Any]) -> None:
        asked = plan.asked or plan.bound
        tables = sorted({*plan.tables, *(r.table for r in asked.refs)})
        induced = plan.induced or (ANYTHING,) * len(asked.refs)
        shape = [shape_of(r, told) for r, told in zip(asked.refs, induced, strict=True)]
        row = QueryRow.of(time.time(), asked.sql, tables, shape, stats)
        with self._lock:
            self._waiting.append(row)
            del self._waiting[:-_MOST_WAITING]
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="parquetry query log", daemon=True)
                self._writer.start()
        if len(self._waiting) >= _FLUSH_ROWS:
            self._due.set()

    def flush(self) -> None:
        """Returns when everything that was added before is in the catalog."""
        with self._writing:
            with self._lock:
                rows, self._waiting = self._waiting, []
            if rows:
                self._catalog.log_queries(rows)

    def close(self) -> None:
        self._closed = True
        self._due.set()
        with suppress(CatalogError):
            self.flush()
        if self._writer is not None and self._writer is not threading.current_thread():
            self._writer.join(_FLUSH_S)

    def _write(self) -> None:
        while not self._closed:
            self._due.wait(_FLUSH_S)
            self._due.clear()
            with suppress(Exception):  # whatever is wrong with these rows or the catalog, the next ones are written
                self.flush()
