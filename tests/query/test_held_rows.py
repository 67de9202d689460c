"""Rows that are asked for again are read from memory: same answers, same figures, bounded, never in the way."""

from __future__ import annotations

import datetime as dt
import weakref
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import parquetry
from parquetry.maintain.pick import Advance
from parquetry.query.local import admit_rows, held_rows
from parquetry.query.rules import hold_rows
from parquetry.storage.scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from parquetry.query.local.held_rows import HeldRows
    from parquetry.warehouse import Warehouse

QUERY = "SELECT k, v, d, s, x FROM t WHERE k >= 2 ORDER BY k"


@pytest.fixture
def wh(tmp_path: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with parquetry.connect(tmp_path / "warehouse", spark=spark) as opened:
        opened.create_table("t", "k int, v bigint, d decimal(9,2), s string, x double", key=["k"], model="upsert")
        _add(opened, "t", [1, 2, 3], 0)
        _add(opened, "t", [3, 4], 100)
        yield opened


def _add(wh: Warehouse, table: str, keys: list[int], plus: int) -> None:
    rows = {
        "k": pa.array(keys, pa.int32()),
        "v": pa.array([k + plus for k in keys], pa.int64()),
        "d": pa.array([Decimal(k + plus) / 4 if k % 2 else None for k in keys], pa.decimal128(9, 2)),
        "s": pa.array([f"it's {k}" for k in keys]),
        "x": pa.array([float("nan") if k % 2 else -0.0 for k in keys]),
    }
    wh.ingest(table, pa.table(rows))
    wh.maintain()


def _held(wh: Warehouse) -> HeldRows:
    return wh._engine._local.held


def _ask(wh: Warehouse, sql: str = QUERY) -> tuple[str, dict[str, object]]:
    result = wh.sql(sql, executor="local")
    rows = repr(result.rows())
    stats = {n: v for n, v in result.stats.items() if not n.endswith("_ms")}
    return rows, stats


def test_answers_are_the_same_from_files_and_from_memory(wh: Warehouse) -> None:
    first = _ask(wh)[0]
    assert not _held(wh)._copies.pieces
    assert _ask(wh)[0] == first
    _held(wh).wait()
    assert len(_held(wh)._copies.pieces) == 2
    assert _ask(wh)[0] == first
    assert repr(wh.sql(QUERY, executor="spark").rows()) == first


def test_figures_tell_what_the_kept_row_groups_hold_even_in_memory(wh: Warehouse) -> None:
    for _ in range(2):
        _ask(wh)
    _held(wh).wait()
    _, stats = _ask(wh, "SELECT v FROM t WHERE k >= 4")
    assert (stats["rows_scanned"], stats["blocks_read"], stats["files_read"]) == (2, 1, 1)
    assert 0 < int(str(stats["bytes_read"])) < 1000
    _, unpruned = _ask(wh, "SELECT v FROM t WHERE k >= 1")
    assert unpruned["rows_scanned"] == 5


def test_a_new_delta_is_seen_at_once(wh: Warehouse) -> None:
    for _ in range(3):
        _ask(wh)
    _held(wh).wait()
    _add(wh, "t", [2], 1000)
    assert "1002" in _ask(wh)[0]


def test_a_table_in_memory_stays_there_as_it_changes(wh: Warehouse) -> None:
    for _ in range(2):
        _ask(wh)
    _held(wh).wait()
    before = set(_held(wh)._copies.pieces)
    wh.ingest("t", pa.table({"k": pa.array([9], pa.int32())}))
    hidden = _ask(wh)[0]
    wh._engine.follower.look()
    assert len(_held(wh)._copies.pieces) == 3, "a delta is copied when it is seen, before the QT reaches it"
    wh.maintain()
    assert "'k': 9" not in hidden
    assert "'k': 9" in _ask(wh)[0]
    for key in range(10, 14):
        wh.ingest("t", pa.table({"k": pa.array([key], pa.int32())}))
    wh.maintain()
    assert "'k': 13" in _ask(wh)[0]
    wh._engine.follower.look()
    files = {f.path for d in wh.catalog.state().table("t").deltas for f in d.files}
    assert {path for path, _ in _held(wh)._copies.pieces} == files, "copies of what was compacted leave"
    assert not set(_held(wh)._copies.pieces) & before


def test_little_of_a_table_in_memory_is_no_reason_to_copy_more(wh: Warehouse) -> None:
    for k in range(20, 23):
        wh.ingest("t", pa.table({"k": pa.array([k], pa.int32())}))
    wh.maintain()
    for _ in range(2):
        _ask(wh, "SELECT v FROM t WHERE k = 21")
    _held(wh).wait()
    held = set(_held(wh)._copies.pieces)
    wh.create_table("u", "k int", key=["k"])
    _ask(wh, "SELECT v FROM t WHERE k = 21")
    wh._engine.follower.look()
    assert set(_held(wh)._copies.pieces) == held
    assert len(held) == 1


def test_a_dropped_table_leaves_memory(wh: Warehouse) -> None:
    for _ in range(2):
        _ask(wh)
    _held(wh).wait()
    assert _held(wh)._copies.pieces
    wh.create_table("u", "k int", key=["k"])
    wh.drop_table("t")
    wh.sql("SELECT count(*) AS n FROM u", executor="local").rows()
    wh._engine.follower.look()
    assert not _held(wh)._copies.pieces


def test_a_file_is_copied_only_when_asked_for_again(wh: Warehouse) -> None:
    _ask(wh, "SELECT count(*) AS n FROM t WHERE k = 4")
    _held(wh).wait()
    assert not _held(wh)._copies.pieces


def test_a_query_may_ask_for_the_files_themselves(wh: Warehouse, tmp_path: Path) -> None:
    for _ in range(3):
        files = wh.sql(QUERY, executor="local", off=["hold_rows"]).rows()
        _held(wh).wait()
    assert not _held(wh)._copies.pieces, "such a query is no reason to copy anything"
    for _ in range(3):
        _ask(wh)
        _held(wh).wait()
    assert repr(wh.sql(QUERY, executor="local", off=["hold_rows"]).rows()) == repr(files) == _ask(wh)[0]
    for path in (tmp_path / "warehouse").rglob("part-*.parquet"):
        path.write_bytes(b"no parquet")
    _ask(wh)
    with pytest.raises(parquetry.ParquetryError, match="verify"):
        wh.sql(QUERY, executor="local", off=["hold_rows"]).rows()


def test_memory_is_bounded_and_what_is_asked_for_more_stays(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        wh.create_table(name, "k int, v bigint, d decimal(9,2), s string, x double", key=["k"])
        _add(wh, name, [1, 2], 0)
    a, b = ("SELECT sum(v) AS v FROM a", "SELECT sum(v) AS v FROM b")
    _ask(wh, a), _ask(wh, a)
    _held(wh).wait()
    (weight,) = (c.weight for c in _held(wh)._copies.pieces.values())
    monkeypatch.setattr(admit_rows, "_MOST_BYTES", weight + weight // 2)
    (held,) = _held(wh)._copies.pieces
    for _ in range(2):
        _ask(wh, b)
    _held(wh).wait()
    assert list(_held(wh)._copies.pieces) == [held], "asked for as often: no reason to leave"
    for _ in range(2):
        _ask(wh, b)
    _held(wh).wait()
    assert len(_held(wh)._copies.pieces) == 1
    assert list(_held(wh)._copies.pieces) != [held], "the other one is asked for more by now"
    assert _ask(wh, a)[0] == _ask(wh, b)[0] == "[{'v': 3}]"


def test_a_query_reads_on_from_a_copy_that_has_left(wh: Warehouse) -> None:
    for _ in range(3):
        first = _ask(wh)[0]
    _held(wh).wait()
    planned = wh.sql(QUERY, executor="local").plan
    there = _held(wh).of(planned)
    assert there
    left = weakref.ref(next(iter(there.values()))[0])  # of a file, or merged of both
    with _held(wh)._lock:
        _held(wh)._copies.take_out(list(_held(wh)._copies.pieces))
    sources: list[Any] = []
    text = wh._engine._local._text(planned, there, sources)
    held = [h for s in sources for h in s.held]
    assert wh._engine._local._own().run(text, held).num_rows == len(wh.sql(QUERY, executor="spark").rows())
    assert left() is not None
    del there, held, sources
    assert left() is None, "nobody else holds it"
    assert _ask(wh)[0] == first, "from the files"


def test_only_pieces_that_are_asked_for_are_copied(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (held_rows, scan):
        monkeypatch.setattr(module, "PIECE_ROWS", 200)
    wh.create_table("u", "k int, v bigint", key=["k"], settings={"row_group_rows": 100})
    wh.ingest("u", pa.table({"k": pa.array(range(1000), pa.int32()), "v": pa.array(range(1000), pa.int64())}))
    wh.maintain()
    for _ in range(3):
        assert wh.sql("SELECT sum(v) AS v FROM u WHERE k BETWEEN 410 AND 420", executor="local").rows() == [
            {"v": sum(range(410, 421))}
        ]
        _held(wh).wait()
    ((path, number),) = _held(wh)._copies.pieces
    assert number == 2
    for _ in range(3):
        result = wh.sql("SELECT count(*) AS n, sum(v) AS v FROM u WHERE k >= 150", executor="local")
        assert result.rows() == [{"n": 850, "v": sum(range(150, 1000))}]
        assert result.stats["rows_scanned"] == 900
        _held(wh).wait()
    assert set(_held(wh)._copies.pieces) == {(path, n) for n in range(5)}
    held = _held(wh).of(wh.sql("SELECT v FROM u WHERE k IN (50, 999)", executor="local").plan)
    assert [len(h) for h in held.values()] == [2]


def test_a_query_of_many_rows_is_not_for_memory(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_rows, "_MOST_ROWS", 4)
    for _ in range(3):
        _ask(wh)
    _held(wh).wait()
    assert not _held(wh)._copies.pieces
    (step,) = [d for d in wh.explain(QUERY, executor="local").decisions if d.rule == "hold_rows"]
    assert (step.outcome, step.figures) == ("refused", {"rows": 5, "pieces": 2})
    for _ in range(3):
        _ask(wh, "SELECT v FROM t WHERE k = 4")
    _held(wh).wait()
    assert _held(wh)._copies.pieces


def test_a_piece_that_takes_too_much_memory_is_read_from_its_file(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admit_rows, "_MOST_PIECE_BYTES", 10)
    for _ in range(3):
        _ask(wh)
        _held(wh).wait()
    assert not _held(wh)._copies.pieces


def test_a_damaged_file_is_reported_by_the_query_not_by_its_copy(wh: Warehouse, tmp_path: Path) -> None:
    assert _ask(wh)
    for path in (tmp_path / "warehouse").rglob("part-*.parquet"):
        path.write_bytes(b"no parquet")
    with pytest.raises(parquetry.ParquetryError, match="verify"):
        _ask(wh, QUERY.replace(">= 2", ">= 1"))
    _held(wh).wait()
    assert not _held(wh)._copies.pieces


def test_types_come_out_of_memory_as_out_of_files(wh: Warehouse) -> None:
    wh.create_table("u", "k date, at timestamp, b binary, l array<int>", key=["k"])
    row = {
        "k": [dt.date(2026, 1, 2)],
        "at": pa.array([dt.datetime(2026, 1, 2, 3)], pa.timestamp("us", "UTC")),
        "b": [b"\x00'"],
        "l": pa.array([[1, None]], pa.list_(pa.int32())),
    }
    wh.ingest("u", pa.table(row))
    wh.maintain()
    asked = "SELECT k, at, b FROM u"
    first = wh.sql(asked, executor="local").arrow()
    wh.sql(asked, executor="local").arrow()
    _held(wh).wait()
    assert _held(wh)._copies.pieces
    again = wh.sql(asked, executor="local").arrow()
    assert again.schema == first.schema
    assert again.equals(first)


MODELS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {},
    "upsert by sequence": {"sequence": "s"},
    "aggregate": {"values": {"v": "sum", "w": "max", "s": "replace"}},
}


@pytest.mark.parametrize(("model", "first"), [*((m, "small") for m in MODELS), ("upsert", "large")])
def test_small_deltas_are_merged_in_memory(
    model: str, first: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (held_rows, scan):
        monkeypatch.setattr(module, "PIECE_ROWS", 4)
    with parquetry.connect(tmp_path / "warehouse", spark=spark) as wh:
        settings = {"compaction_width": 64, "max_query_deltas": 64}
        name = model.split(" ")[0]
        wh.create_table(
            "t", "k int, v bigint, w int, s bigint", key=["k"], model=name, settings=settings, **MODELS[model]
        )
        view = "SELECT w, count(*) AS n, sum(v) AS v, min(s) AS s FROM t GROUP BY w"
        wh.create_view("by_w", view)
        asked = (
            "SELECT k, v, w, s FROM t ORDER BY k, v, w, s",
            "SELECT k, v FROM t WHERE k = 3 ORDER BY v",
            "SELECT sum(v) AS v, max(w) AS w FROM t WHERE k > 1",
            "SELECT w, n, v, s FROM by_w ORDER BY w",
        )

        def add(batch: int) -> None:
            keys = [1, 2 + batch % 3, 3, 10 + batch, *(range(20, 30) if first == "large" and batch == 0 else ())]
            columns = {
                "k": pa.array(keys, pa.int32()),
                "v": pa.array([k * 10 + batch for k in keys], pa.int64()),
                "w": pa.array([(k * batch) % 5 for k in keys], pa.int32()),
                "s": pa.array([(7 * batch) % 5 if k % 2 else batch for k in keys], pa.int64()),
            }
            wh.ingest("t", pa.table(columns))
            wh.maintain()

        for batch in range(6):
            add(batch)
            for sql in asked:
                for _ in range(2):
                    wh.sql(sql, executor="local").rows()
            _held(wh).wait()
            wh._engine.follower.look()
            for sql in asked:
                found = wh.sql(sql, executor="local").rows()
                assert found == wh.sql(sql, executor="local", off=["hold_rows"]).rows(), (batch, sql)
                assert batch < 5 or found == wh.sql(sql, executor="spark").rows(), sql
            if batch >= 3:
                held = _held(wh).of(wh.sql(asked[0], executor="local").plan)
                several = 1 if first == "small" else 2
                assert (len(held), len({h for of in held.values() for h in of})) == (batch + 1, several)
        mine = wh.catalog.state().table("t").table_id
        (merged,) = (m for m, copy in _held(wh)._copies.merged.items() if copy.table_id == mine)
        assert len(merged) == (6 if first == "small" else 5), "what was merged before leaves"
        wh.drop_view("by_w")
        wh.drop_table("t")
        wh._engine.follower.look()
        assert not _held(wh)._copies.merged


def test_small_files_of_one_delta_are_one_copy(wh: Warehouse) -> None:
    wh.create_table("u", "k int, v bigint", key=["k"], model="upsert")
    rows = {"k": pa.array(range(3000), pa.int32()), "v": pa.array(range(3000), pa.int64())}
    wh.ingest("u", pa.table(rows), tasks=3)
    wh.maintain()
    asked = "SELECT sum(v) AS v, count(*) AS n FROM u WHERE k <> 5"
    for _ in range(4):
        result = wh.sql(asked, executor="local")
        assert result.rows() == [{"v": 2999 * 1500 - 5, "n": 2999}]
        _held(wh).wait()
    held = _held(wh).of(result.plan)
    assert (result.stats["files_read"], len(held), len({h for of in held.values() for h in of})) == (3, 3, 1)


def test_a_joined_table_with_nothing_to_read(tmp_path: Path, spark: SparkSession) -> None:
    with parquetry.connect(tmp_path / "warehouse", spark=spark) as wh:
        wh.create_table("f", "k int, d int, v bigint", key=["k"])
        wh.create_table("dim", "d int, name string", key=["d"], model="upsert")
        wh.create_view("by_d", "SELECT d, sum(v) AS v, count(*) AS n FROM f GROUP BY d")
        columns = {
            "k": pa.array(range(8), pa.int32()),
            "d": pa.array([1, 2] * 4, pa.int32()),
            "v": pa.array(range(8), pa.int64()),
        }
        wh.ingest("f", pa.table(columns))
        wh.maintain()
        for name in ("nobody", "someone", "else"):
            joined = "SELECT dim.name, sum(f.v) AS v FROM f JOIN dim ON f.d = dim.d"
            asked = f"{joined} WHERE dim.name = '{name}' GROUP BY dim.name"
            for _ in range(3):
                for _ in range(3):
                    wh.sql("SELECT d, sum(v) AS v FROM f GROUP BY d", executor="local").rows()
                    _held(wh).wait()
                assert _held(wh)._copies.pieces
                result = wh.sql(asked, executor="local")
                assert result.plan.view == "by_d"
                assert result.rows() == []
                assert result.stats["rows_scanned"] == 2
        for _ in range(9):
            assert wh.sql(asked, executor="local").rows() == []
        wh.ingest("f", pa.table(columns))
        assert any(isinstance(stage, Advance) for stage in wh.maintaining())  # ends before it is performed
        wh._engine.follower.look()
        (coming,) = (p for p in wh._engine._planned._next.values() if "dim" in p.tables)
        assert wh._engine._local.read_by(coming)["rows_scanned"] == 4
        wh.maintain()
        assert wh.sql(asked, executor="local").rows() == []
