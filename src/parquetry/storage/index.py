"""The size-enhanced B-tree of a delta (PP-08…PP-12, NA-61): its entries, its file format, and how it is built.

A file is: magic, leaf nodes, inner nodes level by level, footer (JSON), crc32 and length of the footer, magic.
A leaf node (level 0) holds the data blocks of one row group: ``count``, rows of each, key lengths, keys (uint32, then
bytes). An inner node is one Arrow record batch without its schema, which follows from the footer's columns. Entry
``i`` of a level points to node ``i`` of the level below, so level 1 has one entry per row group of the delta.

Nothing is decoded before its checksum is: the footer's stands behind it, the inner nodes' in the footer, a leaf's in
its level-1 entry, together with those of the row group's column chunks. Format 1 had the footer's only.
"""

from __future__ import annotations

import json
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.model.keys import successor
from parquetry.model.schema import TableSchema
from parquetry.model.types import arrow_type, is_float, is_nested

MAGIC = b"PQX1"
FORMAT_VERSION = 2
FORMATS = (1, 2)
"""That can be read."""
TAIL = struct.Struct("<II4s")  # crc32 and length of the footer, magic
KEY_BYTES = 1024
"""Longer keys are cut in the index, outwards: a start becomes smaller, an end larger."""
BOUND_LENGTH = 64
"""Longer strings and binaries are cut in min/max, outwards, so that one wide value cannot bloat the index."""

CARRIED = ("rows", "bytes", "file", "row_group", "block", "boxes", "chunk_crcs", "footer_at", "footer_crc")
"""What a level-1 entry has of its row group as it is."""

Ints = np.ndarray[Any, np.dtype[np.int64]]
Key = bytes  # a normalized key, or a bound of some
Crcs = bytes  # four bytes each


@dataclass(frozen=True)
class RowGroup:
    """What a writer knows of one row group when it has written it. Keys are normalized, with their block's prefix.

    A column missing from ``mins``, ``maxs``, ``nulls`` or ``nans``, or None there, is unknown: it may hold anything.
    ``mins`` and ``maxs`` leave NaN out; ``nans`` tells of each float column whether it holds one.
    """

    file: int  # ordinal in the delta
    row_group: int  # ordinal in the file
    rows: int
    bytes: int
    block: int  # of the first row; a row group of small blocks goes on into the next ones
    starts: tuple[Key, ...]  # the key of the first row of each data block
    start_rows: tuple[int, ...]  # the rows of each data block
    last: Key  # the key of the last row
    mins: Mapping[str, Any] = field(default_factory=dict)
    maxs: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    nans: Mapping[str, bool] = field(default_factory=dict)
    boxes: str | None = None  # its precise descriptor as JSON: boxes that together hold all its rows (PW-21)
    chunk_crcs: Crcs | None = None  # crc32 of its column chunks in the file's order; None: unknown
    footer_at: int | None = None  # where its file has no more row groups: from here to its end all is footer
    footer_crc: int | None = None


@dataclass(frozen=True)
class Entry:
    """The keys ``[start, end)`` have ``rows`` rows in ``bytes`` bytes; ``child`` is a node one level below (PP-09)."""

    start: Key
    end: Key
    rows: int
    bytes: int
    level: int
    child: int | None


@dataclass(frozen=True, eq=False)
class Node:
    """The entries of one index node as columns; ``first`` is the ordinal of the first one in its level.

    From level 1 up, ``[start, end)`` holds every key of the entry, and ends are as tight as is known. At level 0 an
    end is the next start, so that of equal keys on both sides of it some count to the wrong side.
    """

    level: int
    first: int
    starts: list[Key]
    ends: list[Key]
    rows: Ints
    bytes: Ints
    batch: pa.RecordBatch | None  # with min.<column>, max.<column>, nulls.<column>, nan.<column>; None for leaves

    def __len__(self) -> int:
        return len(self.starts)

    def entry(self, i: int) -> Entry:
        child = self.first + i if self.level else None
        return Entry(self.starts[i], self.ends[i], int(self.rows[i]), int(self.bytes[i]), self.level, child)

    def overlapping(self, lo: Key, hi: Key | None) -> range:
        """The positions of the entries that may hold keys of ``[lo, hi)``; None is unbounded (PP-22)."""
        return overlapping(self.starts, self.ends, lo, hi)


def overlapping(starts: Sequence[Key], ends: Sequence[Key], lo: Key, hi: Key | None) -> range:
    """The positions of the sorted ranges ``[start, end)`` that meet ``[lo, hi)``."""
    first = bisect_right(ends, lo)
    stop = len(starts) if hi is None else bisect_left(starts, hi)
    return range(first, max(first, stop))


def stat_schema(columns: Sequence[tuple[str, str]], level: int, version: int = FORMAT_VERSION) -> pa.Schema:
    """The Arrow schema of the inner nodes of a level, for a delta with these (name, type) columns."""
    fields = [("start", pa.binary()), ("end", pa.binary()), ("rows", pa.int64()), ("bytes", pa.int64())]
    if level == 1:
        fields += [("file", pa.int32()), ("row_group", pa.int32()), ("block", pa.int64())]
        fields += [("leaf_offset", pa.int64()), ("leaf_length", pa.int32()), ("boxes", pa.string())]
    if level == 1 and version > 1:
        fields += [("leaf_crc", pa.int64()), ("chunk_crcs", pa.binary())]
        fields += [("footer_at", pa.int64()), ("footer_crc", pa.int64())]
    for name, kind in columns:
        arrow = arrow_type(kind)
        fields.append((f"nulls.{name}", pa.int64()))
        if not is_nested(arrow):
            fields += [(f"min.{name}", arrow), (f"max.{name}", arrow)]
        if is_float(arrow):
            fields.append((f"nan.{name}", pa.bool_()))
    return pa.schema(fields)


def build_index(groups: Sequence[RowGroup], schema: TableSchema, leaf_capacity: int, inner_capacity: int) -> bytes:
    """The index file of a delta whose row groups, in the order of the run, are ``groups``."""
    _check_run(groups, leaf_capacity)
    columns = [(c.name, c.type) for c in schema.columns]
    pieces: list[bytes | pa.Buffer] = [MAGIC]
    position = len(MAGIC)
    leaves = [_leaf_bytes(g) for g in groups]
    lengths = np.fromiter((len(leaf) for leaf in leaves), np.int64, len(leaves))
    level = _row_group_level(groups, columns, position + np.cumsum(lengths) - lengths, leaves)
    pieces += leaves
    position += int(lengths.sum())
    directory: list[list[int]] = []
    checks: list[list[int]] = []
    fan_out = max(2, inner_capacity)  # a tree of single children would never end
    while True:
        offsets, crcs = [position], []
        for at in range(0, level.num_rows, fan_out):
            node = level.slice(at, fan_out).serialize()
            pieces.append(node)
            position += node.size
            offsets.append(position)
            crcs.append(zlib.crc32(node))
        directory.append(offsets)
        checks.append(crcs)
        if len(offsets) == 2:
            break
        level = _level_above(level, columns, len(directory) + 1, fan_out)
    footer = json.dumps(
        {
            "format": FORMAT_VERSION,
            "columns": columns,
            "inner_capacity": fan_out,
            "row_groups": len(groups),
            "rows": sum(g.rows for g in groups),
            "bytes": sum(g.bytes for g in groups),
            "start": _cut_start(groups[0].starts[0]).hex(),
            "end": _cut_end(groups[-1].last).hex(),
            "nodes": directory,  # of each level from 1 up: where its nodes start, and where the last one ends
            "checks": checks,  # the nodes' crc32
        }
    ).encode()
    pieces += [footer, TAIL.pack(zlib.crc32(footer), len(footer), MAGIC)]
    return b"".join(pieces)


def _check_run(groups: Sequence[RowGroup], leaf_capacity: int) -> None:
    if not groups:
        raise ValueError("a delta without rows has no index")
    previous = b""
    for g in groups:
        if not 1 <= len(g.starts) == len(g.start_rows) <= leaf_capacity or sum(g.start_rows) != g.rows:
            raise ValueError(f"row group {g.row_group} of file {g.file}: its data blocks do not add up")
        if not previous <= g.starts[0] <= g.last:
            raise ValueError(f"row group {g.row_group} of file {g.file} is not in the order of the run")
        previous = g.last


def _cut_start(key: bytes) -> bytes:
    return key[:KEY_BYTES]


def _cut_end(last: bytes) -> bytes:
    """The smallest bound above ``last`` that fits: its immediate successor (3.1-8), or one above its cut prefix."""
    if len(last) <= KEY_BYTES:
        return last + b"\x00"
    end = successor(last[:KEY_BYTES])
    assert end is not None  # a block's prefix is never all FF
    return end


def _leaf_bytes(g: RowGroup) -> bytes:
    keys = [_cut_start(k) for k in g.starts]
    n = len(keys)
    return struct.pack(f"<{2 * n + 1}I", n, *g.start_rows, *map(len, keys)) + b"".join(keys)


def read_leaf(data: bytes, ordinal: int, inner: Node) -> Node:
    """The leaf node of row group ``ordinal``, whose level-1 entry is in ``inner``. Bytes are shared out by rows."""
    parent = inner.entry(ordinal - inner.first)
    (n,) = struct.unpack_from("<I", data)
    numbers = np.frombuffer(data, "<u4", 2 * n, 4).astype(np.int64)
    rows = numbers[:n]
    bounds = (4 + 8 * n + np.concatenate(([0], np.cumsum(numbers[n:])))).tolist()
    starts = [data[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    ends = [max(following, start + b"\x00") for start, following in zip(starts, starts[1:], strict=False)]
    until = (np.cumsum(rows) * parent.bytes) // max(1, parent.rows)
    return Node(0, 0, starts, [*ends, parent.end], rows, np.diff(until, prepend=0), None)


def _row_group_level(
    groups: Sequence[RowGroup], columns: Sequence[tuple[str, str]], offsets: Ints, leaves: Sequence[bytes]
) -> pa.RecordBatch:
    data: dict[str, Any] = {
        "start": [_cut_start(g.starts[0]) for g in groups],
        "end": [_cut_end(g.last) for g in groups],
        "leaf_offset": offsets,
        "leaf_length": [len(leaf) for leaf in leaves],
        "leaf_crc": [zlib.crc32(leaf) for leaf in leaves],
        **{name: [getattr(g, name) for g in groups] for name in CARRIED},
    }
    for name, kind in columns:
        arrow = arrow_type(kind)
        data[f"nulls.{name}"] = [g.nulls.get(name) for g in groups]
        if is_nested(arrow):
            continue
        lows, highs = [g.mins.get(name) for g in groups], [g.maxs.get(name) for g in groups]
        if is_float(arrow):
            nans = [True if h is not None and h != h else g.nans.get(name) for g, h in zip(groups, highs, strict=True)]
            data[f"nan.{name}"] = nans
            lows = [None if v is not None and v != v else v for v in lows]
            highs = [None if v is not None and v != v else v for v in highs]
        elif pa.types.is_string(arrow) or pa.types.is_binary(arrow):
            lows = [None if v is None else v[:BOUND_LENGTH] for v in lows]
            highs = [_cut_upwards(v) for v in highs]
        data[f"min.{name}"], data[f"max.{name}"] = lows, highs
    return _batch(data, stat_schema(columns, 1))


def _batch(data: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [v if isinstance(v := data[f.name], pa.Array) else pa.array(v, f.type) for f in schema]
    return pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)


def _cut_upwards(value: Any) -> Any:
    """A short value that is at least ``value``; None when there is none."""
    if value is None or len(value) <= BOUND_LENGTH:
        return value
    if isinstance(value, bytes):
        return successor(value[:BOUND_LENGTH])
    for end in range(BOUND_LENGTH, 0, -1):
        following = ord(value[end - 1]) + 1
        if following == 0xD800:
            following = 0xE000  # surrogates are no characters
        if following <= 0x10FFFF:
            return value[: end - 1] + chr(following)
    return None


def _level_above(below: pa.RecordBatch, columns: Sequence[tuple[str, str]], level: int, fan_out: int) -> pa.RecordBatch:
    """One entry per node of the level below: sizes add up, bounds widen, what is unknown below stays unknown."""
    nodes = [below.slice(at, fan_out) for at in range(0, below.num_rows, fan_out)]
    data: dict[str, Any] = {
        "start": [n["start"][0].as_py() for n in nodes],
        "end": [n["end"][-1].as_py() for n in nodes],
        **{size: [pc.sum(n[size]).as_py() for n in nodes] for size in ("rows", "bytes")},
    }
    for name, kind in columns:
        arrow = arrow_type(kind)
        data[f"nulls.{name}"] = [_sum_known(n[f"nulls.{name}"]) for n in nodes]
        if not is_nested(arrow):
            bounds = [_bounds_known(n, name, arrow) for n in nodes]
            data[f"min.{name}"] = pa.array([lo for lo, _ in bounds], arrow)
            data[f"max.{name}"] = pa.array([hi for _, hi in bounds], arrow)
        if is_float(arrow):
            data[f"nan.{name}"] = [pc.any(n[f"nan.{name}"], skip_nulls=False).as_py() for n in nodes]
    return _batch(data, stat_schema(columns, level))


def _sum_known(counts: pa.Array) -> int | None:
    return None if counts.null_count else int(pc.sum(counts).as_py())


def _bounds_known(node: pa.RecordBatch, name: str, arrow: pa.DataType) -> tuple[Any, Any]:
    lows, highs = node[f"min.{name}"], node[f"max.{name}"]
    if lows.null_count or highs.null_count:
        some_value = pc.fill_null(pc.less(node[f"nulls.{name}"], node["rows"]), True)
        unknown = pc.and_(some_value, pc.or_(lows.is_null(), highs.is_null()))
        if pc.any(unknown).as_py():
            return None, None
    return pc.min(lows).as_py(), pc.max(highs).as_py()
