"""Varied queries stay queries of the same shape: they drift a little, or move anywhere, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from parquetry.layouts.pricing.drift import SCENARIOS, Scenario, vary
from parquetry.layouts.pricing.price import Asked
from parquetry.layouts.pricing.priced_sample import SampledTable
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Anything, IsNull, OneOf, Or, Predicate, Range
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings


@pytest.fixture(scope="module")
def table() -> SampledTable:
    rows = pa.table(
        {
            "k": pa.array(range(1000), pa.int64()),
            "a": pa.array(range(1000), pa.int32()),
            "x": pa.array(np.linspace(0, 1, 1000)),
            "s": pa.array([f"s{i % 10}" for i in range(1000)]),
        }
    )
    return SampledTable(rows, TableSchema.from_arrow(rows.schema, ["k"], "append", None, None), Settings(), 1000)


def asked(predicate: Predicate) -> Asked:
    return Asked(LoggedQuery(predicate), ("a",))


QUERY = And((Range("a", 100, 200), Or((Range("x", hi=0.5), IsNull("s"))), OneOf("s", frozenset({"s1"})), Anything("?")))


def test_drift_moves_each_bound_by_at_most_its_share_of_the_domain(table: SampledTable) -> None:
    for seed in range(50):
        (moved,) = vary([asked(Range("a", 100, 200))], Scenario("", delta=0.05), table, seed)
        assert isinstance(moved.predicate, Range)
        assert abs(moved.predicate.lo - 100) <= 50
        assert abs(moved.predicate.hi - 200) <= 50
        assert moved.predicate.lo <= moved.predicate.hi


def test_a_stranger_keeps_its_width(table: SampledTable) -> None:
    places = set()
    for seed in range(20):
        (moved,) = vary([asked(Range("a", 100, 200))], Scenario("", strangers=1.0), table, seed)
        assert isinstance(moved.predicate, Range)
        assert moved.predicate.hi - moved.predicate.lo == 100
        places.add(moved.predicate.lo)
    assert len(places) > 10


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_shape_and_columns_stay_and_the_seed_decides(table: SampledTable, scenario: Scenario) -> None:
    (moved,) = vary([asked(QUERY)], scenario, table, 3)
    assert isinstance(moved.predicate, And)
    assert [type(p) for p in moved.predicate.parts] == [type(p) for p in QUERY.parts]
    assert moved.columns == ("a",)
    assert vary([asked(QUERY)], scenario, table, 3) == [moved]


def test_bounds_of_a_wrong_type_and_unknown_columns_stay(table: SampledTable) -> None:
    for predicate in (Range("a", "x", "y"), Range("nowhere", 1, 2), Range("s", "s1", "s5"), Range("x", float("inf"))):
        assert vary([asked(predicate)], Scenario("", delta=0.1), table)[0].predicate == predicate


def test_some_queries_are_strangers_and_the_others_stay(table: SampledTable) -> None:
    many = [asked(Range("a", 100, 200)) for _ in range(40)]
    moved = vary(many, Scenario("", strangers=0.5), table)
    assert sum(m.predicate != Range("a", 100, 200) for m in moved) in range(18, 21)
