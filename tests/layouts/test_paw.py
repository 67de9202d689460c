from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from parquetry.errors import SchemaError
from parquetry.layouts.learners.grow import GroupsAt, root
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.paw import learn_paw, split_by_groups
from parquetry.layouts.learners.qdtree import learn_qdtree
from parquetry.layouts.learners.sample import encode
from parquetry.layouts.learners.variance import bottleneck_matching
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.box import Box, Interval
from parquetry.model.layout import Cut, Groups, TreeLayout
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, OneOf, Predicate, Range

RNG = np.random.default_rng(3)
SQUARE = pa.table({"x": RNG.uniform(0, 100, 20_000), "y": RNG.uniform(0, 100, 20_000)})


def box(x0: float, x1: float, y0: float, y1: float) -> Predicate:
    return And((Range("x", x0, x1), Range("y", y0, y1)))


def cost(spec: TreeLayout, table: pa.Table, queries: list[Box]) -> float:
    sizes = np.bincount(route_numpy(spec, table), minlength=spec.blocks)
    known = RegionTable(regions(spec))
    return float(np.mean([sizes[known.might_match([q])].sum() for q in queries]))


def test_disjoint_queries_get_a_block_each_and_the_rest_is_irregular() -> None:
    """Figure 6: three queries, four blocks, each query reads its own."""
    queries = [box(10, 30, 10, 30), box(60, 80, 15, 35), box(35, 60, 60, 85)]
    spec = learn_paw(SQUARE, [LoggedQuery(q) for q in queries], LearnOptions(500, delta=0.0, alpha=100, refine=False))
    assert isinstance(spec.nodes[0], Groups)
    assert spec.blocks == 4
    blocks = [Box({"x": Interval(*b[:2]), "y": Interval(*b[2:])}) for b in [(10, 30, 10, 30), (60, 80, 15, 35)]]
    known = RegionTable(regions(spec))
    for q in blocks:
        assert known.might_match([q]).sum() == 1
    assert known.might_match([Box({"x": Interval(0, 5)})]).sum() == 1


def test_intersecting_queries_share_a_group() -> None:
    """Figure 7: q1, q4 and q5 overlap and become one group."""
    queries = [box(10, 30, 10, 30), box(25, 40, 20, 40), box(5, 12, 25, 35), box(60, 80, 60, 80)]
    sample = encode(SQUARE, [LoggedQuery(q) for q in queries], LearnOptions(200, delta=0.0), extended=True)
    found = split_by_groups(sample, root(sample), 200)
    assert found is not None
    assert isinstance(found.split, GroupsAt)
    assert len(found.split.spans) == 2


def test_a_small_group_grows_evenly_until_it_fills_a_block() -> None:
    queries = [box(50, 52, 50, 54), box(5, 30, 5, 30)]
    spec = learn_paw(SQUARE, [LoggedQuery(q) for q in queries], LearnOptions(400, delta=0.0, alpha=100, refine=False))
    node = spec.nodes[0]
    assert isinstance(node, Groups)
    sides = node.boxes[0].intervals
    width, height = sides["x"].hi - sides["x"].lo, sides["y"].hi - sides["y"].lo
    assert height / width == pytest.approx(2, rel=0.15)
    assert np.bincount(route_numpy(spec, SQUARE)).min() >= 400


def test_grown_groups_that_meet_merge_and_try_again() -> None:
    """Two slivers side by side: grown alone they would overlap, so they share a block (3.5-9)."""
    queries = [box(50, 51, 50, 51), box(51.5, 52.5, 50, 51)]
    sample = encode(SQUARE, [LoggedQuery(q) for q in queries], LearnOptions(400, delta=0.0), extended=True)
    found = split_by_groups(sample, root(sample), 400)
    assert found is not None
    assert isinstance(found.split, GroupsAt)
    assert len(found.split.spans) == 1


def test_cuts_at_bounds_are_exact_on_discrete_columns() -> None:
    """A closed upper bound must cut above itself, a lower one below (3.5-10)."""
    table = pa.table({"q": np.repeat(np.arange(1, 11), 100)})
    spec = learn_qdtree(table, [LoggedQuery(Range("q", 4, 6))], LearnOptions(100))
    assert sorted((n.op, n.value) for n in spec.nodes if isinstance(n, Cut)) == [("<", 4), ("<=", 6)]
    assert cost(spec, table, [Box({"q": Interval(4, 6)})]) == 300
    open_ended = learn_qdtree(table, [LoggedQuery(Range("q", 4, 6, True, True))], LearnOptions(100))
    assert cost(open_ended, table, [Box({"q": Interval(4, 6, True, True)})]) == 100


def test_extension_is_a_share_of_the_domain_an_amount_or_nothing_for_categories() -> None:
    days = [date(2024, 1, 1) + timedelta(days=i % 101) for i in range(1000)]
    prices = [Decimal(i % 1001) / 10 for i in range(1000)]
    names = ["abcdefghij"[i % 10] for i in range(1000)]
    table = pa.table({"d": days, "p": pa.array(prices, pa.decimal128(10, 2)), "n": names})
    february = Range("d", date(2024, 2, 1), date(2024, 2, 10))
    asked = And((february, Range("p", Decimal(20), Decimal(30)), OneOf("n", frozenset("c"))))

    def extended(delta: object) -> dict[str, Interval]:
        options = LearnOptions(10, delta=delta)  # type: ignore[arg-type]
        s = encode(table, [LoggedQuery(asked)], options, extended=True)
        spans = zip(s.lines, s.lo[:, 0].tolist(), s.hi[:, 0].tolist(), strict=True)
        return dict(zip(s.columns, (line.interval(lo, hi) for line, lo, hi in spans), strict=True))

    share = extended(0.05)
    assert share["d"] == Interval(date(2024, 1, 27), date(2024, 2, 15))
    assert share["p"] == Interval(Decimal("15.01"), Decimal("34.99"))  # 5 % of 0.00 to 99.90, whole cents inside
    assert share["n"] == Interval("c", "c")
    amount = extended({"d": timedelta(days=2), "p": Decimal("1.5")})
    assert amount["d"] == Interval(date(2024, 1, 30), date(2024, 2, 12))
    assert amount["p"] == Interval(Decimal("18.50"), Decimal("31.50"))
    assert extended(0.9)["d"] == Interval()
    with pytest.raises(SchemaError, match="does not fit"):
        extended({"n": 3})


def test_unknown_delta_is_the_distance_of_later_queries_to_their_nearest_earlier_one() -> None:
    earlier = [box(10, 20, 10, 20), box(50, 60, 50, 60)]
    later = [box(12, 21, 10, 20), box(50, 60, 55, 65)]
    spec = learn_paw(SQUARE, [LoggedQuery(q) for q in earlier + later], LearnOptions(500, delta_quantile=1.0))
    assert spec.options["delta"] == pytest.approx(0.05, rel=1e-2)
    one_to_one = learn_paw(
        SQUARE, [LoggedQuery(q) for q in [*earlier, later[0], later[0]]], LearnOptions(500, delta_estimate="matching")
    )
    assert one_to_one.options["delta"] == pytest.approx(0.40, rel=1e-2)


def test_a_log_that_shows_one_dashboard_after_the_other_has_a_small_delta() -> None:
    dashboards = [(10, 10), (50, 50), (80, 10), (10, 80)]
    log = [box(x + i, x + 10 + i, y, y + 10) for x, y in dashboards for i in range(8)]
    spec = learn_paw(SQUARE, [LoggedQuery(q) for q in log], LearnOptions(500))
    assert spec.options["delta"] == pytest.approx(0.01, rel=1e-1)


def test_bottleneck_matching_agrees_with_trying_every_assignment() -> None:
    from itertools import permutations

    for seed in range(30):
        apart = np.random.default_rng(seed).integers(0, 20, (5, 5)).astype(float)
        best = min(max(apart[i, j] for i, j in enumerate(p)) for p in permutations(range(5)))
        assert bottleneck_matching(apart) == best


def test_refinement_cuts_irregular_and_unqueried_leaves_to_less_than_two_blocks() -> None:
    queries = [LoggedQuery(box(10, 30, 10, 30)), LoggedQuery(box(60, 80, 60, 80))]
    spec = learn_paw(SQUARE, queries, LearnOptions(500, delta=0.01, alpha=100))
    sizes = np.bincount(route_numpy(spec, SQUARE), minlength=spec.blocks)
    assert sizes.min() >= 500
    assert sizes.max() < 1000
    assert any(r.holes for r in regions(spec))


def test_paw_stays_cheap_when_queries_move_a_little_and_the_qdtree_does_not() -> None:
    rng = np.random.default_rng(0)
    lows = rng.uniform(0, 90, (15, 2))
    logged = [box(x, x + 6, y, y + 6) for x, y in lows]
    future = [Box({"x": Interval(x - 0.5, x + 6.5), "y": Interval(y - 0.5, y + 6.5)}) for x, y in lows]
    workload = [LoggedQuery(q) for q in logged]
    paw = cost(learn_paw(SQUARE, workload, LearnOptions(100, delta=0.01)), SQUARE, future)
    qd = cost(learn_qdtree(SQUARE, workload, LearnOptions(100)), SQUARE, future)
    assert qd > 3 * paw
