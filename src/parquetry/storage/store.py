"""All Python I/O on a storage root: a local folder, or any URI that pyarrow.fs understands.

Paths are relative to the root, with ``/``. A file appears under its name only when it is complete, and is never
changed after that.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from parquetry.errors import StorageError
from parquetry.storage.durable import make_folders, sync

_RENAMING = ("local", "hdfs")  # elsewhere an object appears whole when its stream is closed
_READ_BYTES = 8 << 20


def checksum(data: bytes | memoryview) -> str:
    """The checksum of a whole file's bytes, as kept in the catalog.

    >>> checksum(b"abc")
    'crc32:352441c2'
    """
    return _checksum_text(zlib.crc32(data))


def _checksum_text(crc: int) -> str:
    return f"crc32:{crc:08x}"


class Sink:
    """A file being written, for ``write`` or as pyarrow's file object; knows its size and checksum as it grows."""

    def __init__(self, stream: pa.NativeFile, path: str) -> None:
        self._stream = stream
        self._path = path
        self._crc = 0
        self.size = 0
        self.given_up = False  # what buffers still hold is not wanted any more, and must not fail once more

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        view = memoryview(data)
        if self.given_up:
            return view.nbytes
        with _explained(self._path):
            self._stream.write(view)
        self._crc = zlib.crc32(view, self._crc)
        self.size += view.nbytes
        return view.nbytes

    @property
    def checksum(self) -> str:
        return _checksum_text(self._crc)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Closing is the store's: pyarrow's writers call this before they are known to have succeeded."""

    @property
    def closed(self) -> bool:
        return False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class Store:
    """A storage root. Pickles as its address, so executors open their own connections."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") if "://" in root else os.path.abspath(root)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"

    @cached_property
    def _located(self) -> tuple[pafs.FileSystem, str]:
        if "://" not in self.root:
            return pafs.LocalFileSystem(), self.root
        try:
            fs, base = pafs.FileSystem.from_uri(self.root)
        except (OSError, pa.ArrowException, ValueError) as e:
            raise StorageError(
                f"cannot open the storage root '{self.root}': {_first_line(e)}; check its address"
            ) from e
        return fs, base.rstrip("/")

    @property
    def local(self) -> bool:
        return bool(self._located[0].type_name == "local")

    def _full(self, path: str) -> str:
        return f"{self._located[1]}/{_inside(path)}" if path else self._located[1]

    def url(self, path: str) -> str:
        """The address that Spark and DuckDB read: an absolute path for local roots, a URI otherwise."""
        return self._full(path) if self.local else f"{self.root}/{_inside(path)}"

    # -- reading ----------------------------------------------------------------------------------

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes ``[offset, offset + length)`` of a file, all of them or a StorageError."""
        with _explained(path), self._located[0].open_input_file(self._full(path)) as f:
            return _read_at(f, path, offset, f.size() - offset if length is None else length)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Several stretches of a file, each as offset and length: one read each, all of them or a StorageError."""
        with _explained(path), self._located[0].open_input_file(self._full(path)) as f:
            return [_read_at(f, path, offset, length) for offset, length in ranges]

    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable pyarrow file."""
        with _explained(path):
            return self._located[0].open_input_file(self._full(path))

    def checksum_of(self, path: str) -> str:
        """The checksum of a stored file, read in pieces."""
        crc = 0
        with _explained(path), self._located[0].open_input_stream(self._full(path), buffer_size=0) as f:
            while piece := f.read(_READ_BYTES):
                crc = zlib.crc32(piece, crc)
        return _checksum_text(crc)

    def size(self, path: str) -> int:
        info = self._info(path)
        if info.type != pafs.FileType.File:
            raise _missing(path)
        return int(info.size)

    def exists(self, path: str) -> bool:
        return bool(self._info(path).type != pafs.FileType.NotFound)

    def _info(self, path: str) -> pafs.FileInfo:
        with _explained(path):
            return self._located[0].get_file_info(self._full(path))

    def list(self, prefix: str = "") -> list[tuple[str, int, datetime]]:
        """Every file below a folder as (path, size, time of change in UTC), by path; a missing folder is empty."""
        selector = pafs.FileSelector(self._full(prefix), recursive=True, allow_not_found=True)
        with _explained(prefix):
            infos = self._located[0].get_file_info(selector)
        start = len(self._located[1]) + 1
        files = [i for i in infos if i.type == pafs.FileType.File]
        epoch = datetime.fromtimestamp(0, UTC)
        return sorted((i.path[start:], int(i.size), (i.mtime or epoch).astimezone(UTC)) for i in files)

    # -- writing ----------------------------------------------------------------------------------

    def write(self, path: str, data: bytes) -> None:
        """Publishes a file whole: after a failure or a crash it is there complete, or not at all."""
        with self.open_output(path) as sink:
            sink.write(data)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Sink]:
        """A sink that is published when the block ends, and leaves nothing when the block raises."""
        fs, full = self._located[0], self._full(path)
        renaming = fs.type_name in _RENAMING
        folder, _, name = full.rpartition("/")
        target = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp" if renaming else full
        with _explained(path):
            if self.local:
                make_folders(folder)
            elif renaming:
                fs.create_dir(folder, recursive=True)
            stream = fs.open_output_stream(target, buffer_size=0)
        sink = Sink(stream, path)
        try:
            yield sink
            with _explained(path):
                stream.close()
                if renaming:
                    self._publish(target, full)
        except BaseException:
            sink.given_up = True
            with suppress(OSError, pa.ArrowException):
                stream.close()
            with suppress(OSError, pa.ArrowException):
                fs.delete_file(target)
            raise

    def _publish(self, temporary: str, full: str) -> None:
        if not self.local:
            self._located[0].move(temporary, full)
            return
        sync(temporary)
        os.replace(temporary, full)
        sync(os.path.dirname(full))

    def delete(self, path: str) -> None:
        """Removes a file; one that is gone already is no error."""
        with _explained(path), suppress(FileNotFoundError):
            self._located[0].delete_file(self._full(path))

    def delete_dir(self, path: str) -> None:
        """Removes a folder with all in it, never the root itself; one that is gone already is no error."""
        if not path:
            raise _outside(path)
        with _explained(path), suppress(FileNotFoundError):
            self._located[0].delete_dir(self._full(path))


def _inside(path: str) -> str:
    """The path, if it leads to something below the root; catalogs can be damaged, and others may write to them."""
    if path and ("\0" in path or _STEPS_OUT.search(path)):
        raise _outside(path)
    return path


_STEPS_OUT = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")  # a part that is no name: "..", "." or nothing


def _outside(path: str) -> StorageError:
    return StorageError(
        f"the path {path!r} does not lead to a file inside the storage root; nothing was read or removed there. "
        "The catalog is damaged: restore it from a copy"
    )


def _read_at(stream: pa.NativeFile, path: str, offset: int, length: int) -> bytes:
    if offset < 0 or length < 0:
        raise StorageError(
            f"file '{path}' is larger than the catalog says; run 'parquetry verify' to see what is damaged"
        )
    # What the catalog says of a file's size may be damaged: memory is taken only for what is there.
    data: bytes = stream.read_at(min(length, max(0, stream.size() - offset)), offset)
    if len(data) != length:
        raise StorageError(
            f"file '{path}' ends at byte {offset + len(data)}, {length - len(data)} bytes too early; "
            "run 'parquetry verify' to see what is damaged"
        )
    return data


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as e:
        raise _missing(path) from e
    except OSError as e:
        raise explain_os_error(e, path) from e


def explain_os_error(error: OSError, path: str) -> StorageError:
    """What an I/O error means to the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
        return StorageError(
            f"no space left on the storage root while writing '{path}'; nothing was committed; "
            "free space and run the same command again"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"no permission for '{path}'; give this user access and run the same command again")
    return StorageError(f"cannot access '{path}': {_first_line(error)}; check the storage and run the command again")


def _missing(path: str) -> StorageError:
    return StorageError(
        f"file '{path}' is missing from the storage root; run 'parquetry verify' to see what is damaged"
    )


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
