"""The parts of a table's key order that a predicate allows: a set of prefix key ranges (PP-13)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.model.keys import (
    AFTER_VALUES,
    VALUE_MARKER,
    block_prefix,
    encode_column,
    encode_value,
    is_value_of,
    successor,
)
from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.schema import TableSchema

MAX_RANGES = 10_000
"""More ranges cost more to look up than they skip; one range that covers them all takes their place."""

KeyRange = tuple[bytes, bytes | None]
Leaf = Range | OneOf | IsNull | NotNull


def key_ranges(predicate: Predicate, schema: TableSchema, blocks: Sequence[int] = (0,)) -> list[KeyRange] | None:
    """Sorted, disjoint ranges ``[lo, hi)`` of normalized keys that hold every row satisfying the predicate.

    Equalities on leading key columns multiply out, the first column with a range ends the prefix, and so does a gap
    (3.1-17). None is the whole table (3.1-16), the empty list no row. ``blocks`` are those of the table's layout; the
    ranges repeat in each, so beyond MAX_RANGES blocks it is the whole table too and min/max must do.
    """
    ranges: list[KeyRange] = []
    for leaves in _conjunctions(predicate):
        allowed = _allowed(leaves, schema)
        if allowed is None:
            return None
        ranges += allowed
    in_block = _merge(ranges)
    if not in_block or len(blocks) > MAX_RANGES:
        return None if in_block else []
    if len(in_block) * len(blocks) > MAX_RANGES:
        in_block = [(in_block[0][0], in_block[-1][1])]
    prefixes = [block_prefix(b) for b in sorted(blocks)]
    return [(p + lo, successor(p) if hi is None else p + hi) for p in prefixes for lo, hi in in_block]


def _conjunctions(predicate: Predicate) -> list[tuple[Leaf, ...]]:
    """The predicate as alternatives of leaves that must all hold; one that grows too wide loses conditions."""
    match predicate:
        case Nothing():
            return []
        case Anything():
            return [()]
        case Or(parts):
            every = [c for part in parts for c in _conjunctions(part)]
            return every if len(every) <= MAX_RANGES else [()]
        case And(parts):
            alternatives: list[tuple[Leaf, ...]] = [()]
            for part in parts:
                more = _conjunctions(part)
                if len(alternatives) * len(more) <= MAX_RANGES:
                    alternatives = [a + b for a in alternatives for b in more]
            return alternatives
        case _:
            return [(predicate,)]


@dataclass(frozen=True)
class _Allowed:
    """What a column's encoding may be: one of ``points``, or when that is None, within ``[lo, hi)``."""

    points: tuple[bytes, ...] | None = None
    lo: bytes = b""
    hi: bytes | None = None

    def meet(self, other: _Allowed) -> _Allowed:
        if self.points is None and other.points is None:
            return _Allowed(None, max(self.lo, other.lo), min((h for h in (self.hi, other.hi) if h), default=None))
        if self.points is None:
            return other.meet(self)
        if other.points is not None:
            kept = set(other.points)
            return _Allowed(tuple(p for p in self.points if p in kept))
        return _Allowed(tuple(p for p in self.points if other.lo <= p and (other.hi is None or p < other.hi)))

    def covering(self) -> _Allowed:
        assert self.points
        return _Allowed(None, self.points[0], successor(self.points[-1]))


def _allowed(leaves: Iterable[Leaf], schema: TableSchema) -> list[KeyRange] | None:
    """The ranges inside one block; an end of None is the block's."""
    by_column: dict[str, _Allowed] = {}
    for leaf in leaves:
        if leaf.column in schema.key:
            allowed = _of_leaf(leaf, schema.column(leaf.column).arrow)
            if allowed is not None:
                by_column[leaf.column] = by_column.get(leaf.column, _Allowed()).meet(allowed)
    if any(a.points == () or (a.hi is not None and a.lo >= a.hi) for a in by_column.values()):
        return []
    if schema.key[0] not in by_column:
        return None
    prefixes = [b""]
    for column in schema.key:
        allowed = by_column.get(column)
        if allowed is None:
            break
        if allowed.points is not None and len(prefixes) * len(allowed.points) > MAX_RANGES:
            allowed = allowed.covering()
        if allowed.points is None:
            return [(p + allowed.lo, successor(p) if allowed.hi is None else p + allowed.hi) for p in prefixes]
        prefixes = [p + point for p in prefixes for point in allowed.points]
    return [(p, successor(p)) for p in prefixes]


def _of_leaf(leaf: Leaf, kind: pa.DataType) -> _Allowed | None:
    """None when a value has no encoding in the column's type: then nothing is known of the column."""
    values_in = leaf.values if isinstance(leaf, OneOf) else (leaf.lo, leaf.hi) if isinstance(leaf, Range) else ()
    if not all(v is None or is_value_of(v, kind) for v in values_in):
        return None
    try:
        match leaf:
            case IsNull():
                return _Allowed((encode_value(None, kind),))
            case NotNull():
                return _Allowed(None, VALUE_MARKER, AFTER_VALUES)
            case OneOf(_, values):
                fitting = [v for v in values if _fits(v, kind)]
                return _Allowed(tuple(sorted(set(encode_column(pa.array(fitting, kind)).to_pylist()))))
            case Range():
                return _of_range(leaf, kind)
    except (pa.ArrowException, OverflowError):  # outside the range of the type
        return None


def _of_range(leaf: Range, kind: pa.DataType) -> _Allowed:
    lo, hi = VALUE_MARKER, AFTER_VALUES
    if leaf.lo is not None:
        exact = _fits(leaf.lo, kind)
        lowest = encode_value(leaf.lo if exact else _float32_beside(leaf.lo, -math.inf), kind)
        lo = lowest if exact and not leaf.lo_open else _after(lowest)
    if leaf.hi is not None:
        exact = _fits(leaf.hi, kind)
        highest = encode_value(leaf.hi if exact else _float32_beside(leaf.hi, math.inf), kind)
        hi = _after(highest) if exact and not leaf.hi_open else highest
        if leaf.lo is not None and lo == highest != hi:
            return _Allowed((lo,))
    return _Allowed(None, lo, hi)


def _after(encoded: bytes) -> bytes:
    """Above every key whose column has this encoding; it exists because an encoding starts with 00 or 01."""
    following = successor(encoded)
    assert following is not None
    return following


def _fits(value: Any, kind: pa.DataType) -> bool:
    """A float column compares as double, so a double that no float equals must not be rounded to one."""
    if not pa.types.is_float32(kind) or math.isnan(value):
        return True
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == float(value)


def _float32_beside(value: float, toward: float) -> float:
    """The nearest float on the side of ``toward``."""
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
        beyond = float(rounded) > value if toward < 0 else float(rounded) < value
        return float(np.nextafter(rounded, np.float32(toward)) if beyond else rounded)


def _merge(ranges: list[KeyRange]) -> list[KeyRange]:
    merged: list[KeyRange] = []
    for lo, hi in sorted(ranges, key=lambda r: r[0]):
        if merged and (merged[-1][1] is None or lo <= merged[-1][1]):
            before = merged[-1][1]
            merged[-1] = (merged[-1][0], None if before is None or hi is None else max(before, hi))
        else:
            merged.append((lo, hi))
    return merged
