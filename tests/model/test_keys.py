"""Normalized keys order as Spark's ORDER BY, and a prefix of columns is a prefix of bytes."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.errors import SchemaError
from parquetry.model.keys import block_prefix, encode_keys, encode_value, is_value_of, successor

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text("a\x00\x01\xff\U0010ffff", max_size=4)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(5, 2): st.decimals(-999, 999, places=2),
    pa.decimal128(38, 4): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-4")),
    pa.string(): TEXT,
    pa.binary(): st.binary(max_size=5) | st.text("\x00\x01\xff", max_size=4).map(lambda s: s.encode("latin-1")),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("us"): st.datetimes(),
}

EXAMPLES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False, True],
    pa.float32(): [1.5, -0.5, math.nan],
    pa.float64(): [1.5, -0.5, math.nan],
    pa.decimal128(5, 2): [Decimal("1.50"), Decimal("-2.00"), Decimal(0)],
    pa.decimal128(38, 4): [Decimal("1.5"), Decimal("-2"), Decimal(0)],
    pa.string(): ["", "a\0b", "é"],
    pa.binary(): [b"", b"\0", b"\xff"],
    pa.date32(): [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us", tz="UTC"): [datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1970, 9999)],
    pa.timestamp("us"): [datetime(year, 1, 1) for year in (1, 1970, 9999)],
}
EXAMPLES |= {t: [1, -1, 100] for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}


def spark_order(value: Any) -> Any:
    """A sort key for Spark's ascending order, nulls first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, 1, 0.0) if math.isnan(value) else (1, 0, value + 0.0)
    return (1, value.encode() if isinstance(value, str) else value)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_byte_order_is_the_order_of_spark(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*[st.none() | VALUES[t] for t in types]), min_size=2, max_size=12))
    keys = encode_keys([pa.array([r[i] for r in rows], t) for i, t in enumerate(types)]).to_pylist()
    orders = [tuple(map(spark_order, r)) for r in rows]
    for a, x in zip(keys, orders, strict=True):
        for b, y in zip(keys, orders, strict=True):
            assert (a < b, a == b) == (x < y, x == y)


@given(st.data())
@settings(deadline=None)
def test_a_prefix_of_columns_is_a_prefix_of_bytes_and_of_no_other_key(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=3))
    a, b = (data.draw(st.tuples(*[st.none() | VALUES[t] for t in types])) for _ in range(2))
    whole = encode_keys([pa.array([v], t) for v, t in zip(a, types, strict=True)], block_prefix(7))[0].as_py()
    first = block_prefix(7) + encode_value(b[0], types[0])
    assert whole.startswith(first) == (spark_order(a[0]) == spark_order(b[0]))


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_slices_and_empty_columns_encode_as_their_values(kind: pa.DataType) -> None:
    values = [None, *EXAMPLES[kind], None]
    array = pa.array(values, kind)
    assert encode_keys([array.slice(2)]).to_pylist() == [encode_value(v, kind) for v in values[2:]]
    assert encode_keys([array.slice(5)]).to_pylist() == []


def test_duckdb_sorts_the_same() -> None:
    import duckdb

    table = pa.table(
        {
            "f": pa.array([1.5, None, math.nan, -math.inf, math.inf, -0.0, 0.0, -2.5] * 4),
            "s": pa.array(["b", "", None, "a\x00b", "a", "é", "\U0001f600", "\uffff"] * 3 + ["z"] * 8),
            "d": pa.array([Decimal(n) / 100 for n in range(-16, 16)], pa.decimal128(9, 2)),
        }
    )
    table = table.append_column("k", encode_keys(table.columns))
    con = duckdb.connect()
    con.register("t", table)
    by_values = con.execute("SELECT k FROM t ORDER BY f NULLS FIRST, s NULLS FIRST, d NULLS FIRST").fetchall()
    assert [k for (k,) in by_values] == sorted(table["k"].to_pylist())


def test_long_strings_keep_their_order() -> None:
    long = "x" * 1_000_000
    keys = encode_keys([pa.array([long, long + "\x00", long + "a", long[:-1]])]).to_pylist()
    assert sorted(keys) == [keys[3], keys[0], keys[1], keys[2]]


@given(st.binary(max_size=4), st.binary(max_size=4), st.binary(max_size=2))
def test_successor_is_the_least_bound_above_a_prefix(prefix: bytes, other: bytes, tail: bytes) -> None:
    after = successor(prefix)
    assert (after is None) == (not prefix.strip(b"\xff"))
    if after is not None:
        assert prefix + tail < after
        assert other < after or other > prefix
        assert not (prefix < other < after) or other.startswith(prefix)


def test_blocks_order_before_keys() -> None:
    assert block_prefix(0) == b"\0\0\0\0" < block_prefix(255) < block_prefix(256)
    with pytest.raises(SchemaError, match="out of range"):
        block_prefix(2**32)


def test_a_nested_column_is_no_key() -> None:
    with pytest.raises(SchemaError, match="cannot be part of a key"):
        encode_keys([pa.array([[1]])])


def test_known_bytes_stay_as_they_are_because_files_hold_them() -> None:
    assert encode_value(-1, pa.int32()).hex() == "017fffffff"
    assert encode_value("a\0", pa.string()).hex() == "016100ff0000"
    assert encode_value(1.0, pa.float64()).hex() == "01bff0000000000000"
    assert encode_value(Decimal("1.00"), pa.decimal128(5, 2)).hex() == "01" + "80" + "00" * 14 + "64"
    assert encode_value(date(1970, 1, 2), pa.date32()).hex() == "0180000001"
    assert encode_value(datetime(1970, 1, 1, tzinfo=UTC), pa.timestamp("us", tz="UTC")).hex() == "018000000000000000"
    assert encode_value(True, pa.bool_()).hex() == "0101"


@pytest.mark.parametrize("kind", EXAMPLES, ids=str)
def test_only_values_that_compare_exactly_are_values_of_a_type(kind: pa.DataType) -> None:
    assert all(is_value_of(v, kind) for v in EXAMPLES[kind])
    strange = ["1", b"1", 1.5, True, Decimal("1.5"), date(2020, 1, 1), datetime(2020, 1, 1), 2**60]
    accepted = [v for v in strange if is_value_of(v, kind)]
    assert all(type(v) in {type(x) for x in EXAMPLES[kind]} or (v == 2**60 and kind != pa.float64()) for v in accepted)
    assert not is_value_of(Decimal("NaN"), kind)
