"""Building And and Or without redundancy: contradictions become Nothing, ranges of one column meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parquetry.model.predicate import (
    ANYTHING,
    And,
    Anything,
    IsNull,
    Nothing,
    NotNull,
    OneOf,
    Or,
    Predicate,
    Range,
)


def both(parts: Iterable[Predicate]) -> Predicate:
    """The conjunction. An Anything among others is dropped; alone it stays, with its reason."""
    leaves: dict[str, Predicate] = {}
    others: dict[Predicate, None] = {}
    unknown: Anything | None = None
    for part in _flat(parts, And):
        match part:
            case Nothing():
                return part
            case Anything():
                unknown = unknown or (part if part.why else None)
            case Range(column=c) | OneOf(column=c) | IsNull(column=c) | NotNull(column=c):
                met = _meet(leaves[c], part) if c in leaves else part
                if isinstance(met, Nothing):
                    return met
                leaves[c] = met
            case _:
                others[part] = None
    kept = [*leaves.values(), *others]
    if not kept:
        return unknown or ANYTHING
    return kept[0] if len(kept) == 1 else And(tuple(kept))


def either(parts: Iterable[Predicate]) -> Predicate:
    """The disjunction; value sets of one column unite. One Anything makes all of it Anything."""
    sets: dict[str, frozenset[Any]] = {}
    others: dict[Predicate, None] = {}
    for part in _flat(parts, Or):
        match part:
            case Anything():
                return part
            case Nothing():
                continue
            case OneOf(column=c, values=values):
                sets[c] = sets.get(c, frozenset()) | values
            case _:
                others[part] = None
    kept = [*(OneOf(c, v) for c, v in sets.items()), *others]
    if not kept:
        return Nothing()
    return kept[0] if len(kept) == 1 else Or(tuple(kept))


def rejects_nulls(p: Predicate) -> bool:
    """A row of nothing but nulls surely does not satisfy ``p``."""
    match p:
        case Range() | OneOf() | NotNull() | Nothing():
            return True
        case And(parts=parts):
            return any(rejects_nulls(x) for x in parts)
        case Or(parts=parts):
            return all(rejects_nulls(x) for x in parts)
    return False


def conjuncts(p: Predicate) -> tuple[Predicate, ...]:
    return p.parts if isinstance(p, And) else (p,)


def _flat(parts: Iterable[Predicate], kind: type[And] | type[Or]) -> Iterable[Predicate]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _meet(a: Predicate, b: Predicate) -> Predicate:
    """Both of two leaves of one column."""
    if isinstance(a, NotNull):
        return Nothing() if isinstance(b, IsNull) else b
    if isinstance(b, NotNull):
        return Nothing() if isinstance(a, IsNull) else a
    if isinstance(a, IsNull) or isinstance(b, IsNull):
        return a if a == b else Nothing()
    if isinstance(a, OneOf) and isinstance(b, OneOf):
        return _some(a.column, a.values & b.values)
    if isinstance(a, OneOf) and isinstance(b, Range):
        return _some(a.column, frozenset(v for v in a.values if _inside(v, b)))
    if isinstance(a, Range) and isinstance(b, OneOf):
        return _some(b.column, frozenset(v for v in b.values if _inside(v, a)))
    assert isinstance(a, Range)
    assert isinstance(b, Range)
    lo, lo_open = _tighter(a.lo, a.lo_open, b.lo, b.lo_open, lower=True)
    hi, hi_open = _tighter(a.hi, a.hi_open, b.hi, b.hi_open, lower=False)
    return range_of(a.column, lo, lo_open, hi, hi_open)


def range_of(column: str, lo: Any, lo_open: bool, hi: Any, hi_open: bool) -> Predicate:
    """A range in its simplest form: one value is OneOf, an empty range Nothing."""
    if lo is not None and hi is not None:
        if lo > hi or (lo == hi and (lo_open or hi_open)):
            return Nothing()
        if lo == hi:
            return OneOf(column, frozenset([lo]))
    if lo is None and hi is None:
        return NotNull(column)
    return Range(column, lo, hi, lo_open and lo is not None, hi_open and hi is not None)


def _some(column: str, values: frozenset[Any]) -> Predicate:
    return OneOf(column, values) if values else Nothing()


def _inside(value: Any, r: Range) -> bool:
    if r.lo is not None and (value < r.lo or (r.lo_open and value == r.lo)):
        return False
    return r.hi is None or value < r.hi or (not r.hi_open and value == r.hi)


def _tighter(x: Any, x_open: bool, y: Any, y_open: bool, *, lower: bool) -> tuple[Any, bool]:
    if x is None or y is None:
        return (y, y_open) if x is None else (x, x_open)
    if x == y:
        return x, x_open or y_open
    return (x, x_open) if (x > y) == lower else (y, y_open)
