"""Bounds of a column as 64-bit integers in the column's order, so that every type is compared the same fast way.

Integers, dates, timestamps, booleans, floats and decimals of up to 18 digits have codes of their own. Strings,
binary and longer decimals get their rank among the bounds, doubled, so that a value between two bounds has a code
between theirs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.model.keys import float_order, is_value_of

LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1
NAN_CODE = int(float_order(np.array([np.nan]))[0])
_SHORT_DECIMAL = 18  # digits; the double of such a number fits 64 bits

Codes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Bounds:
    """Codes of the smallest and largest value of each row group; LOWEST and HIGHEST where unknown."""

    lows: Codes
    highs: Codes
    kind: pa.DataType
    code_of_value: Callable[[Any], int]

    def code(self, value: Any) -> int:
        """The code of a value; TypeError when it is not of the column's type."""
        if not is_value_of(value, self.kind):
            raise TypeError(f"{value!r} is no {self.kind}")
        return self.code_of_value(value)


def bounds_of(mins: pa.Array, maxs: pa.Array, nans: pa.Array | None = None) -> Bounds:
    """The bounds of one column. ``nans`` belongs to float columns: where it is not False, NaN may be the largest."""
    kind = mins.type
    if pa.types.is_floating(kind):
        highs = _native(maxs, HIGHEST)
        assert nans is not None
        may_hold_nan = np.asarray(nans.fill_null(True))
        highs = np.where(may_hold_nan, np.maximum(highs, NAN_CODE), highs)
        return Bounds(_native(mins, LOWEST), highs, kind, _code_float)
    if pa.types.is_decimal(kind):
        if kind.precision <= _SHORT_DECIMAL:
            return Bounds(_native(mins, LOWEST), _native(maxs, HIGHEST), kind, _decimal_coder(kind.scale))
    elif not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return Bounds(_native(mins, LOWEST), _native(maxs, HIGHEST), kind, _scalar_coder(kind))
    return _ranked(mins, maxs)


def codes_of(values: Iterable[Any], bounds: Bounds) -> Codes:
    """The sorted codes of some values, cut to 64 bits."""
    return np.array(sorted({min(max(bounds.code(v), LOWEST), HIGHEST) for v in values}), np.int64)


def _native(values: pa.Array, unknown: int) -> Codes:
    kind = values.type
    if pa.types.is_decimal(kind):
        raw = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values)) : 2]
        codes = 2 * raw
    elif pa.types.is_floating(kind):
        codes = float_order(np.asarray(values.cast(pa.float64()).fill_null(0)))
    elif pa.types.is_boolean(kind):
        codes = np.asarray(values.fill_null(False)).astype(np.int64)
    else:
        if pa.types.is_date32(kind):
            values = values.view(pa.int32())
        elif pa.types.is_timestamp(kind):
            values = values.view(pa.int64())
        codes = np.asarray(values.fill_null(0)).astype(np.int64)
    return np.where(np.asarray(values.is_valid()), codes, unknown) if values.null_count else codes


def _code_float(value: Any) -> int:
    return int(float_order(np.array([value], np.float64))[0])


def _decimal_coder(scale: int) -> Callable[[Any], int]:
    def code(value: Any) -> int:
        whole, rest = divmod(Fraction(value) * 10**scale, 1)
        return 2 * int(whole) + bool(rest)

    return code


def _scalar_coder(kind: pa.DataType) -> Callable[[Any], int]:
    def code(value: Any) -> int:
        if isinstance(value, int):
            return int(value)
        return int(pa.scalar(value, kind).value)

    return code


def _ranked(mins: pa.Array, maxs: pa.Array) -> Bounds:
    distinct = pc.unique(pa.concat_arrays([mins, maxs])).drop_null()
    ordered = distinct.take(pc.sort_indices(distinct))
    known = ordered.to_pylist()

    def codes(values: pa.Array, unknown: int) -> Codes:
        ranks = pc.index_in(values, value_set=ordered)
        return np.where(np.asarray(values.is_valid()), 2 * np.asarray(ranks.fill_null(0)).astype(np.int64), unknown)

    def code(value: Any) -> int:
        rank = bisect_left(known, value)
        return 2 * rank if rank < len(known) and known[rank] == value else 2 * rank - 1

    return Bounds(codes(mins, LOWEST), codes(maxs, HIGHEST), mins.type, code)
