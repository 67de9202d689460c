"""What a filter on one side of a join says of the other: the values that the filtered rows have to offer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.model.keys import is_value_of
from parquetry.model.order_codes import HIGHEST, LOWEST, Bounds, Codes
from parquetry.model.predicate import ANYTHING, And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.types import is_float, is_nested
from parquetry.model.values import order_key

MOST_VALUES = 2048
"""More are told by ranges."""
MOST_RANGES = 64
"""Of more, those with the least between them become one."""


_COUNTED = {int: pa.int64(), date: pa.date32()}


def induced(column: str, values: pa.Array, reach: Bounds | None = None) -> Predicate:
    """What a column must satisfy to equal one of the distinct ``values``, none of which is null.

    ``reach`` are bounds of the column: values beyond all of them are of no interest.
    """
    kind = values.type
    if _counted(kind):
        codes = np.sort(_codes(values))
        if reach is not None and len(reach.lows):
            lows, highs = int(reach.lows.min()), int(reach.highs.max())
            codes = codes[np.searchsorted(codes, lows) : np.searchsorted(codes, highs, "right")]
        if len(codes) > MOST_VALUES:
            return _ranges(column, codes, codes, kind)
        values = _values(codes, kind)
    if not len(values):
        return Nothing()
    if len(values) <= MOST_VALUES:
        return OneOf(column, frozenset(values.to_pylist()))
    least = pc.min_max(values).as_py()
    return Range(column, least["min"], least["max"])


def told_briefly(predicate: Predicate, most: int) -> Predicate:
    """The predicate with sets of more than ``most`` values as ranges, which may hold more."""
    match predicate:
        case And(parts) | Or(parts):
            return replace(predicate, parts=tuple(told_briefly(p, most) for p in parts))
        case OneOf(column, values) if len(values) > most:
            ordered = sorted(values, key=order_key)
            kind = _COUNTED.get(type(ordered[0]))
            if kind is None or not _fit(ordered, kind):
                return Range(column, ordered[0], ordered[-1])
            codes = _codes(pa.array(ordered, kind))
            return _ranges(column, codes, codes, kind)
    return predicate


def kept_values(column: str, bounds: Bounds, keep: Any) -> Predicate:
    """What a column must satisfy to equal a value of the kept row groups of another, by their smallest and largest.

    Nothing is said where these are not known, or of types that are not counted one by one.
    """
    if not _counted(bounds.kind):
        return ANYTHING
    lows, highs = bounds.lows[keep], bounds.highs[keep]
    if (lows == LOWEST).any() or (highs == HIGHEST).any():
        return ANYTHING
    order = np.argsort(lows)
    return _ranges(column, lows[order], highs[order], bounds.kind)


def _ranges(column: str, lows: Codes, highs: Codes, kind: pa.DataType) -> Predicate:
    """The union of ranges, ascending by where they begin, as few ranges; neighbours become one."""
    if not len(lows):
        return Nothing()
    ends = np.maximum.accumulate(highs)
    gaps = lows[1:] - ends[:-1]
    cuts = np.flatnonzero(gaps > 1)
    if len(cuts) >= MOST_RANGES:
        cuts = np.sort(cuts[np.argsort(gaps[cuts])[1 - MOST_RANGES :]])
    starts = _values(lows[np.concatenate(([0], cuts + 1))], kind).to_pylist()
    stops = _values(ends[np.concatenate((cuts, [len(ends) - 1]))], kind).to_pylist()
    found = tuple(Range(column, lo, hi) for lo, hi in zip(starts, stops, strict=True))
    return Or(found) if len(found) > 1 else found[0]


def _counted(kind: pa.DataType) -> bool:
    """Types whose codes are whole numbers, one for each value."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind))


def _codes(values: pa.Array) -> Codes:
    return np.asarray(values.view(pa.int32()) if pa.types.is_date32(values.type) else values).astype(np.int64)


def _values(codes: Codes, kind: pa.DataType) -> pa.Array:
    return (
        pa.array(codes, pa.int64()).cast(pa.int32()).view(kind)
        if pa.types.is_date32(kind)
        else pa.array(codes).cast(kind)
    )


def satisfying(rows: pa.Table, predicate: Predicate) -> pa.Table:
    """The rows that may satisfy the predicate: all that do, and others where only Spark could tell."""
    condition = _condition(predicate, rows.schema)
    return rows if condition is None else rows.filter(condition)


def _condition(predicate: Predicate, schema: pa.Schema) -> pc.Expression | None:
    """None is no condition. Floats have an order of their own in Spark, so nothing is said of them."""
    match predicate:
        case And(parts):
            return _joined([c for p in parts if (c := _condition(p, schema)) is not None], either=False)
        case Or(parts):
            found = [_condition(p, schema) for p in parts]
            known = [c for c in found if c is not None]
            return _joined(known, either=True) if len(known) == len(found) else None
        case Nothing():
            return pc.scalar(False)
        case Anything():
            return None
    kind = schema.field(predicate.column).type
    if is_float(kind) or is_nested(kind):
        return None
    field = pc.field(predicate.column)
    match predicate:
        case IsNull():
            return field.is_null()
        case NotNull():
            return field.is_valid()
        case OneOf(_, values):
            return field.isin(pa.array(sorted(values), kind)) if _fit(values, kind) else None
        case Range(_, lo, hi, lo_open, hi_open):
            if not _fit([v for v in (lo, hi) if v is not None], kind):
                return None
            ends = []
            if lo is not None:
                ends.append(field > pa.scalar(lo, kind) if lo_open else field >= pa.scalar(lo, kind))
            if hi is not None:
                ends.append(field < pa.scalar(hi, kind) if hi_open else field <= pa.scalar(hi, kind))
            return _joined(ends or [field.is_valid()], either=False)


def _joined(parts: Sequence[pc.Expression], *, either: bool) -> pc.Expression | None:
    if not parts:
        return pc.scalar(False) if either else None
    whole = parts[0]
    for part in parts[1:]:
        whole = (whole | part) if either else (whole & part)
    return whole


def _fit(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Whether these are values of the type: one between two decimals, say, is not."""
    return all(is_value_of(v, kind) and _in_range(v, kind) for v in values)


def _in_range(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError):
        return False  # too large for the column, or with more digits than it has
    return True
