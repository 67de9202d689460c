"""Intervals of one column and boxes over several: the shapes of filters, blocks and holes.

Null comes before every value, so an interval with nulls always starts at the bottom and stays contiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from parquetry.model.values import order_key, value_from_json, value_to_json


@dataclass(frozen=True)
class Interval:
    """The values between ``lo`` and ``hi`` (None is unbounded), with nulls if ``nulls``, or nulls only.

    >>> Interval(lo=1, hi=5, hi_open=True).contains(5)
    False
    """

    lo: Any = None
    hi: Any = None
    lo_open: bool = False
    hi_open: bool = False
    nulls: bool = False
    values: bool = True  # False: nulls and nothing else

    def __post_init__(self) -> None:
        if self.nulls and self.lo is not None:
            raise ValueError("an interval with nulls has no lower bound: nulls come first")

    def contains(self, value: Any) -> bool:
        if value is None:
            return self.nulls
        key = order_key(value)
        above = self.lo is None or order_key(self.lo) < key or (not self.lo_open and order_key(self.lo) == key)
        below = self.hi is None or key < order_key(self.hi) or (not self.hi_open and order_key(self.hi) == key)
        return self.values and above and below

    @property
    def empty(self) -> bool:
        return not self.nulls and not self._any_value()

    def _any_value(self) -> bool:
        if not self.values or self.lo is None or self.hi is None:
            return self.values
        lo, hi = order_key(self.lo), order_key(self.hi)
        return lo < hi or (lo == hi and not self.lo_open and not self.hi_open)

    def intersect(self, other: Interval) -> Interval:
        nulls = self.nulls and other.nulls
        lo, lo_open = _higher(self.lo, self.lo_open, other.lo, other.lo_open)
        hi, hi_open = _lower(self.hi, self.hi_open, other.hi, other.hi_open)
        both = Interval(lo, hi, lo_open, hi_open, False, self.values and other.values)
        if not nulls:
            return both
        return Interval(None, hi, False, hi_open, True) if both._any_value() else ONLY_NULL

    def minus(self, other: Interval) -> list[Interval]:
        """Disjoint intervals that hold what is in this one and not in the other: at most two."""
        if self.intersect(other).empty:
            return [] if self.empty else [self]
        if not other.values:
            return [p for p in [Interval(None, self.hi, False, self.hi_open, False, self.values)] if not p.empty]
        nulls = self.nulls and not other.nulls
        if other.lo is None:
            below = ONLY_NULL if nulls else Interval(values=False)
        else:
            hi, hi_open = _lower(self.hi, self.hi_open, other.lo, not other.lo_open)
            below = Interval(self.lo, hi, self.lo_open, hi_open, nulls, self.values)
        pieces = [below]
        if other.hi is not None:
            lo, lo_open = _higher(self.lo, self.lo_open, other.hi, not other.hi_open)
            pieces.append(Interval(lo, self.hi, lo_open, self.hi_open, False, self.values))
        return [p for p in pieces if not p.empty]

    def hull(self, other: Interval) -> Interval:
        """The smallest interval around both."""
        nulls = self.nulls or other.nulls
        if not self._any_value() or not other._any_value():
            base = self if self._any_value() else other
            lo, lo_open = (None, False) if nulls else (base.lo, base.lo_open)
            return Interval(lo, base.hi, lo_open, base.hi_open, nulls, base.values)
        hi, hi_open = None, False
        if self.hi is not None and other.hi is not None:
            first = (order_key(self.hi), not self.hi_open) >= (order_key(other.hi), not other.hi_open)
            hi, hi_open = (self.hi, self.hi_open) if first else (other.hi, other.hi_open)
        lo, lo_open = None, False
        if self.lo is not None and other.lo is not None and not nulls:
            first = (order_key(self.lo), self.lo_open) <= (order_key(other.lo), other.lo_open)
            lo, lo_open = (self.lo, self.lo_open) if first else (other.lo, other.lo_open)
        return Interval(lo, hi, lo_open, hi_open, nulls)

    def to_json(self) -> dict[str, Any]:
        full = {
            "lo": value_to_json(self.lo),
            "hi": value_to_json(self.hi),
            "lo_open": self.lo_open,
            "hi_open": self.hi_open,
            "nulls": self.nulls,
            "values": self.values,
        }
        return {k: v for k, v in full.items() if v is not None and v is not (k == "values")}

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> Interval:
        bounds = {k: value_from_json(d.get(k)) for k in ("lo", "hi")}
        return cls(**bounds, **{k: v for k, v in d.items() if k not in bounds})


def _higher(a: Any, a_open: bool, b: Any, b_open: bool) -> tuple[Any, bool]:
    if a is None or b is None:
        return (b, b_open) if a is None else (a, a_open)
    return (a, a_open) if (order_key(a), a_open) >= (order_key(b), b_open) else (b, b_open)


def _lower(a: Any, a_open: bool, b: Any, b_open: bool) -> tuple[Any, bool]:
    if a is None or b is None:
        return (b, b_open) if a is None else (a, a_open)
    return (a, a_open) if (order_key(a), not a_open) <= (order_key(b), not b_open) else (b, b_open)


ONLY_NULL = Interval(nulls=True, values=False)
EVERYTHING = Interval(nulls=True)


@dataclass(frozen=True)
class Box:
    """One interval per column; a column that is not named is free, nulls included."""

    intervals: Mapping[str, Interval] = field(default_factory=dict)

    def contains(self, row: Mapping[str, Any]) -> bool:
        return all(i.contains(row[c]) for c, i in self.intervals.items())

    @property
    def empty(self) -> bool:
        return any(i.empty for i in self.intervals.values())

    def intersect(self, other: Box) -> Box:
        merged = dict(self.intervals)
        for column, interval in other.intervals.items():
            merged[column] = merged[column].intersect(interval) if column in merged else interval
        return Box(merged)

    def covers(self, other: Box) -> bool:
        """Whether every point of the other box lies in this one; False as well for values that do not compare."""
        try:
            return all(not other.intervals.get(c, EVERYTHING).minus(i) for c, i in self.intervals.items())
        except TypeError:
            return False

    def minus(self, other: Box) -> list[Box]:
        """Disjoint boxes that hold what is in this one and not in the other."""
        if self.intersect(other).empty:
            return [self]
        pieces, rest = [], dict(self.intervals)
        for column, interval in other.intervals.items():
            own = rest.get(column, EVERYTHING)
            pieces += [Box({**rest, column: outside}) for outside in own.minus(interval)]
            rest[column] = own.intersect(interval)
        return pieces

    def hull(self, other: Box) -> Box:
        shared = [c for c in self.intervals if c in other.intervals]
        return Box({c: self.intervals[c].hull(other.intervals[c]) for c in shared})

    def to_json(self) -> dict[str, Any]:
        return {c: i.to_json() for c, i in self.intervals.items()}

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> Box:
        return cls({c: Interval.from_json(i) for c, i in d.items()})


def disjoint(boxes: Iterable[Box]) -> list[Box]:
    """Boxes with the same union, no two of which share a point (PW-07)."""
    kept: list[Box] = []
    for box in boxes:
        pieces = [] if box.empty else [box]
        for earlier in list(kept):
            pieces = [rest for piece in pieces for rest in piece.minus(earlier)]
        kept += pieces
    return kept
