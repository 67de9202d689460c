"""Pickers as readable scripts: deltas in, stages out. No Spark, no files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as checking
from hypothesis import strategies as st

from parquetry.maintain import pick as picking
from parquetry.maintain.pick import Advance, Refresh, Stage, pick, pick_advance, pick_compaction, pick_next
from parquetry.model.delta import Delta, StoredFile, cover
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import State, TableState
from parquetry.model.view import ViewColumn, ViewSource, ViewSpec, ViewState

SCHEMA = TableSchema((Column("k", "int"),), ("k",))


def table(name: str, script: str, *, width: int = 4, most: int = 16, qt: int = 0) -> TableState:
    """``"1:10 2-4:30"``: deltas [1, 1] of 10 bytes and [2, 4] of 30 bytes."""
    deltas = []
    for word in script.split():
        span, _, size = word.partition(":")
        lo, _, hi = span.partition("-")
        index = StoredFile(f"{word}.pqx", 1, "")
        deltas.append(Delta(f"{name}{word}", 1, int(lo), int(hi or lo), 0, int(size), int(size), 1, 0, index, ()))
    table_id = ord(name[0])
    return TableState(table_id, name, SCHEMA, 1, tuple(deltas), qt, Settings(most, width))


def state(*tables: TableState, clock: int, qt: int = 0) -> State:
    return State(1, clock, qt, {t.name: t for t in tables})


def view(name: str, over: TableState, script: str, *, built: int, width: int = 4, most: int = 16) -> TableState:
    spec = ViewSpec("", (ViewSource(over.table_id, over.name),), (ViewColumn("k", "int", "group", "k"),), "", "merge")
    return replace(table(name, script, width=width, most=most, qt=built), view=ViewState(spec, built))


def script_of(stages: Iterable[Stage]) -> str:
    lines = []
    for s in stages:
        if isinstance(s, Advance):
            lines.append(f"qt {s.before}>{s.database}")
        elif isinstance(s, Refresh):
            lines.append(f"{s.table} takes {s.deltas[0].t_lo}-{s.until}")
        else:
            lines.append(f"{s.table} {s.deltas[0].t_lo}-{s.deltas[-1].t_hi}")
    return ", ".join(lines)


@pytest.mark.parametrize(
    ("deltas", "most", "width", "expected"),
    [
        ("1:10", 16, 4, "qt 0>9"),
        ("1:10 2:10 3:10", 16, 4, "qt 0>9"),
        ("1:10 2:10 3:10 4:10", 16, 4, "qt 0>9, t 1-4"),
        ("1:100 2:10 3:10 4:10", 16, 4, "qt 0>9"),  # the old one is too large to be rewritten for three small ones
        ("1:100 2:10 3:10 4:10 5:10", 16, 4, "qt 0>9, t 2-5"),
        ("1:30 2:10 3:10 4:10", 16, 4, "qt 0>9, t 1-4"),
        # Beyond the bound the QT stops right before the first hidden delta until compaction brings the count down.
        ("1:99 3:50 5:20 7:9", 3, 100, "qt 0>6, t 3-5, qt 6>9"),
        ("1:99 3:9 5:9 7:9", 2, 100, "qt 0>4, t 5-7, t 1-3, qt 4>9"),
    ],
)
def test_stages_of_one_table(deltas: str, most: int, width: int, expected: str) -> None:
    assert script_of(pick(state(table("t", deltas, most=most, width=width), clock=9))) == expected


def test_a_table_without_commits_holds_nothing_back() -> None:
    idle, busy = table("i", ""), table("b", "4:1")
    advance = pick_advance(state(idle, busy, clock=4))
    assert advance is not None
    assert advance.database == 4


def test_the_database_waits_for_its_slowest_table() -> None:
    fast = table("f", "1:9 6:9")
    slow = table("s", "2:9 3:9 4:9", most=2, width=100)
    advance = pick_advance(state(fast, slow, clock=6))
    assert advance is not None
    assert {name: qt for _, name, qt in advance.tables} == {"f": 6, "s": 3}
    assert advance.database == 3


def test_the_qt_never_lands_inside_a_delta() -> None:
    compacted = table("c", "1:9 3-6:9")
    slow = table("s", "2:9 4:9 5:9", most=2, width=100)
    advance = pick_advance(state(compacted, slow, clock=6))
    assert advance is not None
    assert advance.database == 2  # 4 would be inside [3, 6]


def test_a_busy_table_is_left_out() -> None:
    t = table("t", "1:1 2:1 3:1 4:1")
    assert pick_compaction(state(t, clock=4)) is not None
    assert pick_compaction(state(t, clock=4), busy={t.table_id}) is None


def test_one_compaction_reads_at_most_fan_in_deltas() -> None:
    many = table("t", " ".join(f"{i}:1" for i in range(1, 51)), most=100)
    limited = TableState(**{**many.__dict__, "settings": Settings(100, 4, 10)})
    stage = pick_compaction(state(limited, clock=50))
    assert stage is not None
    assert len(stage.deltas) == 10
    assert stage.deltas[0].t_lo == 1  # the oldest first: they hold the QT back


def test_a_backlog_becomes_one_refresh_of_each_view() -> None:
    t = table("t", " ".join(f"{i}:10" for i in range(1, 8)), qt=7)
    views = view("v", t, "1:2 2:2", built=2), view("w", t, "1:2 2:2", built=2)
    stages = pick(state(t, *views, clock=7, qt=2))
    assert script_of(stages[:4]) == "t 3-7, v takes 3-7, w takes 3-7, qt 2>7"


def test_a_backlog_of_large_deltas_is_refreshed_first() -> None:
    t = table("t", " ".join(f"{i}:{8 << 20}" for i in range(1, 8)), qt=7)
    v = view("v", t, "1:2 2:2", built=2)
    assert script_of(pick(state(t, v, clock=7, qt=2))[:3]) == "v takes 3-3, qt 2>3, v takes 4-4"


def test_views_that_are_behind_are_compacted_all_the_same() -> None:
    t = table("t", "1:1 2:1 3:1 4:1 5:1", qt=5)
    v = view("v", t, "1:9 2:9 3:9 4:9", built=4)
    assert script_of(pick(state(t, v, clock=5, qt=4))[:1]) == "v 1-4"
    large = view("v", t, " ".join(f"{i}:{8 << 20}" for i in range(1, 5)), built=4)
    assert script_of(pick(state(t, large, clock=5, qt=4))[:1]) == "v takes 5-5"


def test_what_the_qt_waits_for_comes_before_refreshes() -> None:
    big = 8 << 20
    t = table("t", f"1:{big} 3:{big} 5:{big} 7:{big}", most=2, width=100, qt=4)
    v = view("v", t, "1:1 3:1", built=4)
    stages = script_of(pick(state(t, v, clock=7, qt=4)))
    assert stages.startswith("t 1-3, v takes 5-5, qt 4>6, t 1-5, v takes 7-7, qt 6>7")


@checking(max_examples=100, deadline=None)
@given(st.integers(1, 20), st.integers(20, 100), st.integers(1, 100), st.integers(2, 6))
def test_refreshes_do_not_starve_however_fast_batches_come(at_once: int, rounds: int, size: int, width: int) -> None:
    """While each stage runs, more batches come in; the views are never left behind for good."""
    t, clock = table("t", f"1:{size}", width=width), 1
    now = state(t, view("v", t, "1:1", built=1), clock=clock, qt=1)
    refreshed = 0
    for _ in range(rounds):
        while isinstance(stage := pick_next(now), Advance):  # takes no time
            now = picking._after(now, stage)
        if stage is not None:
            refreshed += isinstance(stage, Refresh)
            now = picking._after(now, stage)
        source = now.tables["t"]
        more = table("t", " ".join(f"{clock + i}:{size}" for i in range(1, at_once + 1))).deltas
        clock += at_once
        tables = {**now.tables, "t": replace(source, deltas=(*source.deltas, *more))}
        now = replace(now, clock=clock, tables=tables)
    assert refreshed >= rounds // 5
    assert now.qt >= clock // 2


@checking(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 1000), max_size=40), st.integers(2, 8), st.integers(2, 6), st.integers(0, 40))
def test_every_plan_ends_with_all_visible_and_a_cover_at_every_qt(
    sizes: list[int], most: int, width: int, qt: int
) -> None:
    qt = min(qt, most)
    t = table("t", " ".join(f"{i}:{s}" for i, s in enumerate(sizes, 1)), most=most, width=width, qt=qt)
    live = {d.delta_id: (d.t_lo, d.t_hi) for d in t.deltas}
    published = qt
    for stage in pick(state(t, clock=len(sizes) + 1, qt=qt)):
        if isinstance(stage, Advance):
            assert stage.database > published
            published = stage.database
        else:
            lo, hi = stage.deltas[0].t_lo, stage.deltas[-1].t_hi
            assert hi <= published or lo > published
            live = {k: v for k, v in live.items() if not lo <= v[0] <= hi} | {f"{lo}-{hi}": (lo, hi)}
        spans = [Delta(k, 1, lo, hi, 0, 1, 1, 1, 0, StoredFile("", 0, ""), ()) for k, (lo, hi) in live.items()]
        cover(spans, published)
    assert published == max(qt, len(sizes) + 1)
    assert len(live) <= most
