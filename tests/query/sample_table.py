"""A small table with every flat type and every awkward value, shared by the tests of planning and binding."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from parquetry.model.schema import Column, TableSchema

_TYPES = {
    "k": "int",
    "g": "int",
    "b": "boolean",
    "i8": "tinyint",
    "i16": "smallint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "s": "string",
    "bin": "binary",
    "dt": "date",
    "ts": "timestamp",
    "tn": "timestamp_ntz",
    "d1": "decimal(15,2)",
    "d2": "decimal(10,4)",
    "d3": "decimal(38,6)",
    "dz": "decimal(18,0)",
    "sp ace": "int",
    "Ünï": "string",
}
SCHEMA = TableSchema(tuple(Column(n, t) for n, t in _TYPES.items()), key=("k",))

_AWKWARD: dict[str, list[Any]] = {
    "b": [True, False],
    "i8": [-128, 127, 0, 1, 3],
    "i16": [-32768, 32767, 0, 5, -7],
    "i": [-(2**31), 2**31 - 1, 0, 1, 2, 3, 5],
    "l": [-(2**63), 2**63 - 1, 0, 1, 4, 5],
    "f": [math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1.5, -2.25],
    "d": [math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1.4, 1e300],
    "s": ["", "abc", "a", "aXc", "é", "日本", "it's", "ABC", "z\U0001f600", "b%", "\uffff", "\U00010000"],
    "bin": [b"", b"\x00", b"\xab", b"\xff\x00", b"a"],
    "dt": [
        date(1969, 12, 31),
        date(2020, 1, 1),
        date(2020, 2, 29),
        date(1998, 9, 2),
        date(1, 1, 1),
        date(9999, 12, 31),
    ],
    "ts": [datetime(2020, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2020, 6, 1, 12, 30)],
    "d1": [
        Decimal("0.05"),
        Decimal("-0.05"),
        Decimal("1.25"),
        Decimal("-3.10"),
        Decimal("-9999999.99"),
        Decimal("0.00"),
    ],
    "d2": [Decimal("0.0500"), Decimal("-0.0001"), Decimal("1.2500"), Decimal("-99999.9999")],
    "d3": [Decimal("0.000001"), Decimal("-1.500000"), Decimal("12345678901234567890.123456")],
    "dz": [Decimal(1), Decimal(-1), Decimal(999999999999999999), Decimal(2)],
}


def sample_rows(rows: int = 60, seed: int = 7) -> pa.Table:
    """``rows`` rows: awkward values first, random ones after, about one in eight null. ``k`` is never null."""
    rng = random.Random(seed)
    columns: dict[str, list[Any]] = {n: [] for n in SCHEMA.names}
    for k in range(rows):
        for name in SCHEMA.names:
            columns[name].append(k if name == "k" else _value(name, k, rng))
    return pa.table({n: pa.array(v, SCHEMA.column(n).arrow) for n, v in columns.items()})


def _value(name: str, k: int, rng: random.Random) -> Any:
    if rng.random() < 0.125:
        return None
    zone = UTC if name == "ts" else None
    awkward = _AWKWARD.get("ts" if name == "tn" else name, [])
    if awkward and (k < len(awkward) or rng.random() < 0.3):
        value = awkward[k] if k < len(awkward) else rng.choice(awkward)
        return value.replace(tzinfo=zone) if isinstance(value, datetime) else value
    cents = Decimal(rng.randint(-500000, 500000))
    made: dict[str, Any] = {
        "g": rng.randint(0, 4),
        "b": rng.random() < 0.5,
        "i8": rng.randint(-20, 20),
        "i16": rng.randint(-100, 100),
        "i": rng.randint(-50, 50),
        "l": rng.randint(-500, 500),
        "f": rng.randint(-40, 40) / 8,
        "d": rng.uniform(-5, 5),
        "s": rng.choice(["abc", "abd", "b", "ß", "zz"]),
        "bin": bytes([rng.randint(0, 255)]),
        "dt": date(2019, 6, 1) + timedelta(days=rng.randint(0, 700)),
        "ts": datetime(2019, 6, 1, tzinfo=zone) + timedelta(minutes=rng.randint(0, 900000)),
        "tn": datetime(2019, 6, 1) + timedelta(minutes=rng.randint(0, 900000)),
        "d1": cents.scaleb(-2),
        "d2": cents.scaleb(-4),
        "d3": cents.scaleb(-6),
        "dz": Decimal(rng.randint(-7, 7)),
        "sp ace": rng.randint(0, 2),
        "Ünï": rng.choice(["x", "ÿ"]),
    }
    return made[name]
