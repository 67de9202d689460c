"""Two-phase trees: the join column above, selection columns below (RB-24)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.papers._allocations import allocations
from parquetry.errors import SchemaError, UnknownColumn
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.registry import learn
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.layout import Cut, TreeLayout, children
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import And, Range
from tests.layouts.test_robust import columns


def two_phase(table: pa.Table, block_rows: int, **how: object) -> TreeLayout:
    spec = learn("two_phase", table, [], LearnOptions(block_rows=block_rows, **how))  # type: ignore[arg-type]
    assert isinstance(spec, TreeLayout)
    return spec


def by_level(spec: TreeLayout) -> list[set[str]]:
    level, found = {0: 0}, list[set[str]]()
    for i, node in enumerate(spec.nodes):
        for c in children(node):
            level[c] = level[i] + 1
        if isinstance(node, Cut):
            found += [set()] * (level[i] + 1 - len(found))
            found[level[i]] = found[level[i]] | {node.column}
    return found


@pytest.mark.parametrize("variant", ["even", "paper"])
def test_half_of_the_levels_rounded_up_cut_on_the_join_column_and_no_other(variant: str) -> None:
    spec = two_phase(columns(4), 32, join="c02", variant=variant)
    levels = by_level(spec)
    assert levels[:3] == [{"c02"}] * 3
    assert len(levels) == 5
    assert not any("c02" in level for level in levels[3:])
    below = {c: v for c, v in allocations(spec).items() if c != "c02"}
    assert max(below.values()) - min(below.values()) <= 2 / 2**4


def test_the_number_of_join_levels_can_be_said_and_the_first_column_is_the_default() -> None:
    spec = two_phase(columns(3), 64, join_levels=1)
    assert by_level(spec)[0] == {"c00"}
    assert not any("c00" in level for level in by_level(spec)[1:])
    assert two_phase(columns(3), 64, join_levels=0).blocks == 16
    assert by_level(two_phase(columns(3), 64, join_levels=9)) == [{"c00"}] * 4


def test_each_part_of_the_join_column_is_a_narrow_range() -> None:
    table = columns(3)
    blocks = route_numpy(two_phase(table, 64, join="c01"), table)
    widths = [np.ptp(table["c01"].to_numpy()[blocks == b]) for b in range(16)]
    assert max(widths) < 1024 / 4


def test_a_join_column_alone_or_one_that_cannot_be_cut() -> None:
    assert two_phase(columns(1), 64).blocks == 16
    table = columns(2).append_column("one", pa.array([1] * 1024))
    assert two_phase(table, 64, join="one").blocks == 16


def test_an_unknown_join_column_is_refused() -> None:
    with pytest.raises(UnknownColumn, match="nope"):
        two_phase(columns(2), 64, join="nope")
    with pytest.raises(SchemaError, match="join_levels"):
        two_phase(columns(2), 64, join_levels=-1)


def levels_for(queries: list[LoggedQuery], **how: object) -> int:
    spec = learn("two_phase", columns(3), queries, LearnOptions(block_rows=32, join="c00", **how))  # type: ignore[arg-type]
    assert isinstance(spec, TreeLayout)
    return int(spec.options["join_levels"])


def test_queries_decide_how_many_levels_the_join_column_gets() -> None:
    narrow = [LoggedQuery(And((Range("c01", 10 * i, 10 * i + 5), Range("c02", 7 * i, 7 * i + 5)))) for i in range(20)]
    assert levels_for([]) == 3
    assert levels_for([LoggedQuery(Range("c00", 10, 20))]) == 5  # what is joined is filtered as well
    assert levels_for(narrow) < 5  # filters on others want levels, too
    assert levels_for(narrow, variant="paper") == 3
    assert levels_for(narrow, join_levels=1) == 1
