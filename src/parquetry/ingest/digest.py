"""The digest of a row, as Spark's ``xxhash64`` makes it: a batch that comes again is known, whoever hashed it first."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.model.schema import Column, TableSchema

_Words = np.ndarray[Any, np.dtype[np.uint64]]

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_MASK_BITS = 62  # of a bigint, so that adding bits never overflows
_LONG_DIGITS = 18  # of a decimal that Spark hashes as a long


def hashed_columns(schema: TableSchema, given: Collection[str]) -> tuple[list[Column], list[list[tuple[Column, int]]]]:
    """What a row's digest is made of: columns, and for each word of their mask the columns with their bits.

    The same for a batch that comes again after columns were added to the table. ``given`` are the batch's columns in
    lower case: a count that it left to be filled in is not part of its data. The hash passes over nulls, which keeps
    it when columns are added; the mask tells (1, null) from (null, 1).
    """
    columns = [
        (i, c) for i, c in enumerate(schema.columns) if schema.values.get(c.name) != "count" or c.name.lower() in given
    ]
    present: dict[int, list[tuple[Column, int]]] = {}
    for i, c in columns:
        if c.nullable and c.name not in schema.key:
            present.setdefault(i // _MASK_BITS, []).append((c, 1 << i % _MASK_BITS))
    return [c for _, c in columns], list(present.values())


def row_digests(rows: pa.Table, schema: TableSchema, given: Collection[str]) -> pa.Array:
    """The digest of every row of ``rows``, which has the table's flat columns in their types."""
    columns, masks = hashed_columns(schema, given)
    hashes = np.full(rows.num_rows, _SEED, np.uint64)
    with np.errstate(over="ignore"):
        for c in columns:
            _add(hashes, rows.column(c.name).combine_chunks())
        for bits in masks:
            mask = np.zeros(rows.num_rows, np.uint64)
            for c, bit in bits:
                mask += np.asarray(rows.column(c.name).is_valid()).astype(np.uint64) * np.uint64(bit)
            hashes = np.where(mask == 0, hashes, _long(mask, hashes))
    return pa.array(hashes.view(np.int64))


def _add(hashes: _Words, column: pa.Array) -> None:
    """Takes the values of a column into the hashes of their rows, in place; nulls leave theirs as it was."""
    rows = np.flatnonzero(np.asarray(column.is_valid()))
    values = column.drop_null() if column.null_count else column
    if not len(values):
        return
    hashes[rows] = _hash_of(values.type)(values, hashes[rows])


def _hash_of(arrow: pa.DataType) -> Callable[[Any, _Words], _Words]:
    t = pa.types
    if t.is_boolean(arrow) or t.is_date(arrow) or (t.is_integer(arrow) and arrow.bit_width <= 32):
        return lambda v, seed: _int(np.asarray(v.cast(pa.int32())), seed)
    if t.is_float32(arrow):
        return lambda v, seed: _int(_bits(v, np.float32, np.int32), seed)
    if t.is_float64(arrow):
        return lambda v, seed: _long(_bits(v, np.float64, np.uint64), seed)
    if t.is_decimal(arrow):
        if arrow.precision <= _LONG_DIGITS:
            return lambda v, seed: _long(_unscaled(v)[:, 0], seed)
        return lambda v, seed: _bytes(*_big_integers(v), seed)
    if t.is_string(arrow) or t.is_binary(arrow):
        return lambda v, seed: _bytes(*_texts(v), seed)
    return lambda v, seed: _long(np.asarray(v.cast(pa.int64())).view(np.uint64), seed)


def _bits(values: pa.Array, kind: type, bits: type) -> Any:
    """The bits of floats: one zero, and one NaN."""
    given: Any = values.to_numpy(zero_copy_only=False).astype(kind, copy=False) + kind(0)
    return np.where(np.isnan(given), kind("nan"), given).astype(kind).view(bits)


def _unscaled(values: pa.Array) -> Any:
    """Decimals as two words each, the lower one first."""
    whole = np.frombuffer(values.buffers()[1], np.uint64).reshape(-1, 2)
    return whole[values.offset : values.offset + len(values)]


def _big_integers(values: pa.Array) -> tuple[Any, Any, Any]:
    """Decimals as Java's BigInteger writes them: big-endian, in as few bytes as hold the value and its sign."""
    raw = np.ascontiguousarray(_unscaled(values)).view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign = np.where(raw[:, :1] >= 128, 255, 0).astype(np.uint8)
    needed = (raw[:, :-1] != sign) | ((raw[:, 1:] >= 128) != (sign >= 128))  # a byte that the next cannot stand for
    skipped = np.where(needed.any(axis=1), needed.argmax(axis=1), 15)
    starts = np.arange(len(raw)) * 16 + skipped
    return np.ascontiguousarray(raw).ravel(), starts, 16 - skipped


def _texts(values: pa.Array) -> tuple[Any, Any, Any]:
    _, offsets, data = values.buffers()
    at = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), at[:-1], np.diff(at)


def _rotated(x: _Words, by: int) -> _Words:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


def _mixed(h: _Words) -> _Words:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def _int(values: Any, seed: _Words) -> _Words:
    return _mixed(_four(values.astype(np.int32).view(np.uint32).astype(np.uint64), seed + _P5 + np.uint64(4)))


def _long(values: Any, seed: _Words) -> _Words:
    return _mixed(_eight(values, seed + _P5 + np.uint64(8)))


def _four(words: _Words, h: _Words) -> _Words:
    return _rotated(h ^ (words * _P1), 23) * _P2 + _P3


def _round(word: _Words, lane: _Words) -> _Words:
    return _rotated(lane + word * _P2, 31) * _P1


def _eight(words: _Words, h: _Words) -> _Words:
    return _rotated(h ^ _round(words, np.zeros_like(words)), 27) * _P1 + _P4


def _bytes(data: Any, starts: Any, lengths: Any, seed: _Words) -> _Words:
    """Texts of any length, all at once: the loops go over the longest text's words, not over rows."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    at, end = starts.copy(), starts + lengths
    h = seed + _P5
    if len(long := np.flatnonzero(lengths >= 32)):
        lanes = [seed[long] + _P1 + _P2, seed[long] + _P2, seed[long].copy(), seed[long] - _P1]
        stripes = lengths[long] // 32
        for i in range(int(stripes.max())):
            on = np.flatnonzero(stripes > i)
            for k, lane in enumerate(lanes):
                lane[on] = _round(words[at[long[on]] + 8 * k], lane[on])
            at[long[on]] += 32
        whole = sum((_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
        for lane in lanes:
            whole = (whole ^ _round(lane, np.zeros_like(lane))) * _P1 + _P4
        h[long] = whole
    h = h + lengths.astype(np.uint64)
    while len(on := np.flatnonzero(at + 8 <= end)):
        h[on] = _eight(words[at[on]], h[on])
        at[on] += 8
    on = np.flatnonzero(at + 4 <= end)
    h[on] = _four(words[at[on]] & np.uint64(0xFFFFFFFF), h[on])
    at[on] += 4
    while len(on := np.flatnonzero(at < end)):
        h[on] = _rotated(h[on] ^ (padded[at[on]].astype(np.uint64) * _P5), 11) * _P1
        at[on] += 1
    return _mixed(h)
