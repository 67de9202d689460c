"""What a filter on one side of a join says of the other: the values that the filtered rows have to offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.types import is_float, is_nested

MOST_VALUES = 2048
"""More are told by their smallest and largest alone."""


def induced(column: str, values: pa.ChunkedArray | pa.Array) -> Predicate:
    """What a column must satisfy to equal one of ``values``; nulls equal nothing."""
    found = pc.unique(values).drop_null()
    if not len(found):
        return Nothing()
    if len(found) <= MOST_VALUES:
        return OneOf(column, frozenset(found.to_pylist()))
    least = pc.min_max(found).as_py()
    return Range(column, least["min"], least["max"])


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


def _fit(values: Any, kind: pa.DataType) -> bool:
    """Whether these are values of the type: one between two decimals, say, is not."""
    try:
        pa.array(list(values), kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True
