"""Data files whose bytes are compared with their checksums before anything decodes them.

Neither pyarrow nor DuckDB notices every flipped bit by itself: values change silently, or the reader crashes. The
index knows the checksum of every column chunk, and of each file's end with the footer. A file that it does not know
that of, written by an earlier version, is compared whole with the catalog's checksum, once per process.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parquetry.errors import StorageError
from parquetry.model.delta import StoredFile
from parquetry.storage.cache import METADATA
from parquetry.storage.index import Crcs
from parquetry.storage.store import Store, checksum

SMALL_BYTES = 64 << 10
"""A file with one row group of at most this size is read whole: a smaller read would take as long."""
_CHUNK_WEIGHT = 300  # bytes that a footer takes in memory for one column chunk, with room
_BETWEEN = 0.05  # of what is wanted may be read between it, to make one read of several
_CRC = np.dtype("<u4")

_Place = tuple[int, int, int, int]  # offset, length, row group, column


@dataclass(frozen=True, eq=False)
class CheckedFile:
    """A data file and what its bytes must be. Row group ``g`` has the column chunks' crc32 in ``chunk_crcs[g]``; None
    where the index does not know them."""

    path: str
    bytes: int
    checksum: str
    footer_at: int | None = None
    footer_crc: int | None = None
    chunk_crcs: Sequence[Crcs | None] = ()

    @property
    def known(self) -> bool:
        """Whether parts of it can be checked by themselves."""
        return self.footer_at is not None and bool(self.chunk_crcs) and None not in self.chunk_crcs

    @property
    def small(self) -> bool:
        """Whether it is read whole, with its footer, in one read."""
        return self.bytes <= SMALL_BYTES and len(self.chunk_crcs) == 1

    def damaged(self) -> StorageError:
        return StorageError(
            f"data file '{self.path}' is damaged: its bytes do not have the checksum they were written with; "
            "run 'parquetry verify' to see what is affected, and restore it from a backup"
        )


def _chunk_ranges(footer: Any) -> np.ndarray:
    """Offset and length of every column chunk, by row group and column."""
    found = np.empty((footer.num_row_groups, footer.num_columns, 2), np.int64)
    for g in range(footer.num_row_groups):
        group = footer.row_group(g)
        for i in range(footer.num_columns):
            chunk = group.column(i)
            first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
            at = chunk.data_page_offset if first is None else min(first, chunk.data_page_offset)
            found[g, i] = at, chunk.total_compressed_size
    return found


def _ranges_of(store: Store, file: CheckedFile, footer: Any) -> np.ndarray:
    key = ("ranges", store.url(file.path))
    return METADATA.get(key, lambda: _chunk_ranges(footer), lambda found: 200 + int(found.nbytes))


def checksums_of(store: Store, path: str, size: int, footer: Any) -> tuple[list[bytes], int, int]:
    """Of a file just written: the crc32 of the column chunks of every row group, where its footer begins, and its
    crc32."""
    ranges = _chunk_ranges(footer)
    crcs = [
        np.array([zlib.crc32(data) for data in store.read_ranges(path, group)], _CRC).tobytes()
        for group in ranges.tolist()
    ]
    end = int(ranges.sum(axis=2).max())
    return crcs, end, zlib.crc32(store.read(path, end, size - end))


def footer_of(store: Store, file: CheckedFile) -> Any:
    """The footer of a data file, read once per process: data files never change."""
    return METADATA.get(("footer", store.url(file.path)), lambda: _load_footer(store, file), footer_weight)


def footer_weight(footer: Any) -> int:
    """The bytes that it takes in memory."""
    return 1024 + _CHUNK_WEIGHT * int(footer.num_columns) * int(footer.num_row_groups)


def _load_footer(store: Store, file: CheckedFile) -> Any:
    if file.small:
        return pq.read_metadata(pa.BufferReader(read_whole(store, file)))
    if file.known:
        assert file.footer_at is not None
        end = store.read(file.path, file.footer_at, file.bytes - file.footer_at)
        if zlib.crc32(end) != file.footer_crc:
            raise file.damaged()
        return pq.read_metadata(pa.BufferReader(end))
    check_whole(store, file)
    with store.open_input(file.path) as stream:
        return pq.read_metadata(stream)


def read_whole(store: Store, file: CheckedFile) -> bytes:
    """All bytes of a file, in one read."""
    data = store.read(file.path, 0, file.bytes)
    if file.checksum and checksum(data) != file.checksum:
        raise file.damaged()
    return data


def wrong_size(store: Store, file: StoredFile) -> StorageError | None:
    """What is wrong with a file that is missing, or not as long as the catalog knows it."""
    try:
        size = store.size(file.path)
    except StorageError as e:
        return e
    if size == file.bytes:
        return None
    return StorageError(
        f"data file '{file.path}' has {size} bytes instead of {file.bytes}; "
        "run 'parquetry verify' to see what is damaged, and restore it from a backup"
    )


def check_whole(store: Store, file: CheckedFile) -> None:
    """Compares a file with the catalog's checksum, once per process."""

    def compare() -> bool:
        if file.checksum and (store.size(file.path) != file.bytes or store.checksum_of(file.path) != file.checksum):
            raise file.damaged()
        return True

    METADATA.get(("whole", store.url(file.path)), compare, lambda _: 200)


def check_chunks(store: Store, file: CheckedFile, groups: Sequence[int], columns: Collection[str]) -> None:
    """Compares what another reader will read of a file with its checksums; what was compared before is not again."""
    footer = footer_of(store, file)
    if not file.known:
        check_whole(store, file)
        return

    def nothing() -> np.ndarray:
        if store.size(file.path) != file.bytes:  # another reader looks for the footer at its end
            raise file.damaged()
        return np.zeros((footer.num_row_groups, footer.num_columns), bool)

    done = METADATA.get(("checked", store.url(file.path)), nothing, lambda found: 200 + int(found.nbytes))
    rows, wanted = np.asarray(groups, np.int64), leaves_of(footer, columns)
    todo = rows[~done[rows][:, wanted].all(axis=1)]
    ranges = _ranges_of(store, file, footer) if len(todo) else None
    for group in todo.tolist():
        assert ranges is not None
        missing = [i for i in wanted if not done[group, i]]
        for i, data in zip(missing, store.read_ranges(file.path, ranges[group, missing].tolist()), strict=True):
            _check(file, group, i, data)
        done[group, missing] = True


def read_chunks(
    store: Store, file: CheckedFile, footer: Any, groups: Iterable[int], columns: Collection[str]
) -> tuple[pa.Buffer, int]:
    """A file that has the bytes of these column chunks at their places and is blank elsewhere; how many were read.

    Neighbours are read together, and so are chunks with little between them.
    """
    wanted, ranges = leaves_of(footer, columns), _ranges_of(store, file, footer)
    places = [(*ranges[group, i].tolist(), group, i) for group in groups for i in wanted]
    # Private pages that nobody touches take no memory, however large the file is.
    blank = mmap.mmap(-1, file.bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    runs = _runs(sorted(places), whole=footer.num_row_groups == 1)
    reads = [(run[0][0], run[-1][0] + run[-1][1] - run[0][0]) for run in runs]
    for run, (begin, length), data in zip(runs, reads, store.read_ranges(file.path, reads), strict=True):
        view = memoryview(data)
        for at, size, group, i in run:
            _check(file, group, i, view[at - begin : at - begin + size])
        blank[begin : begin + length] = data
    return pa.py_buffer(blank), sum(length for _, length in reads)


def _runs(places: Sequence[_Place], *, whole: bool) -> list[list[_Place]]:
    """Chunks that one read each gets: what lies between them is a small part of it. With ``whole`` a small stretch is
    one read in any case."""
    found: list[list[_Place]] = []
    wanted = 0
    for place in places:
        at, size = place[:2]
        if found:
            begin = found[-1][0][0]
            together = at + size - begin
            if together <= (wanted + size) * (1 + _BETWEEN) or (whole and together <= SMALL_BYTES):
                found[-1].append(place)
                wanted += size
                continue
        found.append([place])
        wanted = size
    return found


def _check(file: CheckedFile, group: int, column: int, data: bytes | memoryview) -> None:
    crcs = file.chunk_crcs[group] if group < len(file.chunk_crcs) else None
    if crcs is not None and zlib.crc32(data) != int.from_bytes(crcs[4 * column : 4 * column + 4], "little"):
        raise file.damaged()


def leaves_of(footer: Any, columns: Collection[str]) -> list[int]:
    """The ordinals of the column chunks that these columns are stored in; a nested one has several."""
    whole, nested = frozenset(columns), tuple(f"{c}." for c in columns)
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    return [i for i, path in enumerate(paths) if path in whole or path.startswith(nested)]
