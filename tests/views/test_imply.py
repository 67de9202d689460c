"""Implication between conditions, against all values of a small column."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from parquetry.views.imply import implied
from parquetry.views.normalize import expression

TYPES = {"k": "int", "c": "string", "f": "double"}
NUMBERS = st.integers(-3, 3)
CONDITIONS = st.one_of(
    st.builds(lambda op, n: f"k {op} {n}", st.sampled_from(["=", "<", "<=", ">", ">="]), NUMBERS),
    st.builds(lambda op, n: f"{n} {op} k", st.sampled_from(["=", "<", "<=", ">", ">="]), NUMBERS),
    st.builds(lambda a, b: f"k BETWEEN {a} AND {b}", NUMBERS, NUMBERS),
    st.builds(lambda ns: f"k IN ({', '.join(map(str, ns))})", st.lists(NUMBERS, min_size=1, max_size=3)),
    st.builds(lambda a, b: f"(k < {a} OR k > {b})", NUMBERS, NUMBERS),
    st.sampled_from(["k IS NOT NULL", "k + 1 > 2", "k <> 0", "NOT k = 1", "k > 0.5"]),
)


def holds(sql: str, k: int | None) -> bool:
    """By Python's own reading of the condition; null is never TRUE here."""
    if k is None:
        return False
    text = sql.replace("IS NOT NULL", "is not None").replace("<>", "!=").replace("NOT k", "not k")
    text = text.replace("OR", "or")
    if "BETWEEN" in text:
        low, high = text.removeprefix("k BETWEEN ").split(" AND ")
        text = f"{low} <= k <= {high}"
    text = text.replace("IN (", "in (0.5, ").replace(" = ", " == ")
    return bool(eval(text, {"k": k}))


@given(CONDITIONS, st.lists(CONDITIONS, min_size=1, max_size=2))
def test_what_is_implied_holds_wherever_the_given_conditions_do(wanted: str, have: list[str]) -> None:
    if implied(tree(wanted), [tree(h) for h in have], TYPES):
        for k in [None, *range(-6, 7)]:
            assert not all(holds(h, k) for h in have) or holds(wanted, k)


def tree(sql: str) -> exp.Expr:
    return expression(sql)


def told(wanted: str, *have: str) -> bool:
    return implied(tree(wanted), [tree(h) for h in have], TYPES)


def test_narrower_conditions_imply_wider_ones() -> None:
    cases: list[tuple[Any, ...]] = [
        ("k > 3", "k > 5"),
        ("k >= 3", "k BETWEEN 3 AND 9"),
        ("k IN (1, 2, 3)", "k = 2"),
        ("c = 'a'", "c IN ('a')"),
        ("k IS NOT NULL", "k < 5"),
        ("k < 9", "k > 2", "k < 4"),
    ]
    assert all(told(*c) for c in cases)


def test_what_is_not_certain_is_not_implied() -> None:
    assert not told("k > 5", "k > 3")
    assert not told("f > 1.0", "f > 2.0"), "floats are compared in ways of their own"
    assert not told("c LIKE 'a%'", "c = 'abc'")
    assert not told("k > 3", "c = 'a'")
