"""Prefix key ranges hold every row that satisfies the predicate, and no more than a prefix can tell."""

from __future__ import annotations

import pyarrow as pa
import pytest

from parquetry.model import key_ranges as module
from parquetry.model.key_ranges import key_ranges
from parquetry.model.keys import block_prefix, encode_value, successor
from parquetry.model.predicate import ANYTHING, And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.schema import Column, TableSchema

SCHEMA = TableSchema(
    (Column("a", "int"), Column("b", "string"), Column("c", "int"), Column("v", "double")), ("a", "b", "c")
)
TYPES = [pa.int32(), pa.string(), pa.int32()]


def eq(column: str, *values: object) -> OneOf:
    return OneOf(column, frozenset(values))


def prefix(*values: object, block: int = 0) -> bytes:
    return block_prefix(block) + b"".join(map(encode_value, values, TYPES))


def whole(*values: object, block: int = 0) -> tuple[bytes, bytes | None]:
    return prefix(*values, block=block), successor(prefix(*values, block=block))


def holds(ranges: list[tuple[bytes, bytes | None]] | None, key: bytes) -> bool:
    return ranges is None or any(lo <= key and (hi is None or key < hi) for lo, hi in ranges)


def test_no_condition_on_the_first_key_column_is_the_whole_table() -> None:
    for p in (ANYTHING, Anything("udf"), eq("b", "x"), Range("v", 1.0), Or((eq("a", 1), eq("b", "x"))), And(())):
        assert key_ranges(p, SCHEMA) is None


def test_nothing_and_contradictions_allow_no_key() -> None:
    contradictions: list[Predicate] = [
        Nothing(),
        And((eq("a", 1), Nothing())),
        And((eq("a", 1), eq("a", 2))),
        And((Range("a", 5), Range("a", None, 4))),
        And((ANYTHING, eq("a", 1), eq("c"))),
        Or(()),
    ]
    for p in contradictions:
        assert key_ranges(p, SCHEMA) == []


def test_equalities_multiply_out_and_a_range_ends_the_prefix() -> None:
    p = And((eq("a", 1, 2), eq("b", "x", "y"), Range("c", 5, 9), Range("v", 0.0)))
    ranges = key_ranges(p, SCHEMA)
    assert ranges is not None
    assert len(ranges) == 4
    assert ranges[0] == (prefix(1, "x", 5), successor(prefix(1, "x", 9)))
    assert key_ranges(And((Range("a", 1, 2), eq("b", "x"))), SCHEMA) == [(prefix(1), successor(prefix(2)))]


def test_a_gap_stops_the_prefix() -> None:
    assert key_ranges(And((eq("a", 1), eq("c", 3))), SCHEMA) == [whole(1)]


def test_open_and_unbounded_ranges_leave_out_what_they_exclude() -> None:
    ranges = key_ranges(Range("a", 1, 4, lo_open=True, hi_open=True), SCHEMA)
    held = [n for n in range(7) if holds(ranges, prefix(n, "x", 0))]
    assert held == [2, 3]
    ranges = key_ranges(And((eq("a", 1), Range("b", "m", None, lo_open=True))), SCHEMA)
    assert not holds(ranges, prefix(1, "m", 0))
    assert holds(ranges, prefix(1, "m\0", 0))
    assert holds(ranges, prefix(1, "z", 0))
    assert not holds(ranges, prefix(2, "a", 0))
    assert not holds(ranges, prefix(1))


def test_a_range_of_many_values_is_no_point() -> None:
    ranges = key_ranges(And((Range("a", 0xFF, 0x1FF, lo_open=True), eq("b", "x"))), SCHEMA)
    assert all(holds(ranges, prefix(n, "x", 1)) for n in (0x100, 0x1AB, 0x1FF))
    assert key_ranges(And((Range("a", 7, 7), eq("b", "x"))), SCHEMA) == [whole(7, "x")]


def test_alternatives_unite_sorted_and_merged() -> None:
    p = And((Or((eq("a", 3), eq("a", 1), Range("a", 1, 2))), eq("b", "x")))
    assert key_ranges(p, SCHEMA) == [(prefix(1), successor(prefix(2))), whole(3, "x")]


def test_every_block_of_a_layout_has_its_ranges() -> None:
    assert key_ranges(eq("a", 1), SCHEMA, blocks=[4, 2]) == [whole(1, block=2), whole(1, block=4)]


def test_null_conditions_are_ranges_too() -> None:
    assert key_ranges(IsNull("a"), SCHEMA) == [whole(None)]
    ranges = key_ranges(NotNull("a"), SCHEMA)
    assert not holds(ranges, prefix(None, "x"))
    assert holds(ranges, prefix(-(2**31)))
    assert holds(ranges, prefix(2**31 - 1))


def test_too_many_ranges_become_one_that_covers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RANGES", 8)
    p = And((eq("a", 1, 3, 5), eq("b", "p", "q", "r")))
    ranges = key_ranges(p, SCHEMA)
    assert ranges is not None
    assert len(ranges) == 3
    assert ranges[0] == (prefix(1, "p"), successor(prefix(1, "r")))
    assert key_ranges(eq("a", *range(0, 40, 2)), SCHEMA) == [(prefix(0), successor(prefix(38)))]
    assert key_ranges(Or(tuple(eq("a", n) for n in range(0, 40, 2))), SCHEMA) is None


def test_with_very_many_blocks_only_what_matches_nothing_is_worth_looking_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RANGES", 8)
    covering = [(prefix(1, block=b), successor(prefix(9, block=b))) for b in range(4)]
    assert key_ranges(eq("a", 1, 5, 9), SCHEMA, blocks=range(4)) == covering
    assert key_ranges(eq("a", 1), SCHEMA, blocks=range(9)) is None
    assert key_ranges(And((eq("a", 1), eq("a", 2))), SCHEMA, blocks=range(9)) == []


def test_a_value_that_does_not_fit_the_column_tells_nothing() -> None:
    assert key_ranges(Range("a", 2**40), SCHEMA) is None
    assert key_ranges(And((eq("a", 1), eq("b", 5))), SCHEMA) == [whole(1)]


def test_doubles_are_not_rounded_to_a_float_column() -> None:
    schema = TableSchema((Column("f", "float"),), ("f",))
    key = block_prefix(0) + encode_value(0.1, pa.float32())  # the float nearest to 0.1 is larger than 0.1
    assert holds(key_ranges(Range("f", 0.1, None, lo_open=True), schema), key)
    assert not holds(key_ranges(Range("f", None, 0.1), schema), key)
    assert key_ranges(OneOf("f", frozenset([0.1])), schema) == []
    assert holds(key_ranges(Range("f", 1e300), schema), block_prefix(0) + encode_value(float("inf"), pa.float32()))
