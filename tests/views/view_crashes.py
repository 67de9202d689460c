"""Crashes without the cost of a process: from a failpoint on, a connection can change nothing any more.

What it leaves is what a killed process leaves, files, leases and pins and all; tests/faults kills real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from unittest import mock

import sqlalchemy as sa

from parquetry import failpoints
from parquetry.catalog import tables as sql
from parquetry.errors import CatalogError
from parquetry.failpoints import FAILPOINTS
from parquetry.warehouse import Warehouse

_COMMIT = ("commit.in_transaction", "commit.done")
_WRITE = ("write.files", "write.index")


def _named(prefix: str) -> tuple[str, ...]:
    return tuple(name for name, _ in FAILPOINTS if name.startswith(prefix))


CRASHES = [
    (operation, point)
    for operation, points in {
        "ingest": (*_COMMIT, *_WRITE, *_named("ingest.")),
        "maintain": (*_COMMIT, *_WRITE, *_named("compact."), *_named("view.")),
        "create": _COMMIT,
        "drop": _COMMIT,
        "relayout": (*_COMMIT, *_named("relayout.")),
        "vacuum": _named("vacuum."),
    }.items()
    for point in points
]
"""What may stop where: every failpoint, those of a commit and of writing files under all that comes by there."""
COMMITTED = {"commit.done", "ingest.committed"}


class Died(BaseException):
    """Ends the work of a connection, as no error would."""


@contextmanager
def dying(wh: Warehouse, point: str, times: int = 1) -> Iterator[list[str]]:
    """Stops the block when it comes by ``point`` for the n-th time; gives a list that is empty unless it did."""
    met: list[str] = []
    left = times

    def reach(name: str) -> None:
        nonlocal left
        left -= name == point
        if name == point and left == 0:
            met.append(name)
            wh.catalog._db.write = _gone  # type: ignore[method-assign]
            raise Died

    with mock.patch.object(failpoints, "reach", reach):
        try:
            yield met
        except Died:
            pass


def _gone(*, durable: bool = True) -> NoReturn:
    raise CatalogError("the dead change nothing")


def end_leases(wh: Warehouse) -> None:
    """As if two minutes had passed since somebody died."""
    with wh.catalog._db.write() as conn:
        for table in (sql.leases, sql.pins):
            conn.execute(table.update().values(expires_at=sa.literal(0.0)))


def share(number: int, of: int) -> list[tuple[str, str]]:
    """The crashes for the ``number``-th of several machines, which meet all of them together."""
    return CRASHES[number % of :: of]
