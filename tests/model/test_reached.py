"""A map from keys to values stands for a column that rows reach: every key leads to one value, or to null."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from parquetry.model.predicate import And, IsNull, OneOf, Or, Range
from parquetry.model.reached import Reached, with_reached
from parquetry.model.through import about, renamed, through

BRANDS = Reached.of("item→items.brand", pa.array([7, 3, 5, 3], pa.int32()), pa.array(["a", "b", None, "c"]))


def test_of_a_key_that_comes_again_the_last_value_counts() -> None:
    assert BRANDS.of_keys(pa.array([3, 5, 7, 4, None], pa.int32())).to_pylist() == ["c", None, "a", None, None]
    assert BRANDS.of_keys(pa.chunked_array([[7], [3]])).to_pylist() == ["a", "c"]


def test_keys_say_what_their_rows_hold() -> None:
    assert BRANDS.holds(pa.array([3, 7])) == OneOf(BRANDS.name, frozenset({"a", "c"}))
    assert BRANDS.holds(pa.array([3, 8])) == Or((OneOf(BRANDS.name, frozenset({"c"})), IsNull(BRANDS.name)))


@pytest.mark.parametrize(
    "reached",
    [
        BRANDS,
        Reached.of("d→days.month", pa.array([date(2024, 5, 1)]), pa.array([5], pa.int8())),
        Reached.of("a→b.c", pa.array([], pa.int64()), pa.array([], pa.date32())),
    ],
)
def test_a_map_is_stored_and_read_again(reached: Reached) -> None:
    assert Reached.from_json(reached.to_json()) == reached
    keys = pa.array([date(2024, 5, 1)]) if reached.own == "d" else pa.array([3])
    assert Reached.from_json(reached.to_json()).of_keys(keys) == reached.of_keys(keys)


def test_rows_get_a_column_for_each() -> None:
    rows = with_reached(pa.table({"item": pa.array([5, 7, 9], pa.int32())}), [BRANDS, BRANDS])
    assert rows.to_pydict() == {"item": [5, 7, 9], BRANDS.name: [None, "a", None]}


def test_conditions_are_renamed_and_cut_down_to_some_columns() -> None:
    told = renamed(And((Range("brand", lo="a"), OneOf("size", frozenset({1})))), lambda c: through("item", "items", c))
    assert told == And((Range("item→items.brand", lo="a"), OneOf("item→items.size", frozenset({1}))))
    assert about(And((told, Range("x", 1, 2))), ["item"]) == told
