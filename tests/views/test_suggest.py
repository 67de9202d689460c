"""Which views a log asks for, by sizes that the test gives."""

from __future__ import annotations

import pyarrow as pa

from parquetry.model.schema import TableSchema
from parquetry.views.estimate import group_estimator
from parquetry.views.suggest import Shape, shape_of, suggest

SCHEMA = TableSchema.from_arrow(
    pa.schema([("day", pa.date32()), ("shop", pa.int32()), ("kind", pa.string()), ("v", pa.int64())]), ["day", "shop"]
)
SIZES = {"day": 100.0, "shop": 50.0, "kind": 5.0, "year(day)": 3.0}


def product(groups: frozenset[str]) -> float:
    size = 1.0
    for g in groups:
        size *= SIZES.get(g.lower(), 10.0)
    return size


def test_a_shape_has_what_the_query_groups_filters_and_sums() -> None:
    sql = "SELECT day, sum(v) AS s, count(*) FROM t WHERE kind = 'a' GROUP BY day HAVING max(v) > 3 ORDER BY s"
    assert shape_of(sql, SCHEMA) == Shape(
        frozenset({"day", "kind"}), frozenset({("sum", "v"), ("count", "*"), ("max", "v")})
    )


def test_expressions_are_groups_themselves() -> None:
    found = shape_of("SELECT year(day), avg(v) FROM t GROUP BY year(day)", SCHEMA)
    assert found == Shape(frozenset({"YEAR(day)"}), frozenset({("avg", "v")}))


def test_queries_that_no_view_answers_have_no_shape() -> None:
    assert shape_of("SELECT * FROM t", SCHEMA) is None
    assert shape_of("SELECT day, count(DISTINCT v) FROM t GROUP BY day", SCHEMA) is None
    assert shape_of("SELECT sum(v) FROM t", SCHEMA) is None, "a total alone says nothing about groups"


def test_what_saves_most_comes_first_and_covers_several_queries() -> None:
    day = Shape(frozenset({"day"}), frozenset({("sum", "v")}))
    kind = Shape(frozenset({"kind"}), frozenset({("max", "v")}))
    shop = Shape(frozenset({"shop", "day"}), frozenset({("sum", "v")}))
    found = suggest("t", [day] * 10 + [kind] * 10 + [shop], 1_000_000, product, 5)
    assert found[0].shape.covers(day)
    assert found[0].shape.covers(kind)
    assert found[0].queries >= 20
    assert all(s.rows_after < s.rows_before for s in found)
    assert found[0].sql.endswith(f"FROM t GROUP BY {', '.join(sorted(found[0].shape.groups))}")
    assert len({s.name for s in found}) == len(found)


def test_a_view_as_large_as_its_table_is_never_suggested() -> None:
    everything = Shape(frozenset({"day", "shop", "kind"}), frozenset({("sum", "v")}))
    assert suggest("t", [everything] * 50, 20_000, lambda _: 19_000.0, 5) == []


def test_the_estimate_counts_small_sets_exactly_and_unique_ones_as_the_table() -> None:
    sample = pa.table({"e0": [1, 1, 2, 2], "e1": [1, 2, 3, 4]})
    estimate = group_estimator(sample, ["a", "b"], 4_000)
    assert estimate(frozenset({"a"})) == 2
    assert estimate(frozenset({"b"})) == 4_000
