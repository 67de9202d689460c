"""Which views a log asks for, by sizes that the test gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parquetry.model.schema import TableSchema
from parquetry.views.asked import NoMatch
from parquetry.views.best_subset import choose, needless
from parquetry.views.estimate import group_estimator
from parquetry.views.lattice import There, suggest
from parquetry.views.shapes import Shape
from parquetry.views.shapes import shape_of as shape_or_reason

SCHEMA = TableSchema.from_arrow(
    pa.schema([("day", pa.date32()), ("shop", pa.int32()), ("kind", pa.string()), ("v", pa.int64())]), ["day", "shop"]
)
SIZES = {"day": 100.0, "shop": 50.0, "kind": 5.0, "year(day)": 3.0}


def product(groups: frozenset[str]) -> float:
    size = 1.0
    for g in groups:
        size *= SIZES.get(g.lower(), 10.0)
    return size


def shape_of(sql: str) -> Shape:
    found = shape_or_reason(sql, {"t": (1, SCHEMA)})
    assert not isinstance(found, NoMatch), found
    return found[1]


def test_a_shape_has_what_the_query_groups_filters_and_sums() -> None:
    sql = "SELECT day, sum(v) AS s, count(*) FROM t WHERE kind = 'a' GROUP BY day HAVING max(v) > 3 ORDER BY s"
    assert shape_of(sql) == Shape(
        frozenset({"day", "kind"}), frozenset({("sum", "v"), ("count", "*"), ("max", "v")}), frozenset({"kind"})
    )


def test_expressions_are_groups_themselves() -> None:
    found = shape_of("SELECT year(day), avg(v) FROM t GROUP BY year(day)")
    assert found == Shape(frozenset({"YEAR(day)"}), frozenset({("avg", "v")}))


def test_what_is_computed_from_a_group_is_no_group_of_its_own() -> None:
    """A view by day answers queries by year; one that filters by day needs days anyway."""
    by_year = shape_of("SELECT year(day), sum(v) FROM t GROUP BY year(day)")
    by_day = shape_of("SELECT day, sum(v) FROM t GROUP BY day")
    both = shape_of("SELECT year(day), sum(v) FROM t WHERE day > DATE '2020-01-01' GROUP BY year(day)")
    assert both == by_day
    assert by_day.covers(by_year)
    assert not by_year.covers(by_day)
    there = There("by_day", by_day, ("day",), 100.0)
    found = suggest("t", [both] * 9, 1_000_000, product, 5, [there])
    assert (found.views, found.drop) == ((), ())


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT * FROM t", "it returns rows; a view holds groups"),
        ("SELECT sum(v) FROM t", "groups and filters by no column"),
        ("SELECT day, count(DISTINCT v) FROM t GROUP BY day", "COUNT(DISTINCT v): distinct values of two deltas"),
        ("SELECT day, stddev(v) FROM t GROUP BY day", "STDDEV(v) cannot be made from a view"),
        ("SELECT t.day, sum(t.v) FROM t JOIN u ON t.day = u.day GROUP BY 1", "it joins tables"),
        ("SELECT day, sum(v) FROM t GROUP BY ROLLUP(day)", "it groups by ALL, ROLLUP"),
        ("SELECT day, sum(v) FROM (SELECT * FROM t) GROUP BY day", "it has a subquery"),
        ("SELECT kind, sum(v) FROM t WHERE kind = 'a\\nb' GROUP BY kind", "the text has backslash escapes"),
        ("FROM t |> AGGREGATE sum(v) GROUP BY day", "the text uses pipe syntax"),
    ],
)
def test_a_query_that_no_view_is_made_for_has_a_reason(sql: str, why: str) -> None:
    found = shape_or_reason(sql, {"t": (1, SCHEMA), "u": (2, TableSchema(SCHEMA.columns[:1], ("day",)))})
    assert isinstance(found, NoMatch)
    assert why in str(found)


def test_one_view_covers_several_queries_and_of_more_views_none_is_needless() -> None:
    day = Shape(frozenset({"day"}), frozenset({("sum", "v")}))
    kind = Shape(frozenset({"kind"}), frozenset({("max", "v")}))
    shop = Shape(frozenset({"shop", "day"}), frozenset({("sum", "v")}))
    log = [day] * 10 + [kind] * 10 + [shop]
    (one,) = suggest("t", log, 1_000_000, product, 1).views
    assert one.shape.covers(day)
    assert one.shape.covers(kind)
    assert one.queries >= 20
    found = suggest("t", log, 1_000_000, product, 5).views
    assert all(s.rows_after < s.rows_before for s in found)
    assert len({s.name for s in found}) == len(found)
    assert not [s for s in found if s.shape.covers(day) and s.shape.covers(kind)], "narrow ones do all that it did"


def test_few_values_come_first_in_the_key() -> None:
    all_three = Shape(frozenset({"day", "shop", "kind"}), frozenset({("sum", "v")}))
    (found,) = suggest("t", [all_three] * 10, 1_000_000, product, 1).views
    assert found.sql.endswith("FROM t GROUP BY kind, shop, day")


def test_what_queries_want_one_value_of_comes_first_in_the_key() -> None:
    one = Shape(frozenset({"day", "shop"}), frozenset({("sum", "v")}), frozenset({"day"}))
    (found,) = suggest("t", [one] * 5, 1_000_000, product, 5).views
    assert found.sql.endswith("GROUP BY day, shop")
    expression = shape_of("SELECT year(day), sum(v) FROM t WHERE 2020 = year(day) AND shop < 3 GROUP BY 1")
    assert expression.fixed == {"YEAR(day)"}


def test_a_wide_view_gives_way_to_narrow_ones_where_there_is_room() -> None:
    """Alone the wide one saves most; of two, each query's own."""
    reads = np.array([[10.0, np.inf], [np.inf, 10.0], [500.0, 500.0]])
    weights, upkeep = np.array([5.0, 5.0]), np.array([10.0, 10.0, 500.0])
    without = np.full(2, 10_000.0)
    assert choose(reads, weights, without, upkeep, 1) == [2]
    assert sorted(choose(reads, weights, without, upkeep, 2)) == [0, 1]


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_a_choice_is_never_worse_than_nothing_and_in_order_of_benefit(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    reads = np.where(rng.random((7, 5)) < 0.5, np.inf, rng.integers(1, 1_000, (7, 5)).astype(float))
    weights, upkeep = rng.integers(1, 9, 5).astype(float), rng.integers(0, 2_000, 7).astype(float)
    best, saved = np.full(5, 1_000.0), []
    chosen = choose(reads, weights, best, upkeep, most)
    assert len(chosen) == len(set(chosen)) <= most
    for c in chosen:
        saved.append((np.maximum(best - reads[c], 0) * weights).sum() - upkeep[c])
        best = np.minimum(best, reads[c])
    assert all(s > 0 for s in saved)
    assert saved == sorted(saved, reverse=True)


def test_views_that_are_there_are_not_suggested_again_and_go_when_nobody_needs_them() -> None:
    day = Shape(frozenset({"day"}), frozenset({("sum", "v")}))
    kind = Shape(frozenset({"kind"}), frozenset({("max", "v")}))
    (first,) = suggest("t", [day] * 10, 1_000_000, product, 5).views
    there = There(first.name, first.shape, ("day",), first.rows)
    again = suggest("t", [day] * 10, 1_000_000, product, 5, [there], [first.name])
    assert (again.views, again.drop) == ((), ())
    more = suggest("t", [day] * 10 + [kind] * 10, 1_000_000, product, 5, [there], [first.name])
    assert [(s.shape.covers(day), s.shape.covers(kind)) for s in more.views] == [(False, True)]
    assert more.drop == ()
    wider = There("wide", Shape(frozenset({"day", "shop"}), first.shape.aggregates), ("day", "shop"), 50_000.0)
    assert suggest("t", [day] * 10, 1_000_000, product, 5, [wider, there]).drop == ("wide",)


def test_a_view_that_is_being_filled_is_not_suggested_again_and_replaces_no_other() -> None:
    day = Shape(frozenset({"day"}), frozenset({("sum", "v")}))
    wide = There("wide", Shape(frozenset({"day", "shop"}), day.aggregates), ("day", "shop"), 50_000.0)
    filling = There("filling", day, ("day",), product(day.groups), filled=False)
    found = suggest("t", [day] * 10, 1_000_000, product, 5, [wide, filling])
    assert (found.views, found.drop) == ((), ())


def test_a_name_that_is_taken_is_not_suggested() -> None:
    day = Shape(frozenset({"day"}), frozenset({("sum", "v")}))
    (found,) = suggest("t", [day] * 10, 1_000_000, product, 5, names=["T_by_day", "t_by_day_2"]).views
    assert found.name == "t_by_day_3"


@given(st.integers(0, 10_000))
def test_queries_read_no_more_without_what_is_needless(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reads = np.where(rng.random((5, 4)) < 0.4, np.inf, rng.integers(1, 20, (5, 4)).astype(float))
    without = np.full(4, 15.0)
    gone = needless(reads, without, 3)
    kept = [v for v in range(5) if v not in gone]
    assert set(gone) <= {0, 1, 2}
    least = [np.minimum(reads[views].min(axis=0, initial=np.inf), without) for views in (range(5), kept)]
    assert (least[0] == least[1]).all()


def test_a_view_as_large_as_its_table_is_never_suggested() -> None:
    everything = Shape(frozenset({"day", "shop", "kind"}), frozenset({("sum", "v")}))
    assert suggest("t", [everything] * 50, 20_000, lambda _: 19_000.0, 5).views == ()


def test_the_estimate_counts_small_sets_exactly_and_unique_ones_as_the_table() -> None:
    sample = pa.table({"e0": [1, 1, 2, 2], "e1": [1, 2, 3, 4]})
    estimate = group_estimator(sample, ["a", "b"], 4_000)
    assert estimate(frozenset({"a"})) == 2
    assert estimate(frozenset({"b"})) == 4_000
