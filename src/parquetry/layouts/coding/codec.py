"""Column values as comparable numbers: how numpy sees a column of any flat type.

Integers, dates, timestamps, booleans and decimals of at most 18 digits become int64; floats stay floats; strings,
bytes and long decimals stay Python objects and go through their distinct values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.errors import SchemaError

_EPOCH = datetime(1970, 1, 1)
_DAY_ZERO = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Codec:
    """``number`` and ``value`` are inverse on the column's values; ``number`` keeps fractions that fall between two."""

    kind: str  # "int", "float" or "object"
    number: Callable[[Any], Any]
    value: Callable[[Any], Any]
    arrow: pa.DataType

    def numbers(self, column: pa.ChunkedArray) -> tuple[Numbers, Numbers | None]:
        """The column as an array of numbers, and a mask of its nulls or None. Not for kind "object"."""
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(array, pa.ChunkedArray):  # what combine_chunks gives for no chunks at all, in some releases
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
        nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        if pa.types.is_decimal(array.type):
            # The low word of a 128-bit decimal is its whole value when it has at most 18 digits.
            words = np.frombuffer(array.buffers()[1], dtype=np.int64) if len(array) else np.empty(0, np.int64)
            return words[2 * array.offset : 2 * (array.offset + len(array)) : 2], nulls
        if self.kind == "float":
            return np.asarray(pc.fill_null(array, 0.0)).astype(np.float64), nulls
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
        elif pa.types.is_date(array.type):
            array = array.cast(pa.date32()).cast(pa.int32())
        elif pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        return np.asarray(pc.fill_null(array, 0) if nulls is not None else array).astype(np.int64), nulls


def _identity(v: Any) -> Any:
    return v


def _whole(v: Any) -> Any:
    return int(v) if not isinstance(v, float | Decimal) or (math.isfinite(v) and v == int(v)) else float(v)


def codec_for(arrow: pa.DataType) -> Codec:
    """The codec of a flat type; a nested type has no order and cannot be cut."""
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if pa.types.is_boolean(arrow):
        return Codec("int", _whole, bool, arrow)
    if pa.types.is_integer(arrow):
        return Codec("int", _whole, int, arrow)
    if pa.types.is_floating(arrow):
        return Codec("float", float, float, arrow)
    if pa.types.is_date(arrow):
        return Codec("int", _days, lambda n: date.fromordinal(int(n) + _DAY_ZERO), arrow)
    if pa.types.is_timestamp(arrow):
        zone = None if arrow.tz is None else UTC
        return Codec("int", _micros, lambda n: (_EPOCH + int(n) * _MICROSECOND).replace(tzinfo=zone), arrow)
    if pa.types.is_decimal(arrow) and arrow.precision <= 18 and arrow.bit_width == 128:
        scale = arrow.scale
        return Codec("int", lambda v: _whole(Decimal(v).scaleb(scale)), lambda n: Decimal(int(n)).scaleb(-scale), arrow)
    if pa.types.is_nested(arrow) or pa.types.is_null(arrow):
        raise SchemaError(f"a column of type {arrow} has no order, so no layout can cut on it; choose another column")
    return Codec("object", _identity, _identity, arrow)


def _days(v: date) -> Any:
    return v.toordinal() - _DAY_ZERO


def _micros(v: Any) -> Any:
    plain = v.replace(tzinfo=None) if v.tzinfo is None else v.astimezone(UTC).replace(tzinfo=None)
    return (plain - _EPOCH) // _MICROSECOND
