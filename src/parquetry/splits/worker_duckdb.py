"""DuckDB in a worker: one thread, a share of the machine's memory, and disk beyond that."""

from __future__ import annotations

import tempfile
from typing import Any

from parquetry.spark import machine_cores, machine_memory


def worker_memory() -> int:
    """As if every core ran a worker."""
    return machine_memory() // (2 * machine_cores())


def connect_in_worker() -> Any:
    import duckdb

    limits = {"memory_limit": f"{worker_memory() >> 20}MB", "temp_directory": tempfile.gettempdir()}
    connection = duckdb.connect(config={"threads": 1, **limits})
    connection.execute("SET TimeZone = 'UTC'")
    return connection
