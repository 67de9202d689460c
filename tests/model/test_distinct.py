"""Sketches of distinct values: Spark's own answers from registers, whatever way they were merged."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.errors import SchemaError
from parquetry.model.distinct import SKETCH, SKETCH_TYPE, estimate_text, merged_text
from parquetry.model.schema import Column, TableSchema
from parquetry.storage.merge import merge_sql

SPARK_SAYS = [
    (0, 0),
    (1, 1),
    (2, 2),
    (5, 5),
    (20, 20),
    (100, 103),
    (300, 296),
    (500, 484),
    (700, 698),
    (900, 919),
    (1100, 1089),
    (1200, 1171),
    (1250, 1223),
    (1280, 1249),
    (1300, 1260),
    (1400, 1327),
    (1600, 1493),
    (1900, 1825),
    (2200, 2076),
    (2400, 2262),
    (2500, 2378),
    (2550, 2419),
    (2600, 2483),
    (3000, 2770),
    (5000, 4671),
    (20000, 19522),
    (1000000, 925738),
]
"""approx_count_distinct(id) of the first n whole numbers, as Spark 4 answers."""
_PRIMES = [0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5]


def hashes(values: np.ndarray) -> np.ndarray:
    """XXH64 of 64-bit integers with Spark's seed."""
    p1, p2, p3, p4, p5 = (np.uint64(p) for p in _PRIMES)

    def rotated(x: np.ndarray, by: int) -> np.ndarray:
        return (x << np.uint64(by)) | (x >> np.uint64(64 - by))

    with np.errstate(over="ignore"):
        h = np.full(len(values), np.uint64(42) + p5 + np.uint64(8))
        h ^= rotated(values.astype(np.int64).view(np.uint64) * p2, 31) * p1
        h = rotated(h, 27) * p1 + p4
        for shift, factor in ((33, p2), (29, p3)):
            h = (h ^ (h >> np.uint64(shift))) * factor
        return h ^ (h >> np.uint64(32))


def numbers(values: np.ndarray) -> np.ndarray:
    """What each value adds to a sketch."""
    h = hashes(values)
    with np.errstate(over="ignore"):
        rest = (h << np.uint64(9)) | np.uint64(256)
    zeros = np.array([64 - int(r).bit_length() for r in rest], int)
    return ((h >> np.uint64(55)).astype(int) * 64 + zeros + 1).astype(np.int16)


def sketch(values: np.ndarray) -> list[int]:
    highest: dict[int, int] = {}
    for n in numbers(values).tolist():
        highest[n >> 6] = max(highest.get(n >> 6, 0), n)
    return sorted(highest.values())


def one(statement: str, lists: list[list[int]]) -> Any:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("t", pa.table({"s": pa.array(lists, pa.list_(pa.int16()))}))
        return connection.sql(statement).fetchall()[0][0]


@pytest.mark.parametrize(("count", "answer"), SPARK_SAYS)
def test_the_estimate_is_sparks(count: int, answer: int) -> None:
    made = sketch(np.arange(count))
    assert one(f"SELECT {estimate_text('s', duck=True)} FROM t", [made]) == answer


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3_000), max_size=200), min_size=1, max_size=5), st.booleans())
def test_any_cut_of_the_values_merges_to_the_same_sketch(parts: list[list[int]], singly: bool) -> None:
    whole = sketch(np.array([v for p in parts for v in p], int))
    pieces = (
        [[n] for p in parts for n in numbers(np.array(p, int)).tolist()]
        if singly
        else [sketch(np.array(p, int)) for p in parts]
    )
    assert (one(f"SELECT {merged_text('s', duck=True)} FROM t", pieces) or []) == whole


def test_sketches_merge_beside_other_values() -> None:
    schema = TableSchema(
        (Column("g", "int"), Column("n", "bigint"), Column("d", SKETCH_TYPE)),
        ("g",),
        "aggregate",
        {"n": "sum", "d": SKETCH},
        None,
        True,
    )
    rows = pa.table(
        {
            "g": pa.array([1, 1, None], pa.int32()),
            "n": [1, 2, 3],
            "d": pa.array([[65, 130], [66], []], pa.list_(pa.int16())),
        }
    )
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        found = connection.sql(f"{merge_sql(schema, 'rows')} ORDER BY g").fetchall()
    assert found == [(1, 3, [66, 130]), (None, 3, [])]


def test_only_views_store_sketches() -> None:
    with pytest.raises(SchemaError, match="needs a merge"):
        TableSchema((Column("g", "int"), Column("d", SKETCH_TYPE)), ("g",), "aggregate", {"d": SKETCH})
