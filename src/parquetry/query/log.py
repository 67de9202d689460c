"""The query log: what every query asked and read. Written in batches, so a lookup never waits for the catalog."""

from __future__ import annotations

import threading
import time
from typing import Any

from parquetry.catalog import Catalog
from parquetry.errors import CatalogError
from parquetry.query.plan import Plan

_FLUSH_ROWS = 200
_FLUSH_S = 2.0


class QueryLog:
    """Keeps rows for at most a moment; ``flush`` writes what is waiting. A lost catalog loses only log rows."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._waiting: list[dict[str, Any]] = []
        self._flushed = time.monotonic()

    def add(self, plan: Plan, stats: dict[str, Any]) -> None:
        asked = plan.asked or plan.bound
        row = {
            "at": time.time(),
            "sql": asked.sql,
            "tables": sorted({*plan.tables, *(r.table for r in asked.refs)}),
            "executor": stats["executor"],
            "qt": stats["qt"],
            "elapsed_ms": stats["elapsed_ms"],
            "plan_ms": stats["plan_ms"],
            "rows_out": stats["rows_out"],
            "bytes_read": stats["bytes_read"],
            "stats": stats,
            "shape": [{"table": r.table, "columns": list(r.columns), "filters": list(r.filters)} for r in asked.refs],
        }
        with self._lock:
            self._waiting.append(row)
            due = len(self._waiting) >= _FLUSH_ROWS or time.monotonic() - self._flushed > _FLUSH_S
        if due:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            rows, self._waiting = self._waiting, []
            self._flushed = time.monotonic()
            if rows:
                self._catalog.log_queries(rows)

    def close(self) -> None:
        try:
            self.flush()
        except CatalogError:
            pass
