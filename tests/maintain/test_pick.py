"""Pickers as readable scripts: deltas in, stages out. No Spark, no files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as checking
from hypothesis import strategies as st

from parquetry.maintain.pick import Advance, Compact, pick, pick_advance, pick_compaction
from parquetry.model.delta import Delta, StoredFile, cover
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import State, TableState

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


def script_of(stages: list[Advance | Compact]) -> str:
    lines = []
    for s in stages:
        if isinstance(s, Advance):
            lines.append(f"qt {s.before}>{s.database}")
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
