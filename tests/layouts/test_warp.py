"""WARP: the paper's worked examples, subsumption that is never wrong, and layouts that lose no row (WP-E4)."""

from __future__ import annotations

import json
import random
import time
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from parquetry.errors import SchemaError
from parquetry.layouts.learners.cluster import cluster
from parquetry.layouts.learners.mining import mine
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.warp import cluster_counted, learn_warp
from parquetry.layouts.pruning.features import Evaluator, FeatureTable, items_of, number_of, pack
from parquetry.layouts.pruning.subsume import implies
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import Cluster, Feature, FeatureLayout, layout_from_json
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import ANYTHING, And, Anything, IsNull, Nothing, NotNull, OneOf, Opaque, Or, Range
from parquetry.model.schema import Column, TableSchema
from parquetry.query.demands import asked_of
from parquetry.query.planning.bind import bind
from tests.layouts.random_layouts import POOLS, random_predicate, random_table, satisfies

BUY = OneOf("event", frozenset(["buy"]))
JEANS = OneOf("product", frozenset(["jeans"]))
GOOGLE = OneOf("publisher", frozenset(["google"]))
LOSS = Range("revenue", hi=0, hi_open=True)
FEATURES = (Feature(BUY, (), 60.0), Feature(JEANS, (), 20.0), Feature(And((GOOGLE, LOSS)), (), 10.0))


def vector(*bits: int) -> int:
    return sum(bit << i for i, bit in enumerate(bits))


# -- the paper's examples -------------------------------------------------------------------------


def figure_two() -> FeatureLayout:
    """Figure 2: three partitions of six tuples, with the union vectors (1,1,0), (0,1,1) and (1,0,0)."""
    homes = {
        **{vector(0, 1, 0): 0, vector(1, 1, 0): 0},
        **{vector(0, 0, 1): 1, vector(0, 1, 1): 1},
        **{vector(0, 0, 0): 2, vector(1, 0, 0): 2},
    }
    unions = [vector(1, 1, 0), vector(0, 1, 1), vector(1, 0, 0), vector(1, 1, 1)]
    columns = ("event", "product", "publisher", "revenue")
    return FeatureLayout("warp", columns, FEATURES, tuple(map(Cluster, unions)), homes)


def test_figure_2_rows_are_routed_by_their_vectors() -> None:
    rows = [
        {"event": "view", "product": "jeans", "publisher": "google", "revenue": 5},
        {"event": "view", "product": "shirt", "publisher": "google", "revenue": -1},
        {"event": "view", "product": "shirt", "publisher": "else", "revenue": -1},
        {"event": "buy", "product": "jeans", "publisher": "google", "revenue": 0},
        {"event": None, "product": "jeans", "publisher": "google", "revenue": -2},
        {"event": "buy", "product": None, "publisher": "google", "revenue": None},
    ]
    table = pa.Table.from_pylist(rows)
    vectors = [number_of(v) for v in pack(Evaluator(FEATURES, table.schema).bits(table))]
    assert vectors == [vector(*v) for v in [(0, 1, 0), (0, 0, 1), (0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 0)]]
    assert route_numpy(figure_two(), table).tolist() == [0, 1, 2, 0, 1, 2]


def test_figure_2_a_partition_without_the_third_bit_is_skipped_by_what_the_third_feature_subsumes() -> None:
    might = FeatureTable(figure_two()).might_match(And((GOOGLE, Range("revenue", hi=-10))))
    assert might.tolist() == [False, True, False, True]


def test_figure_3_only_the_first_partition_is_scanned() -> None:
    """The query vector is (0,0,1): the first two features subsume the query, and only P1 has both bits."""
    query = And((BUY, JEANS, Range("revenue", lo=100)))
    assert [all(implies(query, i) for i in items_of(f)) for f in FEATURES] == [True, True, False]  # type: ignore[arg-type]
    assert FeatureTable(figure_two()).might_match(query).tolist() == [True, False, False, True]


def test_an_unseen_vector_goes_to_the_first_cluster_that_covers_it_else_to_the_one_for_all() -> None:
    spec = figure_two()
    only_second_in_p1 = {**spec.vectors}
    del only_second_in_p1[vector(1, 1, 0)], only_second_in_p1[vector(0, 1, 1)]
    spec = FeatureLayout("warp", spec.columns, spec.features, spec.clusters, only_second_in_p1)
    loss = {"publisher": "google", "revenue": -1}
    both = {"event": "buy", "product": "jeans", "publisher": "x", "revenue": 1}
    three = {"event": "buy", "product": "jeans", **loss}
    rows = pa.Table.from_pylist([both, {"event": "a", "product": "jeans", **loss}, three])
    assert route_numpy(spec, rows).tolist() == [0, 1, 3]


def test_example_1_redundant_sets_are_dropped_and_features_carry_the_queries_they_subsume() -> None:
    wide, narrow = Range("revenue", hi=10, hi_open=True), LOSS
    queries = [LoggedQuery(wide, 3.0), LoggedQuery(narrow, 2.0)]
    table = pa.table({"revenue": np.arange(-50, 50)})
    spec = learn_warp(table, queries, LearnOptions(10, variant="paper"))
    assert [(f.predicate, f.weight) for f in spec.features] == [(wide, 5.0)]


# -- subsumption ----------------------------------------------------------------------------------

DAY = date(1995, 3, 1)
CASES: list[tuple[Any, Any, bool]] = [
    (Range("a", 1, 5), Range("a", 1, 5), True),
    (Range("a", 1, 5, lo_open=True), Range("a", 1, 5), True),
    (Range("a", 1, 5), Range("a", 1, 5, lo_open=True), False),
    (Range("a", 1, 5, hi_open=True), Range("a", 1, 5, hi_open=True), True),
    (Range("a", 1), Range("a", 1, 5), False),
    (Range("a", 1, 5), Range("b", 1, 5), False),
    (OneOf("a", frozenset([2, 3])), Range("a", 1, 5), True),
    (OneOf("a", frozenset([2, 9])), Range("a", 1, 5), False),
    (OneOf("a", frozenset([2])), OneOf("a", frozenset([2, 3])), True),
    (OneOf("a", frozenset([2, 4])), OneOf("a", frozenset([2, 3])), False),
    (Range("a", 2, 3), OneOf("a", frozenset([2, 3])), False),
    (Range("a", 2), NotNull("a"), True),
    (IsNull("a"), NotNull("a"), False),
    (IsNull("a"), IsNull("a"), True),
    (Nothing(), Range("a", 1), True),
    (Anything("?"), Range("a", 1), False),
    (Range("a", 1), Anything(), True),
    (Range("a", 1), Anything("?"), False),
    (And((Range("a", 2, 3), IsNull("b"))), Range("a", 1, 5), True),
    (Or((Range("a", 2, 3), Range("a", 4, 5))), Range("a", 1, 5), True),
    (Or((Range("a", 2, 3), Range("b", 4, 5))), Range("a", 1, 5), False),
    (OneOf("a", frozenset([1, 9])), Or((Range("a", 0, 2), Range("a", 8))), True),
    (
        And((Or((Range("a", 2, 3), Range("a", 8, 9))), OneOf("b", frozenset(["x"])))),
        Or((And((Range("a", 1, 5), NotNull("b"))), And((Range("a", 7), NotNull("b"))))),
        True,
    ),
    (
        And((OneOf("a", frozenset([1, 9])), IsNull("b"))),
        Or((And((Range("a", 0, 2), IsNull("b"))), And((Range("a", 8), IsNull("b"))))),
        True,
    ),
    (Range("s", "abc", "abd", hi_open=True), Range("s", "a", "b", hi_open=True), True),
    (OneOf("s", frozenset(["abc"])), Range("s", "ab", "ac", hi_open=True), True),
    (Range("f", float("nan")), Range("f", 1.0), True),
    (Range("f", 1.0), Range("f", hi=float("inf")), False),
    (Range("d", DAY), Range("d", "x"), False),
]


@pytest.mark.parametrize(("a", "b", "expected"), CASES)
def test_the_cases_of_subsumption(a: Any, b: Any, expected: bool) -> None:
    assert implies(a, b) is expected


@pytest.mark.parametrize("seed", range(200))
def test_what_is_said_to_be_implied_is_implied_on_every_row(seed: int) -> None:
    rng = random.Random(seed)
    names = rng.sample(list(POOLS), 2)
    rows = random_table(rng, 60, names).to_pylist()
    predicates = [random_predicate(rng, names) for _ in range(12)]
    for a in predicates:
        for b in predicates:
            if implies(a, b):
                assert all(satisfies(b, row) for row in rows if satisfies(a, row)), (a, b)


# -- opaque conditions ----------------------------------------------------------------------------

SCHEMA = {
    "t": TableSchema(
        (
            *(Column(n, "int") for n in ("k", "a", "b")),
            *(Column(n, "string") for n in ("s", "u")),
            *(Column(n, "date") for n in ("d", "e")),
            *(Column("at", "timestamp"), Column("x", "double"), Column("ok", "boolean")),
            *(Column("g", "float"), Column("m", "decimal(15,2)")),
        ),
        ("k",),
    )
}


def opaque_of(where: str) -> list[str]:
    return [o.text for o in bind(f"SELECT * FROM t AS q WHERE {where}", SCHEMA).refs[0].opaque]


@pytest.mark.parametrize(
    ("where", "texts"),
    [
        ("q.a < b", ["(`a` < `b`)"]),
        ("b > A", ["(`a` < `b`)"]),
        ("s LIKE '%x%' AND a = 1", ["(`s` LIKE '%x%')"]),
        ("s NOT LIKE 'x%'", ["(NOT (`s` LIKE 'x%'))"]),
        ("s LIKE 'x%'", []),
        ("a = 1 AND d >= DATE '1994-01-01'", []),
        ("a = 1 OR s LIKE '%x'", ["((`a` = 1) OR (`s` LIKE '%x'))"]),
        ("(s LIKE '%x' OR 1 = a)", ["((`a` = 1) OR (`s` LIKE '%x'))"]),
        ("lower(s) = 'x'", ["(lower(`s`) = 'x')"]),
        ("a + b > 5", ["coalesce((try_add(`a`, `b`) > 5), TRUE)"]),
        ("b + a > 5", ["coalesce((try_add(`a`, `b`) > 5), TRUE)"]),
        ("month(d) = 3", ["(month(`d`) = 3)"]),
        ("substring(s, 1, 2) IN ('b', 'a')", ["(substring(`s`, 1, 2) IN ('a', 'b'))"]),
        ("s = u", ["(`s` = `u`)"]),
        ("m * a > 10", ["coalesce((try_multiply(`a`, `m`) > 10), TRUE)"]),
    ],
)
def test_conditions_that_can_only_be_evaluated_are_kept_in_normal_form(where: str, texts: list[str]) -> None:
    assert opaque_of(where) == texts


@pytest.mark.parametrize(
    "where",
    [
        *("s > a", "at > d", "rand() > a", "a > (SELECT max(a) FROM t)", "month(at) = 3", "a < current_date()"),
        *("(a + b) IS NOT NULL", "a + b <=> 3", "s RLIKE 'x'", "cast(s AS int) = b"),
        *("s LIKE u", "a % b = 1", "g > a", "m / a > 2", "substring(s, 0, 2) = 'x'", "uuid() = s"),
    ],
)
def test_what_may_mean_something_else_elsewhere_is_no_feature(where: str) -> None:
    assert opaque_of(where) == []


def test_outer_joined_and_other_tables_conditions_are_no_features() -> None:
    outer = bind("SELECT * FROM t AS l LEFT JOIN t AS r ON l.k = r.k WHERE r.a < r.b", SCHEMA)
    assert [r.opaque for r in outer.refs] == [(), ()]
    across = bind("SELECT * FROM t AS l JOIN t AS r ON l.k = r.k WHERE l.a < r.b", SCHEMA)
    assert [r.opaque for r in across.refs] == [(), ()]


# -- mining ---------------------------------------------------------------------------------------


def test_support_counts_the_queries_that_a_set_subsumes() -> None:
    queries = [LoggedQuery(And((Range("a", n, n + 1), BUY))) for n in range(10)] + [LoggedQuery(Range("a", 0, 20))]
    mined = mine(queries, frozenset(["a", "event"]))
    support = {frozenset(mined.items[i] for i in s): float(n) for s, n in zip(mined.sets, mined.support, strict=True)}
    assert support[frozenset([Range("a", 0, 20)])] == 11
    assert support[frozenset([BUY])] == 10
    assert support[frozenset([Range("a", 0, 20), BUY])] == 10
    assert support[frozenset([Range("a", 3, 4), BUY])] == 1
    assert all(len(s) <= 2 for s in support), "an item never stands beside one that it implies"


def test_what_all_parts_of_a_disjunction_demand_is_an_item_too() -> None:
    p = Or((And((BUY, Range("a", 1, 5))), And((BUY, Range("a", 3, 9)))))
    found = mine([LoggedQuery(p)], frozenset(["a", "event"]))
    assert set(found.items) == {p, BUY, Range("a", 1, 9)}
    assert set(mine([LoggedQuery(p)], frozenset(["a", "event"]), widen=False).items) == {p, BUY}
    of_a = mine([LoggedQuery(p)], frozenset(["a"]))
    assert set(of_a.items) == {Or((Range("a", 1, 5), Range("a", 3, 9))), Range("a", 1, 9)}


def test_thousands_of_distinct_predicates_are_mined_in_bounded_time() -> None:
    rng = random.Random(5)
    lows = [rng.random() for _ in range(8000)]
    queries = [LoggedQuery(And((Range("a", x, x + 0.1), Range("b", hi=rng.random())))) for x in lows]
    started = time.process_time()
    mined = mine(queries, frozenset(["a", "b"]))
    assert time.process_time() - started < 120
    assert mined.left_out
    assert mined.sets


# -- clustering -----------------------------------------------------------------------------------


def test_the_pair_that_hurts_least_is_merged_until_clusters_are_large_enough() -> None:
    bits = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]], bool)
    found = cluster(bits, np.array([40, 20, 60, 100]), np.array([1.0, 1.0, 1.0]), 60)
    assert found.count == 3
    assert found.label[0] == found.label[1]


def test_a_cluster_that_stays_too_small_joins_the_cheapest_finished_one() -> None:
    bits = np.array([[1, 0], [0, 1], [1, 1]], bool)
    found = cluster(bits, np.array([100, 100, 5]), np.array([1.0, 9.0]), 50)
    assert found.label.tolist() == [0, 1, 1]


def test_clustering_does_not_depend_on_chance() -> None:
    rng = np.random.default_rng(3)
    bits = np.unique(rng.random((300, 10)) < 0.3, axis=0)
    counts = rng.integers(1, 50, len(bits))
    labels = [cluster(bits, counts, np.ones(10), 40).label.tolist() for _ in range(2)]
    assert labels[0] == labels[1]
    sizes = np.bincount(labels[0], counts)
    assert sizes.min() >= 40


@pytest.mark.slow
def test_five_thousand_distinct_vectors_are_clustered_within_a_minute() -> None:
    rng = np.random.default_rng(0)
    bits = np.unique(rng.random((20_000, 40)) < rng.random(40) * 0.5, axis=0)[:5000]
    started = time.process_time()  # of this process: what else runs on the machine decides nothing
    found = cluster(bits, rng.zipf(1.5, 5000).clip(1, 5000), rng.integers(1, 100, 40), 500)
    assert time.process_time() - started < 120  # two cores share the products of matrices
    assert found.folded == 0


def test_more_vectors_than_the_bound_are_folded_and_stay_covered() -> None:
    rng = np.random.default_rng(1)
    bits = np.unique(rng.random((900, 12)) < 0.4, axis=0)
    counts = rng.integers(1, 30, len(bits))
    found = cluster(bits, counts, np.ones(12), 100, most=100)
    assert found.folded == len(bits) - 100
    assert np.bincount(found.label, counts).min() >= 100


# -- the learner ----------------------------------------------------------------------------------


def with_opaque(rng: random.Random, rows: int) -> tuple[pa.Table, list[str]]:
    """Rows with nulls and NaN, and queries with everything that a feature can be made of."""
    maybe = lambda value: None if rng.random() < 0.15 else value  # noqa: E731
    table = pa.table(
        {
            "k": pa.array(range(rows), pa.int32()),
            "a": pa.array([maybe(rng.randrange(20)) for _ in range(rows)], pa.int32()),
            "b": pa.array([maybe(rng.randrange(20)) for _ in range(rows)], pa.int32()),
            "s": pa.array([maybe(rng.choice(["", "xa", "bx", "abc", "é", "Z_%"])) for _ in range(rows)]),
            "u": pa.array([maybe(rng.choice(["xa", "q", ""])) for _ in range(rows)]),
            "d": pa.array([maybe(date(1994 + rng.randrange(3), 1 + rng.randrange(12), 1)) for _ in range(rows)]),
            "x": pa.array([maybe(rng.choice([float("nan"), -0.0, 0.0, 1.5, float("inf")])) for _ in range(rows)]),
        }
    )
    wheres = [
        *("a < b", "s LIKE '%x%'", "s LIKE '%x%' AND a BETWEEN 3 AND 8", "NOT (a >= b)", "a = 3 OR s = 'abc'"),
        *("a IN (1, 2, 3) AND s NOT LIKE '%a%'", "d >= DATE '1995-01-01' AND d < DATE '1996-01-01'", "x > 1.0"),
        *("a IS NULL", "s IS NOT NULL AND a + b > 15", "(a < 5 AND b < 5) OR (a > 15 AND b > 15)", "s = u", "x = 0.0"),
        *("a <> 4", "month(d) = 3", "a = b", "a > 100", "a >= 0", "length(s) = 2 OR b = 7"),
    ]
    return table, [f"SELECT * FROM t WHERE {w}" for w in rng.sample(wheres, 12)]


def logged_of(sqls: list[str]) -> list[LoggedQuery]:
    """The queries as the log would have them."""
    return [a.query for sql in sqls for a in asked_of(sql, "t", SCHEMA) if a.filters]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("variant", ["greedy", "paper"])
def test_no_block_with_a_wanted_row_is_skipped(seed: int, variant: str) -> None:
    rng = random.Random(seed)
    table, sqls = with_opaque(rng, 600)
    logged = logged_of(sqls)
    spec = learn_warp(table, logged, LearnOptions(20, features=rng.choice([2, 5, 15]), variant=variant))
    assert layout_from_json(json.loads(json.dumps(spec.to_json()))) == spec
    fresh, more = with_opaque(rng, 300)  # rows and queries that were not there when learning
    for rows in (table, fresh):
        blocks = route_numpy(spec, rows)
        known = FeatureTable(spec)
        for q in [*logged, *logged_of(more)]:
            wanted = Evaluator([Feature(q.predicate, q.opaque)], rows.schema).bits(rows)[0]
            assert known.might_match(q.predicate, q.opaque)[blocks[wanted]].all()


def test_opaque_conditions_alone_let_queries_skip() -> None:
    rng = random.Random(1)
    table, _ = with_opaque(rng, 4000)
    logged = logged_of(["SELECT * FROM t WHERE a < b AND s LIKE '%x%'"] * 5)
    assert isinstance(logged[0].predicate, NotNull)
    spec = learn_warp(table, logged, LearnOptions(100))
    might = FeatureTable(spec).might_match(logged[0].predicate, logged[0].opaque)
    read = might[route_numpy(spec, table)].mean()
    wanted = Evaluator([Feature(logged[0].predicate, logged[0].opaque)], table.schema).bits(table)[0].mean()
    assert read < wanted + 0.1
    assert FeatureTable(spec).might_match(ANYTHING).all()


def test_features_true_for_all_or_no_row_and_contradictions_do_no_harm() -> None:
    table = pa.table({"a": np.arange(1000), "b": np.arange(1000) % 7})
    always, never = Range("a", -5, 5000), Range("a", 5000)
    queries = [LoggedQuery(p) for p in (always, never, Nothing(), And((Range("b", 1, 2), never)))]
    for variant in ("greedy", "paper"):
        spec = learn_warp(table, queries, LearnOptions(50, variant=variant))
        assert sorted(np.bincount(route_numpy(spec, table)).tolist())[0] >= 0
        assert FeatureTable(spec).might_match(always)[route_numpy(spec, table)].all()
    full_scans = learn_warp(table, [LoggedQuery(ANYTHING)], LearnOptions(50, columns=("a", "b")))
    assert full_scans.features == ()
    assert full_scans.blocks > 1  # cut by medians, so that unforeseen queries skip


def test_a_table_smaller_than_a_block_is_one_block() -> None:
    table = pa.table({"a": np.arange(30)})
    assert learn_warp(table, [LoggedQuery(Range("a", 1, 5))], LearnOptions(100)).blocks == 1
    assert learn_warp(table.slice(0, 0), [LoggedQuery(Range("a", 1, 5))], LearnOptions(100)).blocks == 1


def test_counts_of_the_whole_table_are_used_where_they_are_given() -> None:
    table = pa.table({"a": np.arange(100)})
    asked: list[tuple[Feature, ...]] = []

    def count(features: Any) -> dict[int, int]:
        asked.append(tuple(features))
        return {0: 5000, 1: 3000}

    spec = learn_warp(table, [LoggedQuery(Range("a", 0, 9))], LearnOptions(1000, sample_rate=0.01, count_vectors=count))
    assert asked[0] == spec.features
    assert [c.union for c in spec.clusters] == [0, 1]


def test_clusters_with_few_features_come_first() -> None:
    features = [Feature(Range("a", i), (), float(i + 1)) for i in range(3)]
    clusters, homes, _ = cluster_counted(features, {1: 50, 2: 50, 4: 50, 0: 50}, 50)
    assert [c.union for c in clusters] == [0, 1, 2, 4, 7]
    assert homes == {0: 0, 1: 1, 2: 2, 4: 3}


def test_wrong_options_are_refused() -> None:
    table = pa.table({"a": np.arange(100)})
    with pytest.raises(SchemaError, match="greedy and paper"):
        learn_warp(table, [LoggedQuery(Range("a", 1))], LearnOptions(10, variant="best"))
    with pytest.raises(SchemaError, match="features is a number"):
        LearnOptions(10, features=0)


def test_range_cuts_the_date_or_the_first_named_column_evenly() -> None:
    days = [date(1994, 1, 1 + i % 28) for i in range(1000)]
    table = pa.table({"a": np.arange(1000), "d": days})
    asked = [LoggedQuery(And((Range("a", 1, 5), Range("d", date(1994, 1, 3)))))]
    assert learn("range", table, asked, LearnOptions(100)).columns == ("d",)
    by_a = learn("range", table, asked, LearnOptions(100, columns=("a", "d")))
    assert by_a.columns == ("a",)
    sizes = np.bincount(route_numpy(by_a, table))
    assert sizes.min() >= 100
    assert sizes.max() < 200


def test_normal_text_reads_back_as_sql() -> None:
    import sqlglot

    for where in ("a < b", "s LIKE '%x%' OR a = 1", "a * b + 1 > 7", "NOT s = u"):
        for text in opaque_of(where):
            assert isinstance(sqlglot.parse_one(text, dialect="spark"), exp.Expr)
    assert Opaque("x", ("a",)) in {Opaque("x", ("a",))}
