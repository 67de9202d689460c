"""What is left of one side of a join says which values the other side may have: all that it has, and few others."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from parquetry.joins.induced import MOST_RANGES, MOST_VALUES, induced, kept_values, satisfying, told_briefly
from parquetry.model.order_codes import bounds_of
from parquetry.model.predicate import ANYTHING, And, Anything, Nothing, OneOf, Or, Predicate, Range


def holds(predicate: Predicate, value: Any) -> bool:
    match predicate:
        case Or(parts):
            return any(holds(p, value) for p in parts)
        case OneOf(_, values):
            return value in values
        case Range(_, lo, hi):
            return bool(lo <= value <= hi)
    return isinstance(predicate, Anything)


def test_few_values_are_told_one_by_one() -> None:
    assert induced("a", pa.array([3, 1, 2])) == OneOf("a", frozenset({1, 2, 3}))
    assert induced("a", pa.array([], pa.int64())) == Nothing()
    assert induced("a", pa.array(["x"])) == OneOf("a", frozenset({"x"}))


def test_values_beyond_the_other_side_are_of_no_interest() -> None:
    reach = bounds_of(pa.array([10, 30]), pa.array([20, 40]))
    assert induced("a", pa.array([1, 10, 25, 40, 41]), reach) == OneOf("a", frozenset({10, 25, 40}))
    assert induced("a", pa.array([1, 99]), reach) == Nothing()


def test_many_values_are_told_by_few_ranges_that_hold_them_all() -> None:
    november = np.concatenate([np.arange(30) + 365 * year for year in range(100)])
    told = induced("d", pa.array(november.astype(np.int32), pa.int32()).view(pa.date32()))
    assert isinstance(told, Or)
    assert len(told.parts) == MOST_RANGES
    assert all(holds(told, date(1970, 1, 1) + timedelta(days=int(v))) for v in november)
    strings = [f"{i:05}" for i in range(MOST_VALUES + 1)]
    assert induced("a", pa.array(strings)) == Range("a", strings[0], strings[-1])


@pytest.mark.parametrize("seed", range(20))
def test_ranges_of_kept_row_groups_hold_every_value_of_theirs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lows = rng.integers(-(2**62), 2**62, 200) if seed % 2 else rng.integers(0, 5000, 200)
    highs = lows + rng.integers(0, 20, 200)
    keep = rng.random(200) < 0.6
    told = kept_values("a", bounds_of(pa.array(lows), pa.array(highs)), keep)
    assert all(holds(told, int(v)) for v in (*lows[keep], *highs[keep]))
    assert not isinstance(told, Or) or len(told.parts) <= MOST_RANGES
    assert not holds(told, int(highs[keep].max()) + 1)


def test_unknown_bounds_and_other_types_say_nothing() -> None:
    unknown = bounds_of(pa.array([1, None], pa.int64()), pa.array([2, None], pa.int64()))
    assert kept_values("a", unknown, np.array([True, True])) == ANYTHING
    assert kept_values("a", unknown, np.array([True, False])) == Range("a", 1, 2)
    assert kept_values("a", unknown, np.array([False, False])) == Nothing()
    strings = bounds_of(pa.array(["a"]), pa.array(["b"]))
    assert kept_values("a", strings, np.array([True])) == ANYTHING


def test_values_of_another_type_filter_nothing() -> None:
    rows = pa.table(
        {
            "d": pa.array([date(2024, 5, 1), date(2024, 5, 2)]),
            "m": pa.array([Decimal("1.23"), Decimal("1.24")], pa.decimal128(5, 2)),
            "b": pa.array([1, 2], pa.int8()),
        }
    )
    noon = datetime(2024, 5, 1, 12)  # as a date it would be the day itself, which is not after it
    assert satisfying(rows, Range("d", lo=noon, lo_open=True)).num_rows == 2
    assert satisfying(rows, OneOf("m", frozenset({Decimal("1.235")}))).num_rows == 2
    assert satisfying(rows, Range("b", hi=300)).num_rows == 2
    assert satisfying(rows, And((Range("b", lo=2), Range("d", lo=noon)))).num_rows == 1


def test_long_sets_become_ranges_whatever_they_hold() -> None:
    assert told_briefly(OneOf("a", frozenset(range(9))), 9) == OneOf("a", frozenset(range(9)))
    assert told_briefly(OneOf("a", frozenset({1, 2, 5})), 2) == Or((Range("a", 1, 2), Range("a", 5, 5)))
    days = frozenset({date(2024, 1, 1), date(2024, 1, 2)})
    assert told_briefly(OneOf("d", days), 1) == Range("d", min(days), max(days))
    others: list[set[Any]] = [
        {0, 2**70},
        {Decimal("1.5"), 2},
        {1, Decimal("1.5")},
        {"b", "a"},
        {True, False},
        {0.5, 2.5},
    ]
    for values in others:
        assert told_briefly(OneOf("a", frozenset(values)), 1) == Range("a", min(values), max(values))
