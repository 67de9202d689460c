"""What a query demands of a row, as far as skipping can use it.

A predicate is a tree of And and Or over leaves that each speak of one column. A row satisfies a leaf only when the
leaf is TRUE in SQL's sense, so a null satisfies nothing but IsNull. What cannot be understood is Anything.
Order is Spark's: NaN equals NaN and is larger than every other number, -0.0 equals 0.0, strings compare by UTF-8 bytes.
Values are Python values of the column's type: int, float, Decimal, str, bytes, bool, date, datetime (aware in UTC for
timestamp, naive for timestamp_ntz).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parquetry.model.values import value_from_json, value_to_json


@dataclass(frozen=True)
class Range:
    """``lo < or <= column < or <= hi``; None is unbounded. Never satisfied by null."""

    column: str
    lo: Any = None
    hi: Any = None
    lo_open: bool = False
    hi_open: bool = False


@dataclass(frozen=True)
class OneOf:
    """``column IN (values)``; ``=`` is the case of one value. No null among the values."""

    column: str
    values: frozenset[Any]


@dataclass(frozen=True)
class IsNull:
    column: str


@dataclass(frozen=True)
class NotNull:
    column: str


@dataclass(frozen=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Anything:
    """Every row may satisfy it. ``why`` tells what was not understood; empty when there is no condition."""

    why: str = ""


@dataclass(frozen=True)
class Nothing:
    """No row satisfies it: a contradiction such as ``a < 1 AND a > 2`` or a comparison with NULL."""


Predicate = Range | OneOf | IsNull | NotNull | And | Or | Anything | Nothing
ANYTHING = Anything()


@dataclass(frozen=True, order=True)
class Opaque:
    """A condition that can be evaluated on a row and not be turned into ranges: ``a < b``, ``c LIKE '%x%'``.

    ``text`` is Spark SQL in a normal form over ``columns`` alone: it depends on nothing but the row, never raises an
    error, and is TRUE on every row for which the query's own condition is TRUE. Equal texts mean equal conditions.
    """

    text: str
    columns: tuple[str, ...]


def restrict(predicate: Predicate, columns: frozenset[str]) -> Predicate:
    """What ``predicate`` says about ``columns`` alone: implied by it, and silent on all other columns.

    Rows of equal keys must be merged before a value is judged, so a keyed table is pruned by its key only (3.2-5).
    """
    if isinstance(predicate, And):
        parts = tuple(p for p in (restrict(p, columns) for p in predicate.parts) if not isinstance(p, Anything))
        return And(parts) if len(parts) > 1 else parts[0] if parts else ANYTHING
    if isinstance(predicate, Or):
        either = tuple(restrict(p, columns) for p in predicate.parts)
        return ANYTHING if any(isinstance(p, Anything) for p in either) else Or(either)
    if isinstance(predicate, Anything | Nothing) or predicate.column in columns:
        return predicate
    return Anything("a value is known only after merging")


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Every column that the predicate speaks of."""
    if isinstance(predicate, And | Or):
        return frozenset().union(*(columns_of(p) for p in predicate.parts))
    return frozenset() if isinstance(predicate, Anything | Nothing) else frozenset({predicate.column})


def text_of(predicate: Predicate) -> str:
    """The predicate as people write it.

    >>> text_of(And((Range("a", lo=1, hi=5, hi_open=True), IsNull("b"))))
    'a >= 1 AND a < 5 AND b IS NULL'
    """
    match predicate:
        case And(parts):
            return " AND ".join(f"({text_of(p)})" if isinstance(p, Or) else text_of(p) for p in parts)
        case Or(parts):
            return " OR ".join(f"({text_of(p)})" if isinstance(p, And) else text_of(p) for p in parts)
        case Range(column, lo, hi, lo_open, hi_open):
            sides = [] if lo is None else [f"{column} {'>' if lo_open else '>='} {lo}"]
            sides += [] if hi is None else [f"{column} {'<' if hi_open else '<='} {hi}"]
            return " AND ".join(sides) or f"{column} IS NOT NULL"
        case OneOf(column, values):
            listed = sorted(map(str, values))
            if len(listed) == 1:
                return f"{column} = {listed[0]}"
            shown = ", ".join(listed[:5]) + (f", … {len(listed) - 5} more" if len(listed) > 5 else "")
            return f"{column} IN ({shown})"
        case IsNull(column):
            return f"{column} IS NULL"
        case NotNull(column):
            return f"{column} IS NOT NULL"
        case Nothing():
            return "never true"
    return predicate.why or "anything"


def predicate_to_json(predicate: Predicate) -> dict[str, Any]:
    """The inverse of :func:`predicate_from_json`.

    >>> predicate_to_json(Range("a", lo=1, lo_open=True))
    {'range': ['a', 1, None, True, False]}
    """
    match predicate:
        case And(parts):
            return {"and": [predicate_to_json(p) for p in parts]}
        case Or(parts):
            return {"or": [predicate_to_json(p) for p in parts]}
        case Range(column, lo, hi, lo_open, hi_open):
            return {"range": [column, value_to_json(lo), value_to_json(hi), lo_open, hi_open]}
        case OneOf(column, values):
            return {"in": [column, sorted((value_to_json(v) for v in values), key=repr)]}
        case IsNull(column):
            return {"null": column}
        case NotNull(column):
            return {"value": column}
        case Nothing():
            return {"nothing": True}
    return {"anything": predicate.why}


def predicate_from_json(d: Mapping[str, Any]) -> Predicate:
    """The predicate that ``predicate_to_json`` wrote."""
    ((kind, body),) = d.items()
    match kind:
        case "and" | "or":
            parts = tuple(predicate_from_json(p) for p in body)
            return And(parts) if kind == "and" else Or(parts)
        case "range":
            column, lo, hi, lo_open, hi_open = body
            return Range(column, value_from_json(lo), value_from_json(hi), lo_open, hi_open)
        case "in":
            return OneOf(body[0], frozenset(value_from_json(v) for v in body[1]))
        case "null":
            return IsNull(body)
        case "value":
            return NotNull(body)
        case "nothing":
            return Nothing()
    return Anything(body)
