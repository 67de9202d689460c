"""What every refusal promises: the right error, on one line, naming what is wrong; and a warehouse left as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parquetry.errors import ParquetryError
from parquetry.warehouse import Warehouse


def fingerprint(wh: Warehouse) -> tuple[Any, ...]:
    """All that an ingest could change: the catalog's state, who holds leases, and every file with its size."""
    files = [(path, size) for path, size, _ in wh.store.list()]
    return wh.catalog.version(), wh.catalog.state(), wh.catalog.live_resources(""), files


def refused(wh: Warehouse, act: Callable[[], Any], kind: type[ParquetryError], *words: str) -> ParquetryError:
    """Sees ``act`` refused with an error of ``kind`` whose one line has all ``words``, and nothing changed by it."""
    before = fingerprint(wh)
    with pytest.raises(ParquetryError) as caught:
        act()
    one_line(caught.value, kind, *words)
    assert fingerprint(wh) == before
    return caught.value


def one_line(error: ParquetryError, kind: type[ParquetryError], *words: str) -> None:
    said = str(error)
    assert type(error) is kind, said
    assert "\n" not in said
    assert len(said) < 700
    assert "Traceback" not in said
    assert "SQLSTATE" not in said
    for word in words:
        assert word in said, f"{word!r} is not in {said!r}"
