"""A predicate as a union of disjoint boxes over chosen columns (PW-07); what does not fit makes the boxes larger."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache, reduce
from typing import Any

from parquetry.model.box import ONLY_NULL, Box, Interval, disjoint
from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.values import order_key

MAX_BOXES = 64  # beyond it the bounding box serves: pruning cost grows with boxes, its gain does not


@dataclass(frozen=True)
class Boxes:
    """Every row that satisfies the predicate lies in one of ``boxes``. ``opaque`` tells what was left out and why;
    when it is empty and ``widened`` is False, rows outside the predicate lie in none."""

    boxes: tuple[Box, ...]
    opaque: tuple[str, ...] = ()
    widened: bool = False


def to_boxes(predicate: Predicate, columns: Collection[str] | None = None, limit: int = MAX_BOXES) -> Boxes:
    """The disjoint boxes of a predicate over ``columns`` (None: all that it names).

    >>> to_boxes(Or((Range("a", lo=10), Range("b", hi=50)))).boxes[0]
    Box(intervals={'a': Interval(lo=10, hi=None, lo_open=False, hi_open=False, nulls=False, values=True)})
    """
    return _to_boxes(predicate, None if columns is None else tuple(columns), limit)


@lru_cache(maxsize=20_000)  # learners and pricing look at the same workload again and again
def _to_boxes(predicate: Predicate, columns: Collection[str] | None, limit: int) -> Boxes:
    walk = _Walk(columns, limit)
    found = walk.boxes(predicate)
    apart = disjoint(found)
    if len(apart) > limit:
        apart, walk.widened = [reduce(Box.hull, found)], True
    return Boxes(tuple(apart), tuple(dict.fromkeys(walk.opaque)), walk.widened)


class _Walk:
    def __init__(self, columns: Collection[str] | None, limit: int) -> None:
        self.columns, self.limit = columns, limit
        self.opaque: list[str] = []
        self.widened = False

    def boxes(self, predicate: Predicate) -> list[Box]:
        match predicate:
            case Nothing():
                return []
            case Anything(why):
                if why:
                    self.opaque.append(why)
                return [Box()]
            case And(parts):
                product = [Box()]
                for part in parts:
                    one = self.boxes(part)
                    product = self._cap([both for a in product for b in one if not (both := a.intersect(b)).empty])
                return product
            case Or(parts):
                return self._cap([box for part in parts for box in self.boxes(part)])
        if self.columns is not None and predicate.column not in self.columns:
            self.opaque.append(f"column {predicate.column} is not part of the layout")
            return [Box()]
        return [Box({predicate.column: i}) for i in self._intervals(predicate)]

    def _intervals(self, leaf: Range | OneOf | IsNull | NotNull) -> list[Interval]:
        match leaf:
            case Range(_, lo, hi, lo_open, hi_open):
                interval = Interval(lo, hi, lo is not None and lo_open, hi is not None and hi_open)
                return [] if interval.empty else [interval]
            case OneOf(_, values):
                runs = _runs(values)
                if len(runs) <= self.limit:
                    return runs
                self.widened = True
                return [Interval(runs[0].lo, runs[-1].hi)]
            case IsNull():
                return [ONLY_NULL]
            case NotNull():
                return [Interval()]

    def _cap(self, boxes: list[Box]) -> list[Box]:
        if len(boxes) <= self.limit:
            return boxes
        self.widened = True
        return [reduce(Box.hull, boxes)]


def _runs(values: Iterable[Any]) -> list[Interval]:
    """Points, with neighbours of a discrete type joined: an IN list of 30 days is often one month (3.5-22)."""
    runs: list[Interval] = []
    for v in sorted(values, key=order_key):
        if runs and _next(runs[-1].hi) == v:
            runs[-1] = Interval(runs[-1].lo, v)
        else:
            runs.append(Interval(v, v))
    return runs


def _next(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value + 1
    if isinstance(value, date) and not isinstance(value, datetime) and value < date.max:
        return value + timedelta(days=1)
    return None
