from __future__ import annotations

import random
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parquetry.model.box import EVERYTHING, ONLY_NULL, Box, Interval
from parquetry.model.predicate import And, Anything, IsNull, Nothing, OneOf, Or, Range
from parquetry.workload.boxes import to_boxes
from tests.layouts.random_layouts import POOLS, random_predicate, random_table, satisfies

numbers = st.one_of(st.none(), st.integers(0, 6))


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    if draw(st.integers(0, 9)) == 0:
        return ONLY_NULL
    nulls = draw(st.booleans())
    lo = None if nulls else draw(numbers)
    hi = draw(numbers)
    return Interval(lo, hi, lo is not None and draw(st.booleans()), hi is not None and draw(st.booleans()), nulls)


@given(intervals(), intervals())
def test_interval_algebra_agrees_with_membership(a: Interval, b: Interval) -> None:
    for v in [None, *(x / 2 for x in range(-2, 16))]:
        assert a.intersect(b).contains(v) == (a.contains(v) and b.contains(v))
        pieces = [p.contains(v) for p in a.minus(b)]
        assert sum(pieces) == int(a.contains(v) and not b.contains(v))
        assert a.hull(b).contains(v) or not (a.contains(v) or b.contains(v))
    assert Interval.from_json(a.to_json()) == a


def test_and_is_one_box_and_or_is_two_disjoint_ones() -> None:
    """The paper's two examples (A-14); a null A also satisfies the second part of the OR."""
    both = to_boxes(And((Range("A", lo=10), Range("B", hi=50)))).boxes
    assert both == (Box({"A": Interval(lo=10), "B": Interval(hi=50)}),)
    either = to_boxes(Or((Range("A", lo=10), Range("B", hi=50)))).boxes
    below = Interval(hi=10, hi_open=True, nulls=True)
    assert [dict(b.intervals) for b in either] == [{"A": Interval(lo=10)}, {"A": below, "B": Interval(hi=50)}]


@pytest.mark.parametrize("seed", range(150))
def test_boxes_hold_every_row_that_satisfies_the_predicate_exactly_once(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(list(POOLS), 3)
    predicate = random_predicate(rng, names, depth=3)
    found = to_boxes(predicate)
    exact = not found.widened
    for row in random_table(rng, 60, names).to_pylist():
        times = sum(b.contains(row) for b in found.boxes)
        assert times == satisfies(predicate, row) if exact else times >= satisfies(predicate, row)


def test_columns_outside_the_layout_and_unknown_conditions_widen_the_boxes() -> None:
    found = to_boxes(And((Range("a", lo=1), Range("b", lo=1), Anything("a LIKE b"))), columns=["a"])
    assert found.boxes == (Box({"a": Interval(lo=1)}),)
    assert found.opaque == ("column b is not part of the layout", "a LIKE b")


def test_neighbouring_values_of_an_in_list_join() -> None:
    days = frozenset(date(2024, 2, 1) + timedelta(days=n) for n in range(29))
    assert to_boxes(OneOf("day", days)).boxes == (Box({"day": Interval(date(2024, 2, 1), date(2024, 2, 29))}),)
    assert len(to_boxes(OneOf("k", frozenset({1, 2, 5}))).boxes) == 2


def test_too_many_boxes_become_their_bounding_box() -> None:
    predicate = And((OneOf("a", frozenset(range(0, 200, 2))), OneOf("b", frozenset(range(0, 20, 2)))))
    found = to_boxes(predicate, limit=64)
    assert found.widened
    assert len(found.boxes) <= 64
    points = [{"a": a, "b": b} for a in range(0, 200, 2) for b in range(0, 20, 2)]
    assert all(any(box.contains(p) for box in found.boxes) for p in points)


def test_nothing_has_no_box_and_null_has_its_own() -> None:
    assert to_boxes(Nothing()).boxes == ()
    assert to_boxes(Range("a", 5, 1)).boxes == ()
    assert to_boxes(IsNull("a")).boxes == (Box({"a": ONLY_NULL}),)
    assert EVERYTHING.minus(ONLY_NULL) == [Interval()]
