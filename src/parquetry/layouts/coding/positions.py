"""Positions: one column's line, cut at given boundary values, as small integers.

Null is 0; the gap below boundary ``i`` is ``2i+1``, the boundary itself ``2i+2``, the gap above the last one ``2n+1``.
Every interval between boundaries, open or closed, with or without nulls, is then exactly one closed integer range,
and every cut (``<`` or ``<=`` a boundary) one integer. Learners, routing and pruning all compute with these.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.layouts.coding.codec import Codec, Numbers, codec_for
from parquetry.model.box import ONLY_NULL, Interval
from parquetry.model.values import order_key

_TABLE_LIMIT = 1 << 23  # integers of a range this small go through a lookup table, which beats binary search


class Positions:
    """``Positions.of(values)`` compares Python values; with a codec it can also place a whole column."""

    def __init__(self, keys: Sequence[Any] | Numbers, codec: Codec | None = None) -> None:
        self.codec = codec
        self.array = keys if isinstance(keys, np.ndarray) else None
        self.keys: Sequence[Any] = keys  # type: ignore[assignment]
        self.count = len(keys)
        self.top = 2 * self.count + 1

    @classmethod
    def of(cls, values: Iterable[Any], arrow: pa.DataType | None = None) -> Positions:
        codec = codec_for(arrow) if arrow is not None else None
        if codec is None or codec.kind == "object":
            distinct = {order_key(v): None for v in values}
            return cls(sorted(distinct), codec)
        numbers = [codec.number(v) for v in values]
        fractions = codec.kind == "float" or any(isinstance(n, float) for n in numbers)
        return cls(np.unique(np.array(numbers, dtype=np.float64 if fractions else np.int64)), codec)

    def find(self, value: Any) -> tuple[int, int]:
        """How many boundaries are below the value, and how many at or below it."""
        if self.array is not None:
            number = self.codec.number(value) if self.codec else value
            if self.array.dtype.kind == "i" and number == number:  # without NaN a plain list finds it sooner
                return bisect_left(self._list, number), bisect_right(self._list, number)
            return int(np.searchsorted(self.array, number, "left")), int(np.searchsorted(self.array, number, "right"))
        key = order_key(value)
        return bisect_left(self.keys, key), bisect_right(self.keys, key)

    @cached_property
    def _list(self) -> list[int]:
        return list(self.array.tolist())  # type: ignore[union-attr]

    def range(self, interval: Interval) -> tuple[int, int]:
        """The closed range of positions of an interval; lo > hi when it is empty. A bound that is no boundary
        counts as its whole gap, so the range is never too small."""
        if not interval.values:
            return (0, 0) if interval.nulls else (1, 0)
        lo, hi = (0 if interval.nulls else 1), self.top
        if interval.lo is not None:
            left, right = self.find(interval.lo)
            lo = left + right + 1 + (interval.lo_open and left < right)
        if interval.hi is not None:
            left, right = self.find(interval.hi)
            hi = left + right + 1 - (interval.hi_open and left < right)
        return lo, hi

    def boundary(self, index: int) -> Any:
        """The Python value of a boundary."""
        key = self.keys[index]
        if self.array is not None:
            return self.codec.value(key) if self.codec else key
        return key[1] if key[0] == 0 else float("nan")

    def cut(self, position: int) -> tuple[str, Any]:
        """The comparison that is true exactly below ``position``."""
        if position % 2 == 0:
            return "<", self.boundary(position // 2 - 1)
        return "<=", self.boundary((position - 3) // 2)

    def interval(self, lo: int, hi: int) -> Interval:
        """The inverse of :meth:`range`."""
        if hi == 0:
            return ONLY_NULL
        low = None if lo <= 1 else self.boundary((lo - 2) // 2)
        high = None if hi >= self.top else self.boundary((hi - 1) // 2)
        return Interval(low, high, lo > 1 and lo % 2 == 1, hi < self.top and hi % 2 == 1, lo == 0)

    def place(self, column: pa.ChunkedArray) -> Numbers:
        """The position of every row."""
        if self.codec is None or self.codec.kind == "object":
            return self._place_objects(column)
        numbers, nulls = self.codec.numbers(column)
        out = place_numbers(self.array, numbers)  # type: ignore[arg-type]
        if nulls is not None:
            out[nulls] = 0
        return out

    def _place_objects(self, column: pa.ChunkedArray) -> Numbers:
        encoded = pc.dictionary_encode(column)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks() if encoded.num_chunks != 1 else encoded.chunk(0)
        found = [self.find(v) for v in encoded.dictionary.to_pylist()]
        table: Numbers = np.array([0, *(left + right + 1 for left, right in found)], dtype=np.int32)
        return np.take(table, np.asarray(pc.add(pc.fill_null(encoded.indices, -1), 1)))


def place_numbers(boundaries: Numbers, numbers: Numbers) -> Numbers:
    """Positions of numbers among sorted distinct boundaries, nulls not considered."""
    whole = as_small_integers(numbers)
    if whole is None:
        return _search(boundaries, numbers)
    low = int(whole.min())
    table = _search(boundaries, np.arange(low, int(whole.max()) + 1, dtype=numbers.dtype))
    return np.take(table, whole - low)


def as_small_integers(numbers: Numbers) -> Numbers | None:
    """The numbers as integers when they are all whole and of a small range, for lookup tables; else None."""
    if len(numbers) < 10_000 or (numbers.dtype.kind == "f" and not (numbers[:100] % 1 == 0).all()):
        return None
    low, high = numbers.min(), numbers.max()
    if not high - low < min(_TABLE_LIMIT, 8 * len(numbers)):  # NaN among them makes this false as well
        return None
    whole = numbers.astype(np.int64)
    return whole if numbers.dtype.kind == "i" or bool((whole == numbers).all()) else None


def _search(boundaries: Numbers, numbers: Numbers) -> Numbers:
    left = np.searchsorted(boundaries, numbers, "left")
    at = boundaries[np.minimum(left, len(boundaries) - 1)] if len(boundaries) else numbers
    equal = (at == numbers) & (left < len(boundaries))
    if numbers.dtype.kind == "f" and len(boundaries):
        equal |= np.isnan(at) & np.isnan(numbers) & (left < len(boundaries))
    return np.asarray(2 * left + 1 + equal, dtype=np.int32)
