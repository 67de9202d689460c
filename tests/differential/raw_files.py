"""The raw input of the differential tests: Parquet files, one per ingested batch, that plain Spark reads too."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TPCH_KEYS = {
    "region": ["r_regionkey"],
    "nation": ["n_nationkey"],
    "supplier": ["s_suppkey"],
    "customer": ["c_custkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
}
_SPLIT = ("orders", "lineitem")  # come in several batches
ZOO = pa.schema(
    [
        ("name", pa.string()),
        ("x", pa.float64()),
        ("n", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("dec", pa.decimal128(15, 2)),
        ("wide", pa.decimal128(38, 6)),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("dt", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("tn", pa.timestamp("us")),
        ("arr", pa.list_(pa.int32())),
        ("rec", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
ZOO_KEY = ("name", "x", "n")
_MOMENTS = [
    datetime(2020, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2020, 6, 1, 12, 30),
    datetime(1900, 1, 1),
    datetime(2262, 4, 12, 1, 2, 3, 4),
]
_CHOICES: dict[str, list[Any]] = {
    "name": ["", "a", "abc", "e\u0301", "é", "z", "zé", "\uffff", "😀", "\U00010000", "日本", "a\u0000b", "A"],
    "x": [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -2.25, 5e-324],
    "n": [Decimal(v) for v in ("0.00", "-0.01", "-1.50", "-1.51", "-99999999.99", "99999999.99", "3.14", "0.01")],
    "b": [True, False],
    "i8": [-128, 127, 0, 1, 2],
    "i16": [-32768, 32767, 0, 5],
    "i": [-(2**31), 2**31 - 1, 0, 1, 2, 3],
    "l": [-(2**63), 2**63 - 1, 0, 1, 4],
    "f": [math.nan, math.inf, -math.inf, -0.0, 0.0, 0.5, -2.25],
    "d": [math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1.4, -7.75, 1e300],
    "dec": [Decimal(v) for v in ("0.05", "-0.05", "1.25", "-3.10", "-9999999999999.99", "0.00")],
    "wide": [Decimal(v) for v in ("0.000001", "-1.500000", "12345678901234567890123456.123456", "-0.000001")],
    "s": ["", "abc", "é", "e\u0301", "日本", "it's", "ABC", "\uffff", "\U00010000", "%", "_"],
    "bin": [b"", b"\x00", b"\x00\x01", b"\xab", b"\xff\x00", b"\xff", b"a"],
    "dt": [date(1969, 12, 31), date(2020, 1, 1), date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31)],
    "ts": [m.replace(tzinfo=UTC) for m in _MOMENTS],
    "tn": _MOMENTS,
    "arr": [[], [1, None, 3], [7]],
    "rec": [{"a": 1, "b": "é"}, {"a": None, "b": None}, {"a": 2, "b": ""}],
    "m": [[], [("k", 1)], [("k", None), ("l", 2)]],
}


def write_raw_files(folder: Path) -> dict[str, list[Path]]:
    """The files of every table in the order of their batches; each batch is larger than the one before."""
    files = _tpch(folder)
    rng = random.Random(20)
    tables: dict[str, list[pa.Table]] = {"zoo": _zoo(rng)}
    tables["latest"] = [_latest(rng, rows) for rows in (30, 50, 90, 160)]
    tables["sequenced"] = [_sequenced(rng, rows) for rows in (20, 40, 80)]
    tables["totals"] = [_totals(rng, rows) for rows in (40, 60, 110, 200)]
    tables["grown"] = [_grown(rng, rows, later=rows > 30) for rows in (20, 30, 90)]
    for name, batches in tables.items():
        files[name] = [folder / f"{name}-{i}.parquet" for i in range(len(batches))]
        for path, batch in zip(files[name], batches, strict=True):
            # Parquet's min/max leave NaN out, its dictionaries tell -0.0 from 0.0, and Spark trusts both when it skips
            # row groups: the reference would miss rows.
            pq.write_table(batch, path, write_statistics=False, use_dictionary=False)
    return files


def _tpch(folder: Path) -> dict[str, list[Path]]:
    tool = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([tool, "parquet", "-s", "0.01", "--output-dir", folder], check=True, capture_output=True)
    files = {name: [folder / f"{name}.parquet"] for name in TPCH_KEYS}
    for name in _SPLIT:
        whole = _without_views(pq.read_table(files[name][0]))
        files[name][0].unlink()
        files[name] = []
        for i, digits in enumerate(({0}, {1, 4, 7}, {2, 3, 5, 6, 8, 9})):
            rows = pa.array([r for r in range(whole.num_rows) if r % 10 in digits])
            files[name].append(folder / f"{name}-{i}.parquet")
            pq.write_table(whole.take(rows), files[name][-1])
    return files


def _without_views(table: pa.Table) -> pa.Table:
    """String views as strings: pyarrow cannot take rows of the former."""
    fields = [f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def _zoo(rng: random.Random) -> list[pa.Table]:
    """Every choice of every column at least once, other columns at random; values are null now and then."""
    batches = []
    for rows in (15, 30, 60):
        made = []
        for r in range(rows):
            row = {n: rng.choice(c) if n in ZOO_KEY or rng.random() > 0.15 else None for n, c in _CHOICES.items()}
            name = rng.choice(list(_CHOICES))
            row[name] = _CHOICES[name][r % len(_CHOICES[name])]
            made.append(row)
        batches.append(pa.Table.from_pylist(made, schema=ZOO))
    return batches


def _table(rows: Sequence[Mapping[str, Any]], **types: pa.DataType) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(types.items())))


def _or_null(rng: random.Random, value: Any) -> Any:
    return None if rng.random() < 0.15 else value


def _latest(rng: random.Random, rows: int) -> pa.Table:
    made = [
        {
            "id": rng.randint(0, 30),
            "who": rng.choice(["a", "é", "😀", ""]),
            "v": _or_null(rng, rng.randint(0, 200)),
            "note": _or_null(rng, rng.choice(["x", "日本", ""])),
        }
        for _ in range(rows)
    ]
    return _table(made, id=pa.int32(), who=pa.string(), v=pa.int64(), note=pa.string())


def _sequenced(rng: random.Random, rows: int) -> pa.Table:
    made = [
        {
            "id": rng.randint(-20, 20),
            "seq": _or_null(rng, rng.randint(0, 99) // 10 * 10),  # many equal ones: then the later row wins
            "v": rng.randint(0, 99),
            "w": _or_null(rng, rng.choice([math.nan, -0.0, 1.5])),
        }
        for _ in range(rows)
    ]
    return _table(made, id=pa.int64(), seq=pa.int32(), v=pa.int64(), w=pa.float64())


def _totals(rng: random.Random, rows: int) -> pa.Table:
    """Without the column ``n``, which counts the rows of a key."""
    made = [
        {
            "day": date(2024, 1, 1) + timedelta(days=rng.randint(0, 5)),
            "shop": rng.choice(["店", "b", "c", "é", "e\u0301"]),
            "amount": _or_null(rng, rng.randint(-50, 50)),
            "cents": _or_null(rng, Decimal(rng.randint(-9999, 9999)).scaleb(-2)),
            "lowest": _or_null(rng, rng.randint(-1000, 1000)),
            "highest": _or_null(rng, rng.choice([math.nan, -0.0, 0.0, 1.5, 2.75, -math.inf])),
            "note": _or_null(rng, f"n{rng.randint(0, 9)}"),
        }
        for _ in range(rows)
    ]
    types = {"day": pa.date32(), "shop": pa.string(), "amount": pa.int64(), "cents": pa.decimal128(12, 2)}
    return _table(made, **types, lowest=pa.int16(), highest=pa.float64(), note=pa.string())


def _grown(rng: random.Random, rows: int, *, later: bool) -> pa.Table:
    made = [{"id": rng.randint(0, 9), "v": rng.randint(0, 9), "later": _or_null(rng, "x")} for _ in range(rows)]
    types = {"id": pa.int32(), "v": pa.int32()} | ({"later": pa.string()} if later else {})
    return _table([{n: r[n] for n in types} for r in made], **types)
