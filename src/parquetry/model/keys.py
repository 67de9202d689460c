"""Normalized keys: bytes whose order is the order of Spark's ``ORDER BY`` ascending, nulls first (NA-39).

One column is a marker byte (0 null, 1 not null) and the value, big-endian with the sign turned so that bytes compare
as values do. Strings and binary are escaped (00 -> 00 FF) and end in 00 00. So no encoding is a prefix of another of
its type, and the encoding of a table's leading key columns is a prefix of the encoding of the whole key.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.errors import SchemaError

NULL_MARKER = b"\x00"
VALUE_MARKER = b"\x01"
BLOCK_BYTES = 4
AFTER_VALUES = b"\x02"  # greater than every value of a column

_EXACT_IN_DOUBLE = 1 << 53
_TERMINATOR = b"\x00\x00"
_MAX_BLOCK = 0xFFFFFFFE  # so that every block prefix has a successor of the same length


def encode_keys(columns: Sequence[pa.Array | pa.ChunkedArray], prefix: bytes = b"") -> pa.LargeBinaryArray:
    """The normalized key of every row of the columns, each after ``prefix`` (a block's, for instance).

    >>> encode_keys([pa.array([1, None], pa.int8())]).to_pylist()
    [b'\\x01\\x81', b'\\x00\\x00']
    """
    parts = [encode_column(_one_chunk(c)) for c in columns]
    if prefix:
        parts.insert(0, pa.scalar(prefix, pa.large_binary()))
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def encode_column(column: pa.Array) -> pa.LargeBinaryArray:
    """The encoding of one column's values."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _encode_variable(column.cast(pa.large_string()).view(pa.large_binary()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _encode_variable(column.cast(pa.large_binary()))
    return _encode_fixed(column)


def encode_value(value: Any, arrow_type: pa.DataType) -> bytes:
    """The encoding of one value of a column; None is null."""
    encoded: bytes = encode_column(pa.array([value], arrow_type))[0].as_py()
    return encoded


def is_value_of(value: Any, arrow_type: pa.DataType) -> bool:
    """Whether a Python value compares with the column's exactly; pyarrow alone would cut 1.5 to an integer's 1."""
    if isinstance(value, bool) or pa.types.is_boolean(arrow_type):
        return isinstance(value, bool) and pa.types.is_boolean(arrow_type)
    if pa.types.is_integer(arrow_type):
        return isinstance(value, int)
    if pa.types.is_floating(arrow_type):
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT_IN_DOUBLE)
    if pa.types.is_decimal(arrow_type):
        return isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite())
    if pa.types.is_timestamp(arrow_type):
        return isinstance(value, datetime) and (value.tzinfo is None) == (arrow_type.tz is None)
    if pa.types.is_date32(arrow_type):
        return isinstance(value, date) and not isinstance(value, datetime)
    return isinstance(value, str if pa.types.is_string(arrow_type) else bytes)


def successor(prefix: bytes) -> bytes | None:
    """The smallest byte string above every string that starts with ``prefix``; None when there is none.

    >>> successor(b"a\\xff")
    b'b'
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def block_prefix(block: int) -> bytes:
    """The first four bytes of every normalized key of a layout's block."""
    if not 0 <= block <= _MAX_BLOCK:
        raise SchemaError(f"block {block} is out of range; a layout has at most {_MAX_BLOCK + 1} blocks")
    return block.to_bytes(BLOCK_BYTES, "big")


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _encode_variable(column: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    escaped = pc.replace_substring(column, pattern=b"\x00", replacement=b"\x00\xff")
    empty, mark, end = (pa.scalar(b, pa.large_binary()) for b in (b"", VALUE_MARKER, _TERMINATOR))
    joined = pc.binary_join_element_wise(mark, escaped, end, empty)
    return pc.fill_null(joined, NULL_MARKER) if column.null_count else joined


def _encode_fixed(column: pa.Array) -> pa.LargeBinaryArray:
    valid = np.asarray(column.is_valid()) if column.null_count else None
    payload = _ordered_bytes(column)
    rows, width = payload.shape
    out = np.empty((rows, width + 1), np.uint8)
    out[:, 0] = 1
    out[:, 1:] = payload
    if valid is not None:
        out[~valid] = 0
    offsets = np.arange(0, (rows + 1) * (width + 1), width + 1, dtype=np.int64)
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _ordered_bytes(column: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """One row of unsigned bytes per value, ordered as the values. What stands for a null does not matter."""
    kind = column.type
    rows = len(column)
    if pa.types.is_boolean(kind):
        return np.asarray(column.fill_null(False)).astype(np.uint8).reshape(rows, 1)
    if pa.types.is_decimal128(kind):
        raw = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * 16 : (column.offset + rows) * 16]
        big_endian = raw.reshape(rows, 16)[:, ::-1].copy()
        big_endian[:, 0] ^= 0x80
        return big_endian
    if pa.types.is_floating(kind):
        bits = float_order(np.asarray(column.fill_null(0)))
    elif pa.types.is_signed_integer(kind):
        bits = np.asarray(column.fill_null(0))
    elif pa.types.is_date32(kind):
        bits = np.asarray(column.view(pa.int32()).fill_null(0))
    elif pa.types.is_timestamp(kind) and kind.unit == "us":
        bits = np.asarray(column.view(pa.int64()).fill_null(0))
    else:
        raise SchemaError(f"a column of type {kind} cannot be part of a key")
    width = bits.dtype.itemsize
    unsigned = bits.view(f"u{width}") ^ np.array(1 << (8 * width - 1), f"u{width}")
    ordered: np.ndarray[Any, np.dtype[np.uint8]] = unsigned.astype(f">u{width}").view(np.uint8).reshape(rows, width)
    return ordered


def float_order(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Signed integers of the same width in the order of the floats: -0.0 equals 0.0 and NaN is the largest.

    >>> float_order(np.array([-0.0, 0.0, np.nan])).tolist()
    [0, 0, 9221120237041090560]
    """
    clean = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0.0))
    bits = clean.view(f"i{values.dtype.itemsize}")
    ordered: np.ndarray[Any, Any] = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    return ordered
