"""The parts of the comparison with other systems that need none of them."""

import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from benchmarks.peers._measure import Arm, Figures, add, ask, empty
from benchmarks.peers._model import Answer, Stored, Table, View, canonical, over
from benchmarks.peers._tables import best, markdown, rows_of

ROOT = Path(__file__).parents[2]
VIEWS = (View("small", ("day",), ("v",)), View("large", ("day", "user"), ("v",)))
TABLE = Table("t", "t.parquet", ("day", "user"), ("day",), ("day",), 1000, 100, views=VIEWS)


class Told:
    """A system that answers what it was told to, and remembers what it was asked."""

    def __init__(self, ms: float, rows: list[list[object]]) -> None:
        self.ms, self.rows = ms, rows
        self.calls: list[str] = []

    def versions(self) -> dict[str, str]:
        return {}

    def load(self, table: Table, how: str) -> Stored:
        return Stored(100)

    def create(self, table: Table, how: str) -> None:
        self.calls.append("create")

    def append(self, table: Table, how: str, path: str) -> float:
        self.calls.append(path)
        return self.ms

    upsert = append

    def stored(self, table: Table, how: str) -> Stored:
        return Stored(50)

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        return Answer(self.rows, self.ms, bytes=10 if measure else None)

    def close(self) -> None: ...


def test_a_table_survives_the_way_to_another_process() -> None:
    assert Table.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE


def test_the_same_answer_in_the_types_of_two_engines_is_equal() -> None:
    spark = [(Decimal("12.50"), 3, date(2026, 1, 2), None, 2.0)]
    duck = [(Decimal("12.5"), Decimal("3"), date(2026, 1, 2), None, 2.0000000000001)]
    assert canonical(spark) == canonical(duck)
    assert canonical(spark) != canonical([(Decimal("12.51"), 3, date(2026, 1, 2), None, 2.0)])


def test_a_query_goes_to_the_smallest_view_that_has_its_columns() -> None:
    by_day = "SELECT day, count(*) AS n FROM t GROUP BY day"
    assert TABLE.over_view(by_day, "x_{}") == "SELECT day, sum(n) AS n FROM x_small GROUP BY day"
    assert "FROM x_large" in TABLE.over_view("SELECT day, sum(v) AS v FROM t WHERE user = 1 GROUP BY day", "x_{}")


def test_only_the_table_of_the_query_gets_another_name() -> None:
    assert over("SELECT t.a FROM t WHERE b = 'FROM tt'", "t", "u") == "SELECT t.a FROM u WHERE b = 'FROM tt'"


def test_no_arm_is_timed_before_all_its_answers_are_right() -> None:
    arms = [Arm("Parquetry", "parquetry", Told(1, [[1]]), "key", False), Arm("X", "x", Told(2, [[2]]), "y", False)]
    figures = {a.title: Figures(a.title, a.peer, a.on_spark) for a in arms}
    with pytest.raises(AssertionError, match="X answers differently"):
        ask(arms, figures, "t", ["SELECT 1"], [[[1]]], 1, lambda _: None)
    assert figures["Parquetry"].ms == ()


def test_the_tables_line_of_a_faster_peer_says_that_we_lose() -> None:
    arms = [Arm("Parquetry", "parquetry", Told(4, [[1]]), "key", False), Arm("X", "x", Told(2, [[1]]), "y", False)]
    figures = empty(arms, TABLE)
    add(arms, figures, TABLE, ["a", "b"], "append", lambda _: None)
    ask(arms, figures, "t", ["SELECT 1"], [[[1]]], 1, lambda _: None)
    ours, theirs = rows_of(figures)
    assert (ours["we lose"], theirs["we lose"], theirs["p50 / ours"]) == ("", "time, batches", 0.5)
    assert best(figures, "x", "p50") == 2
    assert "| X | 2 |" in markdown(figures)


def test_a_system_in_another_process_tells_its_errors(tmp_path: Path) -> None:
    request = json.dumps({"system": "nothing", "call": "open", "arguments": {}})
    command = [sys.executable, "-m", "benchmarks.peers._serve"]
    done = subprocess.run(command, input=request + "\n", capture_output=True, text=True, cwd=ROOT, check=True)
    assert "ModuleNotFoundError" in json.loads(done.stdout)["error"]
