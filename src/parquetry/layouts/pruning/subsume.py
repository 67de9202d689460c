"""Subsumption: does one condition imply another (WP-16, 3.4-8, 3.4-9)? What no case below shows does not.

A feature subsumes a query when every row that the query wants satisfies the feature. Saying no too often costs
skipping; saying yes once too often would lose rows, so every case is a plain one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.values import order_key

Leaf = Range | OneOf | IsNull | NotNull
_MOST_DISJUNCTS = 64  # of a query's condition once its ORs are multiplied out; beyond, they are kept as they are


def implies(a: Predicate, b: Predicate) -> bool:
    """True only when every row that satisfies ``a`` satisfies ``b``.

    >>> implies(Range("revenue", hi=0, hi_open=True), Range("revenue", hi=10, hi_open=True))
    True
    """
    match (a, b):
        case (Nothing(), _) | (_, Anything(why="")):
            return True
        case (_, And(parts)):
            return all(implies(a, part) for part in parts)
        case (_, Or()):
            return _implies_either(a, b)
        case (Or(parts), _):
            return all(implies(part, b) for part in parts)
        case (And(parts), _):
            return any(implies(part, b) for part in parts)
    case = _CASES.get((type(a), type(b)))
    if case is None or a.column != b.column:  # type: ignore[union-attr]
        return False
    try:
        return case(a, b)
    except TypeError:
        return False  # values that do not compare


@lru_cache(maxsize=1 << 16)  # the ranges of a table have their queries in common
def _implies_either(a: Predicate, b: Or) -> bool:
    match a:
        case Or(parts):
            return all(implies(part, b) for part in parts)
        case And():
            return _conjunction_implies_either(a, b)
        case OneOf(column, values) if len(values) > 1:
            # Each value may lie in another disjunct.
            whole = any(implies(a, part) for part in b.parts)
            return whole or all(implies(OneOf(column, frozenset([v])), b) for v in values)
    return any(implies(a, part) for part in b.parts)


def _conjunction_implies_either(a: And, b: Or) -> bool:
    """``x AND (y OR z)``: each of ``x AND y`` and ``x AND z`` must imply some disjunct (3.4-8)."""
    if any(implies(part, b) for part in a.parts) or any(implies(a, part) for part in b.parts):
        return True
    inner = next((p for p in a.parts if isinstance(p, Or)), None)
    if inner is None:
        return any(isinstance(p, OneOf) and _each_value(a, p, b) for p in a.parts)
    rest = tuple(p for p in a.parts if p is not inner)
    if len(inner.parts) > _MOST_DISJUNCTS:
        return False
    return all(implies(And((*rest, *_parts(part))), b) for part in inner.parts)


def _each_value(a: And, leaf: OneOf, b: Or) -> bool:
    """``a = 1 OR a = 2`` was united to one value set: its values may still imply different disjuncts."""
    if not 1 < len(leaf.values) <= _MOST_DISJUNCTS:
        return False
    rest = tuple(p for p in a.parts if p is not leaf)
    singles = (And((*rest, OneOf(leaf.column, frozenset([v])))) for v in leaf.values)
    return all(any(implies(single, part) for part in b.parts) for single in singles)


def _parts(p: Predicate) -> tuple[Predicate, ...]:
    return p.parts if isinstance(p, And) else (p,)


def _above(r: Range, value: Any) -> bool:
    """Whether the value respects the range's lower bound."""
    if r.lo is None:
        return True
    low, key = order_key(r.lo), order_key(value)
    return bool(low < key or (low == key and not r.lo_open))


def _below(r: Range, value: Any) -> bool:
    if r.hi is None:
        return True
    high, key = order_key(r.hi), order_key(value)
    return bool(key < high or (key == high and not r.hi_open))


def _range_in_range(a: Range, b: Range) -> bool:
    # An open bound of the inner range may equal an open bound of the outer one.
    outer = Range(b.column, b.lo, b.hi, b.lo_open and not a.lo_open, b.hi_open and not a.hi_open)
    above = b.lo is None or (a.lo is not None and _above(outer, a.lo))
    return above and (b.hi is None or (a.hi is not None and _below(outer, a.hi)))


def _values_in_range(a: OneOf, b: Range) -> bool:
    return all(_above(b, v) and _below(b, v) for v in a.values)


def _values_in_values(a: OneOf, b: OneOf) -> bool:
    known = {order_key(v) for v in b.values}
    return all(order_key(v) in known for v in a.values)


def _always(a: Leaf, b: Leaf) -> bool:
    return True


_CASES: dict[tuple[type, type], Callable[[Any, Any], bool]] = {
    (Range, Range): _range_in_range,
    (OneOf, Range): _values_in_range,
    (OneOf, OneOf): _values_in_values,
    (Range, NotNull): _always,
    (OneOf, NotNull): _always,
    (NotNull, NotNull): _always,
    (IsNull, IsNull): _always,
}
