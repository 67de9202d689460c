"""Reading a delta's index node by node, and the flat table of its row groups. What was read once stays in memory."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.errors import StorageError
from parquetry.model.delta import StoredFile
from parquetry.storage.cache import METADATA
from parquetry.storage.index import FORMAT_VERSION, FORMATS, MAGIC, TAIL, Entry, Ints, Node, read_leaf, stat_schema
from parquetry.storage.store import Store
from parquetry.storage.store import checksum as checksum_of

_TAIL_READ = 64 << 10  # one read that holds the footer of nearly every index, and the whole of a small one

_READ_OVER = 32 << 10  # bytes between two wanted leaves that are cheaper to read than to ask for again
_READER_BYTES = 4 << 10  # of a reader besides the bytes that it holds
_ARRAY_BYTES = 512  # of a column of a batch besides its values

_serial = itertools.count()


@dataclass(frozen=True, eq=False)
class RowGroupTable:
    """All row groups of one delta as columns, in the order of the run. Row ``i`` is entry ``i`` of level 1.

    ``batch`` has file, row_group, rows, bytes, block, start, end and min., max., nulls., nan.<column>.
    """

    batch: pa.RecordBatch
    columns: frozenset[str]  # that the delta has; a column added later is null in all of its rows

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def rows(self) -> Ints:
        return np.asarray(self.batch["rows"])

    @cached_property
    def starts(self) -> list[bytes]:
        return self.batch["start"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def ends(self) -> list[bytes]:
        return self.batch["end"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def checks(self) -> dict[int, tuple[int | None, int | None, list[bytes | None]]]:
        """Of each file of the delta, by ordinal: where its footer begins, its crc32, and those of column chunks by row
        group. Nothing for an index of the first format."""
        names = ("file", "footer_at", "footer_crc", "chunk_crcs")
        if not set(names) <= set(self.batch.schema.names):
            return {}
        found: dict[int, tuple[int | None, int | None, list[bytes | None]]] = {}
        # The row groups of a file come in their order there.
        for file, at, crc, chunks in zip(*(self.batch[n].to_pylist() for n in names), strict=True):
            found.setdefault(file, (at, crc, []))[2].append(chunks)
        return found

    def stat(self, kind: str, column: str, arrow: pa.DataType) -> pa.Array:
        """The ``min``, ``max``, ``nulls`` or ``nan`` of a column in every row group; null where unknown."""
        name = f"{kind}.{column}"
        if name in self.batch.schema.names:
            return self.batch[name]
        if column not in self.columns and kind == "nulls":
            return self.batch["rows"]
        if column not in self.columns and kind == "nan":
            return pa.array(np.zeros(len(self), bool))
        return pa.nulls(len(self), arrow)


class IndexReader:
    """The B-tree of one delta. ``read(offset, length)`` gives bytes of its file; ``name`` identifies it in caches.

    Levels count from 0, the leaves; the virtual root entry stands above the root node (PP-12).
    """

    def __init__(
        self, read: Callable[[int, int], bytes], size: int, name: Hashable = None, checksum: str | None = None
    ) -> None:
        """``checksum`` is that of the whole file: an index of format 1 has none of its own for its nodes."""
        self._read = read
        self._name = name if name is not None else ("index", next(_serial))
        if size < len(MAGIC) + TAIL.size:
            raise self._damaged("it is too short")
        self._tail_start = max(0, size - _TAIL_READ)
        self._tail = read(self._tail_start, size - self._tail_start)
        crc, length, magic = TAIL.unpack(self._tail[-TAIL.size :])
        if magic != MAGIC:
            raise self._damaged("it does not end as an index does")
        footer_start = size - TAIL.size - length
        if footer_start < len(MAGIC):
            raise self._damaged("its footer does not fit")
        data = self._bytes(footer_start, length)
        if zlib.crc32(data) != crc:
            raise self._damaged("its footer has a wrong checksum")
        footer = json.loads(data)
        self._format: int = footer["format"]
        if self._format not in FORMATS:
            raise StorageError(
                f"index {self._name!r} has format {self._format}, this Parquetry reads {FORMAT_VERSION}; "
                "use the version that wrote it"
            )
        if self._format == 1:
            self._tail_start, self._tail = 0, read(0, size)
            if checksum != checksum_of(self._tail):
                raise self._damaged("it has a wrong checksum")
        self.columns: list[tuple[str, str]] = [(name, kind) for name, kind in footer["columns"]]
        self.row_group_count: int = footer["row_groups"]
        self._capacity: int = footer["inner_capacity"]
        self._nodes: list[list[int]] = footer["nodes"]
        self._checks: list[list[int]] | None = footer.get("checks")
        start, end = bytes.fromhex(footer["start"]), bytes.fromhex(footer["end"])
        self.root = Entry(start, end, footer["rows"], footer["bytes"], self.levels, 0)

    @property
    def weight(self) -> int:
        """The bytes that it holds besides nodes."""
        return len(self._tail) + _READER_BYTES

    @property
    def fan_out(self) -> int:
        """The entries of a full inner node."""
        return self._capacity

    @property
    def levels(self) -> int:
        """The number of levels of nodes, leaves included; the root node's level is one less."""
        return len(self._nodes) + 1

    def entries(self, level: int, node: int) -> Node:
        """One node, read from the file unless it is in memory."""
        load = self._load_leaf if level == 0 else self._load_inner
        return METADATA.get((self._name, level, node), lambda: load(level, node), _node_weight)

    def children(self, entry: Entry) -> Node:
        """The node that an entry points to (DrillDown's read, PP-24)."""
        if entry.child is None:
            raise ValueError("a leaf entry has no children")
        return self.entries(entry.level - 1, entry.child)

    def leaf(self, ordinal: int) -> Node:
        """The data blocks of a row group."""
        return self.entries(0, ordinal)

    def leaves(self, ordinals: Sequence[int]) -> list[Node]:
        """The data blocks of several row groups, in ascending order. What is not in memory is read in few requests.

        A request goes on over leaves that nobody asked for if the next wanted one is near, and keeps them all: the
        neighbours of a leaf are what is read next (PP-45).
        """
        self.fetch_leaves(ordinals)
        return [self.leaf(n) for n in ordinals]

    def fetch_leaves(self, ordinals: Sequence[int]) -> int:
        """Takes in those of these leaves that are not in memory, and tells how many were read from the file for it."""
        missing = [n for n in ordinals if not METADATA.has((self._name, 0, n))]
        read = 0
        for first, last in self._stretches(missing):
            offsets, lengths = self._leaf_places
            begin = int(offsets[first])
            read += last + 1 - first if begin < self._tail_start else 0
            data = self._bytes(begin, int(offsets[last] + lengths[last]) - begin)
            for n in range(first, last + 1):
                at = int(offsets[n]) - begin
                leaf = data[at : at + int(lengths[n])]
                METADATA.get((self._name, 0, n), lambda n=n, leaf=leaf: self._parse_leaf(leaf, n), _node_weight)  # type: ignore[misc]
        return read

    def _stretches(self, ordinals: Sequence[int]) -> list[tuple[int, int]]:
        """Runs of leaves that one request each reads, as first and last ordinal."""
        found: list[tuple[int, int]] = []
        offsets, lengths = self._leaf_places
        for n in ordinals:
            if found and offsets[n] - (offsets[found[-1][1]] + lengths[found[-1][1]]) <= _READ_OVER:
                found[-1] = (found[-1][0], n)
            else:
                found.append((n, n))
        return found

    @cached_property
    def _leaf_places(self) -> tuple[Ints, Ints]:
        batch = self.row_groups().batch
        return np.asarray(batch["leaf_offset"]), np.asarray(batch["leaf_length"])

    def row_groups(self) -> RowGroupTable:
        """Every row group of the delta; read with one request, then kept in memory."""
        return METADATA.get((self._name, "row groups"), self._load_row_groups, lambda t: _batch_weight(t.batch))

    def _load_row_groups(self) -> RowGroupTable:
        offsets = self._nodes[0]
        data = pa.py_buffer(self._bytes(offsets[0], offsets[-1] - offsets[0]))
        schema = stat_schema(self.columns, 1, self._format)
        spans = zip(offsets, offsets[1:], strict=False)
        batches = [self._batch(data.slice(a - offsets[0], b - a), 1, n) for n, (a, b) in enumerate(spans)]
        table = pa.Table.from_batches(batches, schema).combine_chunks()
        return RowGroupTable(table.to_batches()[0], frozenset(name for name, _ in self.columns))

    def _load_inner(self, level: int, node: int) -> Node:
        offsets = self._nodes[level - 1]
        data = self._bytes(offsets[node], offsets[node + 1] - offsets[node])
        batch = self._batch(pa.py_buffer(data), level, node)
        sizes = (np.asarray(batch["rows"]), np.asarray(batch["bytes"]))
        return Node(level, node * self._capacity, batch["start"].to_pylist(), batch["end"].to_pylist(), *sizes, batch)

    def _load_leaf(self, level: int, ordinal: int) -> Node:
        inner = self.entries(1, ordinal // self._capacity)
        at = ordinal - inner.first
        assert inner.batch is not None
        offset, length = inner.batch["leaf_offset"][at].as_py(), inner.batch["leaf_length"][at].as_py()
        return self._parse_leaf(self._bytes(offset, length), ordinal)

    def _parse_leaf(self, data: bytes, ordinal: int) -> Node:
        inner = self.entries(1, ordinal // self._capacity)
        assert inner.batch is not None
        if self._format > 1 and zlib.crc32(data) != inner.batch["leaf_crc"][ordinal - inner.first].as_py():
            raise self._damaged("a leaf has a wrong checksum")
        return read_leaf(data, ordinal, inner)

    def _batch(self, data: pa.Buffer, level: int, node: int) -> pa.RecordBatch:
        # A damaged batch may well be decoded, into something else or into a crash.
        if self._checks is not None and zlib.crc32(data) != self._checks[level - 1][node]:
            raise self._damaged("a node has a wrong checksum")
        return pa.ipc.read_record_batch(data, stat_schema(self.columns, level, self._format))

    def _bytes(self, offset: int, length: int) -> bytes:
        if offset >= self._tail_start:
            at = offset - self._tail_start
            return self._tail[at : at + length]
        return self._read(offset, length)

    def _damaged(self, how: str) -> StorageError:
        return StorageError(f"index {self._name!r} is damaged: {how}; run 'parquetry verify' to see what is affected")


def open_index(store: Store, file: StoredFile) -> IndexReader:
    """The index stored in ``file``. Index files never change, so a reader is made once per process."""
    name = store.url(file.path)
    read = lambda offset, length: store.read(file.path, offset, length)  # noqa: E731
    load = lambda: IndexReader(read, file.bytes, name, file.checksum)  # noqa: E731
    return METADATA.get((name, "reader"), load, lambda reader: reader.weight)


def _node_weight(node: Node) -> int:
    keys: Any = sum(map(len, node.starts)) + sum(map(len, node.ends))
    return int(keys + 100 * len(node) + (_batch_weight(node.batch) if node.batch is not None else 0))


def _batch_weight(batch: pa.RecordBatch) -> int:
    """With what its arrays are besides their values, which is more where there are few of these."""
    return int(batch.nbytes + _ARRAY_BYTES * batch.num_columns)
