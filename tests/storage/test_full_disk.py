"""A disk that is full under a data file: one error, and nothing else is printed."""

from __future__ import annotations

import errno
import gc
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from parquetry.errors import StorageError
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.storage.store import Store
from parquetry.storage.writer import RunWriter

SCHEMA = TableSchema((Column("k", "int"), Column("s", "string")), ("k",))


class Stream:
    """Of pyarrow's, with room for so many bytes."""

    def __init__(self, real: Any, room: int) -> None:
        self._real, self._room = real, room

    def write(self, data: memoryview) -> None:
        self._room -= data.nbytes
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._real.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize("room", [0, 1_000, 100_000, 200_000])
def test_no_room_is_told_once_and_leaves_nothing(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from parquetry.storage import store as module

    real = module.Sink.__init__
    monkeypatch.setattr(module.Sink, "__init__", lambda self, s, p: real(self, Stream(s, room), p))
    rng = random.Random(1)
    rows = pa.table({"k": pa.array(range(20_000), pa.int32()), "s": [str(rng.random()) for _ in range(20_000)]})
    store = Store(str(tmp_path))
    task = RunWriter(store, "1/x", SCHEMA, Settings(row_group_rows=5_000), None, 0, 0)
    with pytest.raises(StorageError, match="no space left"):
        list(task(iter(rows.to_batches())))
    del task
    gc.collect()
    assert store.list() == []
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "")
