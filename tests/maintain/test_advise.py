"""The advisor ranks layouts on held-out queries, applies a winner only if it pays, and its estimates are checked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.errors import ParquetryError, QueryError, SchemaError
from parquetry.layouts.registry import LEARNERS
from parquetry.maintain.compare import AdviseOptions

ROWS = 60_000
SMALL = {"block_group_rows": 200, "row_group_rows": 10_000}
LAYOUT = RelayoutOptions(block_rows=1_000, cells=4)
OPTIONS = AdviseOptions(layout=LAYOUT)


def batch(rows: int = ROWS, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "k": pa.array(rng.permutation(rows), pa.int64()),
            "a": pa.array(rng.integers(0, 100_000, rows), pa.int32()),
            "b": pa.array(rng.integers(0, 3_000, rows), pa.int64()),
            "s": pa.array([f"s{n:03}" for n in rng.integers(0, 200, rows)]),
            "v": pa.array(rng.integers(-50, 50, rows), pa.int64()),
        }
    )


def queries(seed: int, count: int) -> list[str]:
    rnd = random.Random(seed)
    charts = [(20_000, 500), (60_000, 1_900), (81_000, 200)]
    found = []
    for _ in range(count):
        a, b = rnd.choice(charts)
        a, b = a + rnd.randrange(-500, 500), b + rnd.randrange(-20, 20)
        found.append(f"SELECT sum(v) AS v FROM t WHERE a BETWEEN {a} AND {a + 6000} AND b BETWEEN {b} AND {b + 150}")
    return found


def log(wh: parquetry.Warehouse, statements: list[str], folder: Path) -> None:
    file = folder / "log.sql"
    file.write_text(";\n".join(statements))
    assert wh.import_workload(file).rejected == ()


@pytest.fixture
def wh(tmp_path: Path, spark: Any) -> Any:
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", batch(1).schema, key=["k"], settings=SMALL)
        yield wh


def filled(wh: parquetry.Warehouse) -> parquetry.Warehouse:
    wh.ingest("t", batch(), tasks=1)
    wh.maintain()
    return wh


def test_a_round_of_advice_rewrite_and_check(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    log(filled(wh), queries(1, 60), tmp_path)
    version = wh.catalog.version()
    told: list[str] = []
    advice = wh.advise("t", options=OPTIONS, phase=told.append)
    assert wh.catalog.version() == version
    assert any("paw" in text for text in told)
    assert advice.verdict == "relayout"
    assert advice.today is not None
    assert advice.bound is not None
    assert advice.chosen is not None
    seen = {c.learner for c in advice.candidates} | {left.label.split()[0] for left in advice.left_out}
    assert seen == set(LEARNERS)
    costs = [c.bytes_per_query for c in advice.candidates]
    assert advice.chosen.bytes_per_query <= min(costs) * 1.02
    assert advice.chosen.bytes_per_query < advice.today.bytes_per_query
    assert 0 < advice.bound.bytes <= advice.bound.rounded_bytes <= min(costs) * 1.05
    assert all(c.reason and c.sensitivity for c in advice.candidates)
    assert (advice.learned_from, advice.held_out) == (42, 18)

    done = wh.relayout("t", "auto", options=LAYOUT)
    assert done.applied
    assert done.predicted is not None
    assert done.learner == advice.chosen.learner
    before = wh.check_layout("t")
    assert before.queries == 0
    assert "no query" in before.reason
    for q in queries(2, 200):
        wh.sql(q, executor="local").arrow()
    checked = wh.check_layout("t")
    (local,) = checked.compared
    assert (local.executor, local.queries) == ("local", 200)
    assert local.median_error <= 0.15
    assert checked.promised["bytes_per_query"] == pytest.approx(local.real_bytes, rel=0.3)

    again = wh.relayout("t", "auto", options=LAYOUT)
    assert not again.applied
    assert again.reason
    assert again.version == wh.catalog.version() == done.version


def test_a_rewrite_that_does_not_pay_in_time_changes_nothing(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    log(filled(wh), queries(1, 20), tmp_path)
    version = wh.catalog.version()
    done = wh.relayout("t", "auto", options=LAYOUT, pays_back_within=1)
    assert not done.applied
    assert "not within 1" in done.reason
    assert wh.catalog.version() == version


def test_one_query_is_priced_without_writing(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    log(filled(wh), queries(1, 20), tmp_path)
    version = wh.catalog.version()
    (query,) = queries(3, 1)
    found = wh.what_if(query, "paw", options=LAYOUT)
    assert found.then.bytes < found.today.bytes
    assert found.matching_rows <= found.then.rows < found.today.rows
    assert wh.catalog.version() == version
    wh.relayout("t", "paw", options=LAYOUT)
    stats = wh.sql(query, executor="local").stats
    assert stats["bytes_read"] == pytest.approx(found.then.bytes, rel=0.3)
    with pytest.raises(ParquetryError, match="unknown layout"):
        wh.what_if(query, "magic")
    with pytest.raises(QueryError, match="which table"):
        wh.what_if("SELECT 1", "paw")


def test_time_runs_out_with_what_is_known_so_far(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    log(filled(wh), queries(1, 20), tmp_path)
    advice = wh.advise("t", options=AdviseOptions(layout=LAYOUT, time_limit_s=0.0))
    assert advice.verdict == "keep"
    assert not advice.candidates
    assert all("time limit" in left.why for left in advice.left_out)


def test_bad_input_gets_one_useful_line(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    def line(said: str) -> str:
        advice = wh.advise("t", options=OPTIONS)
        assert (advice.verdict, advice.winner) == ("keep", None)
        assert said in advice.reason
        assert "\n" not in advice.reason
        kept = wh.relayout("t", "auto", options=LAYOUT)
        assert not kept.applied
        return advice.reason

    line("no rows")
    wh.ingest("t", batch(500), tasks=1)
    wh.maintain()
    line("no query")
    log(wh, ["SELECT sum(v) FROM t WHERE a < 5"], tmp_path)
    line("less than two blocks")
    wh.ingest("t", batch(5_000), tasks=1)
    wh.maintain()
    line("are needed to hold some back")
    with pytest.raises(SchemaError, match="split"):
        AdviseOptions(split=1.5)
    with pytest.raises(SchemaError, match="unknown layout"):
        wh.advise("t", options=AdviseOptions(learners=["magic"]))


def test_a_log_of_full_scans_or_contradictions_is_told_apart(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    filled(wh)
    log(wh, ["SELECT sum(v) FROM t"] * 10, tmp_path)
    assert "read the whole table" in wh.advise("t", options=OPTIONS).reason
    never = ["SELECT sum(v) FROM t WHERE a < 5 AND a > 9"] * 10
    file = tmp_path / "never.sql"
    file.write_text(";\n".join(never))
    assert "contradict" in wh.advise("t", workload=file, options=OPTIONS).reason
    file.write_text(";\n".join([*never, *queries(1, 12), "SELECT sum(v) FROM t"]))
    advice = wh.advise("t", workload=file, options=OPTIONS)
    assert advice.verdict == "relayout"
    assert any("never match" in note for note in advice.notes)
    assert any("whole table" in note for note in advice.notes)


def test_thousands_of_distinct_predicates_are_thinned(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    filled(wh)
    rnd = random.Random(5)
    many = [
        f"SELECT sum(v) FROM t WHERE a = {rnd.randrange(100_000)} AND b > {rnd.randrange(3_000)}" for _ in range(3000)
    ]
    file = tmp_path / "many.sql"
    file.write_text(";\n".join(many))
    advice = wh.advise("t", workload=file, options=AdviseOptions(layout=LAYOUT, learners=["paw", "kdtree"]))
    assert advice.learned_from <= 1000
    assert advice.held_out <= 200
    assert advice.verdict == "relayout"
