"""How views hold the QT, and where deltas may be merged, decided from the state alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from parquetry.maintain.pick import Advance, Compact, Refresh, pick, pick_advance
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.queryable import complete_until, next_step, ready, runs
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import State, TableState
from parquetry.model.view import ViewColumn, ViewSource, ViewSpec, ViewState

_SCHEMA = TableSchema((Column("k", "int"),), ("k",))


def delta(table_id: int, lo: int, hi: int) -> Delta:
    name = f"{table_id}:{lo}-{hi}"
    return Delta(name, table_id, lo, hi, 0, 10, 100, 1, 0, StoredFile("i", 1, ""), ())


def table(table_id: int, *spans: tuple[int, int], qt: int = 0, **settings: Any) -> TableState:
    deltas = tuple(delta(table_id, lo, hi) for lo, hi in spans)
    return TableState(table_id, f"t{table_id}", _SCHEMA, 1, deltas, qt, Settings(**settings))


def view(table_id: int, over: tuple[int, ...], built: int, *spans: tuple[int, int], qt: int = 0) -> TableState:
    spec = ViewSpec(
        "", tuple(ViewSource(o, f"t{o}") for o in over), (ViewColumn("k", "int", "group", "k"),), "", "merge"
    )
    return replace(table(table_id, *spans, qt=qt), view=ViewState(spec, built))


def state(clock: int, qt: int, *tables: TableState) -> State:
    return State(1, clock, qt, {t.name: t for t in tables})


def test_a_view_is_complete_up_to_the_first_delta_it_lacks() -> None:
    s = state(9, 2, table(1, (1, 1), (2, 2), (5, 5)), view(2, (1,), 2, (1, 1), (2, 2)))
    assert complete_until(s, s.tables["t2"]) == 4
    assert ready(s, s.tables["t2"])


def test_timestamps_without_a_change_cost_nothing() -> None:
    s = state(9, 0, table(1, (1, 2)), view(2, (1,), 2))
    assert complete_until(s, s.tables["t2"]) == 9, "a delta that makes no group is taken in as well"


def test_the_qt_waits_for_a_view_that_has_caught_up() -> None:
    s = state(5, 2, table(1, (1, 2), (3, 3), (5, 5)), view(2, (1,), 3, (1, 2), (3, 3)))
    advance = pick_advance(s)
    assert advance is not None
    assert advance.database == 4


def test_a_view_that_is_filling_does_not_hold_the_qt() -> None:
    s = state(5, 4, table(1, (1, 2), (3, 4), (5, 5)), view(2, (1,), 0))
    assert not ready(s, s.tables["t2"])
    stages = pick(s)
    assert isinstance(stages[0], Advance)
    assert stages[0].database == 5
    assert [str(x) for x in stages if isinstance(x, Refresh)] == [
        "refresh t2: [1, 2] of t1, 10 rows (filling up to QT 5)",
        "refresh t2: [3, 4] of t1, 10 rows (filling up to QT 5)",
        "refresh t2: [5, 5] of t1, 10 rows (filling up to QT 5)",
    ]


def test_a_view_over_a_view_follows_it() -> None:
    s = state(3, 0, table(1, (1, 1), (2, 2)), view(2, (1,), 1, (1, 1)), view(3, (2,), 0))
    assert [(r.table, r.until) for r in pick(s) if isinstance(r, Refresh)] == [("t3", 1), ("t2", 2), ("t3", 2)]
    assert complete_until(s, s.tables["t3"]) == 0
    behind = state(3, 0, table(1, (1, 1), (2, 2)), view(2, (1,), 1, (1, 1)), view(3, (2,), 1))
    assert complete_until(behind, behind.tables["t3"]) == 1, "it has all of its view, which lacks a delta itself"


def test_joined_sources_are_taken_in_together_where_their_deltas_overlap() -> None:
    s = state(9, 0, table(1, (1, 4), (6, 6)), table(2, (2, 2), (3, 5)), view(3, (1, 2), 0))
    assert [d.delta_id for d in next_step(s, s.tables["t3"])] == ["1:1-4", "2:2-2", "2:3-5"]


def test_no_merge_reaches_across_what_a_view_has_taken_in() -> None:
    s = state(5, 1, table(1, (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)), view(2, (1,), 3))
    assert [[d.t_lo for d in run] for run in runs(s, s.tables["t1"])] == [[4, 5], [2, 3], [1]]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.integers(0, 8), st.integers(0, 8), st.integers(2, 4))
def test_maintenance_always_ends_with_everything_visible(
    widths: list[int], qt_at: int, built_at: int, most: int
) -> None:
    spans, t = [], 0
    for w in widths:
        spans.append((t + 1, t + w))
        t += w
    ends = [0, *(hi for _, hi in spans)]
    qt, built = ends[min(qt_at, len(spans))], ends[min(built_at, len(spans))]
    base = table(1, *spans, max_query_deltas=most, compaction_width=2)
    taken = [s for s in spans if s[1] <= built]
    s = state(t, qt, base, view(2, (1,), built, *taken))
    stages = pick(s)
    assert isinstance(stages[-1], Advance | Compact | Refresh) if stages else qt == t
    advances = [x.database for x in stages if isinstance(x, Advance)]
    assert advances == sorted(advances)
    assert max([qt, *advances]) == t
    for stage in stages:
        if isinstance(stage, Advance):
            qt = stage.database
        elif isinstance(stage, Refresh):
            built = stage.until
        else:
            lo, hi = stage.deltas[0].t_lo, stage.deltas[-1].t_hi
            assert not lo <= qt < hi
            assert stage.table == "t2" or not lo <= built < hi
