"""The key at which a split ends: as few leading columns as tell its two sides apart (PP-29, 3.1-9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from parquetry.model.keys import BLOCK_BYTES, VALUE_MARKER, encode_value

_TERMINATOR = b"\x00\x00"
_ESCAPED_ZERO = b"\x00\xff"

Shorten = Callable[[bytes, bytes], bytes]
"""From two keys, the first smaller, a prefix of the second that is greater than the first."""


def shorten_bytes(below: bytes, above: bytes) -> bytes:
    """The shortest prefix of ``above`` that is greater than ``below``.

    >>> shorten_bytes(b"abcx", b"abfgh")
    b'abf'
    """
    for i, (a, b) in enumerate(zip(below, above, strict=False)):
        if a != b:
            return above[: i + 1]
    return above[: len(below) + 1]


def shorten_columns(types: Sequence[pa.DataType]) -> Shorten:
    """Shortens normalized keys of these key columns to whole columns; the block counts as the first one."""
    widths = [None if _is_variable(t) else len(encode_value(None, t)) for t in types]

    def shorten(below: bytes, above: bytes) -> bytes:
        end = BLOCK_BYTES
        if above[:end] > below:
            return above[:end]
        for width in widths:
            end = end + width if width is not None else _variable_end(above, end)
            if above[:end] > below:
                return above[:end]
        return above

    return shorten


def leading_values(key: bytes, kinds: Sequence[pa.DataType]) -> bytes:
    """The block and the first columns, of these ``kinds``, of a normalized key."""
    end = BLOCK_BYTES
    for kind in kinds:
        end = _variable_end(key, end) if _is_variable(kind) else end + len(encode_value(None, kind))
    return key[:end]


def between_values(kinds: Sequence[pa.DataType]) -> Shorten:
    """Cuts between values of the leading columns only: of one that is on both sides, all goes to the upper one."""
    return lambda below, above: leading_values(above, kinds)


def columns_in(key: bytes, types: Sequence[pa.DataType]) -> int:
    """How many leading key columns a normalized key or a bound of some reaches into; the block does not count."""
    end = BLOCK_BYTES
    for i, kind in enumerate(types):
        if len(key) <= end:
            return i
        end = _variable_end(key, end) if _is_variable(kind) else end + len(encode_value(None, kind))
    return len(types)


def _is_variable(kind: pa.DataType) -> bool:
    return any(
        check(kind)
        for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def _variable_end(key: bytes, start: int) -> int:
    """Where the string that begins at ``start`` ends; the key's own end when the index has cut it."""
    if key[start : start + 1] != VALUE_MARKER:
        return start + 1
    at = start + 1
    while True:
        at = key.find(b"\x00", at)
        if at < 0 or key[at : at + 2] == _TERMINATOR:
            return len(key) if at < 0 else at + 2
        at += len(_ESCAPED_ZERO)
