"""The tables that fuzzed queries read: small, in many deltas and row groups, filled without a JVM.

Floats are multiples of a quarter, so that sums are exact in any order; NaN, infinity and both zeros are among them.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import parquetry
from parquetry.model.types import arrow_type
from parquetry.warehouse import Warehouse
from tests.views.without_spark import ingest, publish

TABLES: dict[str, dict[str, str]] = {
    "t": {
        "k": "int",
        "g": "string",
        "d": "double",
        "f": "float",
        "n": "decimal(10,2)",
        "s": "string",
        "dt": "date",
        "ts": "timestamp",
        "b": "boolean",
        "l": "bigint",
    },
    "u": {"id": "int", "who": "string", "v": "bigint", "w": "double"},
    "w": {"k": "int", "x": "double", "name": "string", "since": "date"},
}
KEYS = {"t": ["k"], "u": ["id", "who"], "w": ["name"]}
MODELS = {"t": "append", "u": "upsert", "w": "append"}
_SETTINGS = {"row_group_rows": 5, "leaf_capacity": 2, "compaction_width": 100, "max_query_deltas": 40}

INTS = [0, 1, 2, 5, 7, 13, 42, 99, 150, 199, -1]
FLOATS = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 0.25, -0.25, 1.5, 2.75, -7.5, 40.0]
DECIMALS = [Decimal(v) for v in ("0.00", "-0.01", "1.25", "-3.10", "99.99", "1000.00", "0.05")]
STRINGS = ["", "a", "abc", "b", "it's", "é", "e\u0301", "日本", "😀", "x${y}", "A", "%", "_", "a\\b", "null"]
DAYS = [date(2024, 1, 1) + timedelta(days=i) for i in (0, 1, 5, 30, 59, 60, 365)] + [date(1969, 12, 31)]
TIMES = [datetime(2024, 1, 1, h, 30, tzinfo=UTC) for h in (0, 1, 12, 23)] + [
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
]
VALUES: dict[str, list[Any]] = {
    "int": INTS,
    "bigint": [*INTS, 2**40, -(2**40)],
    "double": FLOATS,
    "float": FLOATS,
    "decimal(10,2)": DECIMALS,
    "string": STRINGS,
    "date": DAYS,
    "timestamp": TIMES,
    "boolean": [True, False],
}


def batches() -> list[tuple[str, pa.Table]]:
    """(table, rows) in the order of their commits; most deltas of ``t`` and ``w`` hold keys that no other has."""
    rng = random.Random("rows")
    made: list[tuple[str, pa.Table]] = []
    for i in range(10):
        made.append(("t", _rows(rng, "t", 20, k=lambda r, i=i: 20 * i + r)))
    made.append(("t", _rows(rng, "t", 12, k=lambda r: 17 * r)))
    for i in range(4):
        made.append(("u", _rows(rng, "u", 15, id=lambda r, i=i: 6 * i + r)))
    for letter in "abeé":
        made.append(("w", _rows(rng, "w", 8, name=lambda r, c=letter: f"{c}{r}")))
    return made


def _rows(rng: random.Random, table: str, rows: int, **given: Any) -> pa.Table:
    columns = {}
    for name, type_ in TABLES[table].items():
        values = [
            given[name](r)
            if name in given
            else None
            if name not in KEYS[table] and rng.random() < 0.12
            else rng.choice(VALUES[type_])
            for r in range(rows)
        ]
        columns[name] = pa.array(values, arrow_type(type_))
    return pa.table(columns)


def visible() -> dict[str, pa.Table]:
    """What queries should see: all rows of the append tables, the latest row of each key of ``u``."""
    whole = {name: pa.concat_tables([rows for table, rows in batches() if table == name]) for name in TABLES}
    latest = {tuple(row[k] for k in KEYS["u"]): row for row in whole["u"].to_pylist()}
    whole["u"] = pa.Table.from_pylist(list(latest.values()), schema=whole["u"].schema)
    return whole


def fill(folder: Path) -> None:
    """Makes the warehouse in ``folder``."""
    with parquetry.connect(folder) as wh:
        create(wh)
        for i, (table, rows) in enumerate(batches()):
            ingest(wh, table, rows, str(i))
        publish(wh)


def create(wh: Warehouse) -> None:
    for name, columns in TABLES.items():
        ddl = ", ".join(f"{n} {t}" for n, t in columns.items())
        wh.create_table(name, ddl, key=KEYS[name], model=MODELS[name], settings=_SETTINGS)
