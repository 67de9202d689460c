"""Which ranges a rewrite takes, and what becomes of the blocks behind them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from parquetry.errors import SchemaError
from parquetry.maintain.relayout_ranges import choose_ranges
from parquetry.model.box import Box, Interval
from parquetry.model.layout import Cut, Leaf, NestedLayout, TreeLayout
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import TableState

ONE = TreeLayout("key", (), (Leaf(0),))
TWO = TreeLayout("kdtree", ("a",), (Cut("a", "<", 5, 1, 2), Leaf(0), Leaf(1)))
DAYS = (date(2024, 1, 1), date(2024, 2, 1), date(2024, 3, 1))


def table(kind: str = "date", boundaries: tuple[Any, ...] = DAYS, extra: tuple[Box, ...] = ()) -> TableState:
    schema = TableSchema((Column("t", kind), Column("a", "int")), ("t",))
    spec = NestedLayout("kdtree", "t", boundaries, (ONE, TWO, TWO, ONE)[: len(boundaries) + 1], extra=extra)
    return TableState(1, "x", schema, 1, (), 0, Settings(), layout_id=1, layout=spec)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("2024-01-15..2024-01-20", (1, 1)),
        ("2024-01-15..2024-02-01", (1, 2)),
        ("..2024-01-01", (0, 1)),
        ("2024-03-01..", (3, 3)),
        ("..", (0, 3)),
        ("1990-01-01..1990-02-01", (0, 0)),
        ("2030-01-01..2031-01-01", (3, 3)),
    ],
)
def test_a_range_takes_every_part_that_it_touches(text: str, parts: tuple[int, int]) -> None:
    chosen = choose_ranges(table(), text)
    assert (chosen.first, chosen.last) == parts


def test_bounds_are_read_as_values_of_the_column() -> None:
    when = (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
    for text in ("2024-01-01T10:00:00Z..2024-01-01T23:00:00Z", "2024-01-01 10:00:00..2024-01-01 23:00:00"):
        assert choose_ranges(table("timestamp", when), text).first == 1
    assert choose_ranges(table("int", (5, 9)), "6..7").last == 1
    assert choose_ranges(table("string", ("b", "d")), "c..").blocks == (1, 4)


def test_blocks_behind_a_changed_part_are_renumbered() -> None:
    chosen = choose_ranges(table(), "2024-01-10..2024-01-20")
    assert chosen.blocks == (1, 2)
    after = NestedLayout("kdtree", "t", DAYS, (ONE, ONE, TWO, ONE))
    assert [chosen.renumbered(after, block) for block in (0, 3, 4, 5)] == [0, 2, 3, 4]


def test_what_cannot_be_done_is_refused() -> None:
    for text, message in (
        ("2024", "write FROM..TO"),
        ("soon..", "no value of type"),
        ("2025-01-01..2024-01-01", "ends before"),
    ):
        with pytest.raises(SchemaError, match=message):
            choose_ranges(table(), text)
    with pytest.raises(SchemaError, match="extra blocks"):
        choose_ranges(table(extra=(Box({"a": Interval(1, 2)}),)), "..")
