"""Who runs a query is chosen by expected times, which this machine's first queries measure."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parquetry.query.planning.plan import Decision
from parquetry.query.planning.speeds import ROUGH, Speeds
from parquetry.query.rules import choose_executor
from parquetry.query.rules.choose_executor import LOCAL, estimate

MACHINE = "here, 2 cores"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_executor, "spark_cores", lambda: 2)
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def plan(*tables: tuple[int, int, int], slowness: Any = ROUGH) -> Any:
    """Of tables with so many bytes, rows and mentions, all columns read."""
    made = {
        f"t{i}": SimpleNamespace(bytes=size, rows=rows, refs=[None] * mentions, column_share=1.0)
        for i, (size, rows, mentions) in enumerate(tables)
    }

    def decide(decision: Decision, **changes: Any) -> Decision:
        return decision

    return SimpleNamespace(
        tables=made, bound=SimpleNamespace(local=None), wanted="auto", slowness=slowness, decide=decide
    )


def decided(plan: Any) -> Decision:
    found: Any = LOCAL.apply(plan)
    assert isinstance(found, Decision)
    return found


def test_a_table_counts_once_for_each_mention_and_joined_rows_count_as_well() -> None:
    once, twice = estimate(plan((300_000_000, 1_000_000, 1))), estimate(plan((300_000_000, 1_000_000, 2)))
    assert (once.bytes, once.joins) == (300_000_000, 0)
    assert (twice.bytes, twice.rows, twice.joins) == (600_000_000, 2_000_000, 1)
    assert once.local_s == pytest.approx(1, abs=0.01)
    assert twice.local_s > 2 * once.local_s
    assert twice.spark_s > 2 * once.spark_s


def test_explain_tells_the_estimate_and_a_measured_machine_changes_the_choice() -> None:
    read = (60_000_000, 1_000_000, 1)
    as_it_is = decided(plan(read))
    assert as_it_is.decided == "local"
    assert as_it_is.why == "about 60,000,000 bytes: local 203 ms, Spark 650 ms expected"
    joined = decided(plan(read, (1000, 1000, 2)))
    assert "and 1,002,000 rows in 2 joins: local" in joined.why
    slow_here = decided(plan(read, slowness={"local": 8.0, "spark": 0.5}))
    assert slow_here.decided == "spark"
    assert slow_here.figures["local_ms"] == pytest.approx(1624)


def test_the_median_of_the_first_runs_is_kept_for_the_machine_and_the_very_first_only_warms_up(tmp_path: Path) -> None:
    path = tmp_path / "speeds.json"
    speeds = Speeds(path, MACHINE)
    for took in (9.0, 2.0, 3.0, 2.5, 90.0):
        speeds.note("local", 1.0, took)
        assert speeds.factors() == ROUGH
    speeds.note("local", 1.0, 2.2)
    assert speeds.factors() == {"local": 2.5, "spark": 1.0}
    for _ in range(9):
        speeds.note("local", 1.0, 7.0)  # enough was measured
    assert Speeds(path, MACHINE).factors() == {"local": 2.5, "spark": 1.0}
    other = Speeds(path, "elsewhere")
    assert other.factors() == ROUGH
    other.note("spark", 1.0, 1.0)
    other.note("spark", 1.0, 0.5)
    assert set(json.loads(path.read_text())) == {MACHINE, "elsewhere"}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"here, 2 cores": 3}', '{"here, 2 cores": {"local": ["x"]}}', "\0"])
def test_a_damaged_file_is_measured_anew(text: str, tmp_path: Path) -> None:
    path = tmp_path / "speeds.json"
    path.write_text(text)
    speeds = Speeds(path, MACHINE)
    assert speeds.factors() == ROUGH
    for _ in range(6):
        speeds.note("spark", 2.0, 1.0)
    assert Speeds(path, MACHINE).factors()["spark"] == 0.5


def test_what_cannot_be_kept_is_known_to_this_process(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path / "missing" / "speeds.json", MACHINE)
    for _ in range(6):
        speeds.note("local", 1.0, 2.0)
    assert speeds.factors()["local"] == 2.0
