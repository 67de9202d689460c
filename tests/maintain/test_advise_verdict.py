"""What the advisor concludes from figures, without data."""

from __future__ import annotations

import pytest

from parquetry import RelayoutOptions
from parquetry.errors import SchemaError
from parquetry.layouts.registry import LEARNERS
from parquetry.maintain.candidates import Candidate, candidates_of
from parquetry.maintain.compare import AdviseOptions, decide
from parquetry.maintain.verdict import Bound, Measured, pays_back, rank, reason_for

BOUND = Bound(10, 100, 20, 200)


def found(label: str, cost: float, worst: float = 0.0, back: float | None = 10.0) -> Measured:
    return Measured(label, label, {}, ("a",), 8, 100, 3.0, 50.0, cost, {"drift 1 %": worst or cost}, 0.1, back)


TODAY = found("today", 1000.0)


def test_the_cheapest_wins_and_of_equals_the_steadiest() -> None:
    ranking = rank([found("dear", 500), found("shaky", 100, worst=900), found("steady", 101, worst=120)])
    assert [m.label for m in ranking] == ["steady", "shaky", "dear"]
    assert rank([]) == []


def test_a_winner_must_gain_and_pay_back() -> None:
    assert decide([found("paw", 100, back=50)], TODAY, 1000)[:2] == ("relayout", "paw")
    verdict, winner, why = decide([found("paw", 100, back=5000)], TODAY, 1000)
    assert (verdict, winner) == ("keep", None)
    assert "5,000 queries, not within 1,000" in why
    for cost in (960.0, 1000.0, 2000.0):
        assert decide([found("paw", cost, back=None)], TODAY, 1000)[:2] == ("keep", None)
    assert decide([], TODAY, 1000)[:2] == ("keep", None)


@pytest.mark.parametrize("today", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("cost", [0.0, 0.5, 999.0, 5000.0])
def test_the_choice_is_never_worse_than_today_by_its_own_measure(cost: float, today: float) -> None:
    candidate = found("paw", cost, back=pays_back(cost, today, 100))
    verdict, winner, _ = decide([candidate], found("today", today), 10**9)
    assert winner is None or cost < today
    assert (verdict == "relayout") == (winner is not None)


def test_payback_counts_the_bytes_of_the_rewrite() -> None:
    assert pays_back(100.0, 300.0, 1000) == 5.0
    assert pays_back(300.0, 300.0, 1000) is None
    assert pays_back(299.0, 300.0, 1000) is None  # within what an estimate can tell


def test_reasons_speak_of_today_the_bound_and_drift() -> None:
    text = reason_for(found("paw", 100, worst=900), TODAY, BOUND)
    assert "10.0 x less than today" in text
    assert "0.5 x the least possible" in text
    assert "9.0 x as much under 'drift 1 %'" in text
    assert "2.0 x as much as today" in reason_for(found("key", 2000), TODAY, BOUND)
    assert "; as much as today" in reason_for(found("key", 1001), TODAY, BOUND)


def test_every_learner_is_a_candidate_and_settings_have_their_own_label() -> None:
    every = candidates_of(None)
    assert {c.learner for c in every} == set(LEARNERS)
    assert len({c.label for c in every}) == len(every)
    assert [c.label for c in candidates_of(["paw"])] == ["paw", "paw delta=0.01", "paw delta=0.05"]
    with pytest.raises(SchemaError, match="unknown layout"):
        candidates_of(["paw", "magic"])
    with pytest.raises(SchemaError, match="at least one"):
        candidates_of([])


def test_a_learner_without_queries_is_told_the_filtered_columns() -> None:
    base = RelayoutOptions()
    assert Candidate("robust").options(base, ["a", "b"]).columns == ["a", "b"]
    assert Candidate("paw", {"delta": 0.05}).options(base, ["a"]) == RelayoutOptions(delta=0.05)
    assert Candidate("robust").options(RelayoutOptions(columns=["c"]), ["a"]).columns == ["c"]


@pytest.mark.parametrize("wrong", [{"split": 0.0}, {"split": 1.0}, {"pays_back_within": 0}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SchemaError):
        AdviseOptions(**wrong)  # type: ignore[arg-type]
