"""Deltas, and the smallest set of them that answers a read at a timestamp."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from parquetry.errors import CatalogError

EXTRA_FILE = "extra-"
"""How the name of a file with an extra block starts."""


@dataclass(frozen=True)
class StoredFile:
    """A file under the storage root; ``path`` is relative to it. ``checksum`` is ``crc32c``-like text or empty."""

    path: str
    bytes: int
    checksum: str
    rows: int = 0

    @property
    def extra(self) -> bool:
        """Whether it holds an extra block: rows that other files of the delta have as well (PW-22)."""
        return self.path.rpartition("/")[2].startswith(EXTRA_FILE)


@dataclass(frozen=True)
class Delta:
    """An immutable sorted run with a table's changes of the commit timestamps ``[t_lo, t_hi]`` (PP-01)."""

    delta_id: str
    table_id: int
    t_lo: int
    t_hi: int
    level: int  # 0 as ingested; a compaction's output is one above its highest input (PP-03)
    rows: int  # extra blocks left out
    bytes: int  # extra blocks included: what it takes on disk
    schema_id: int
    layout_id: int
    index: StoredFile
    files: tuple[StoredFile, ...]

    @property
    def extra_rows(self) -> int:
        """Rows stored a second time. A delta has all its layout's extra blocks or none of them."""
        return sum(f.rows for f in self.files if f.extra)


def cover(deltas: Iterable[Delta], t: int) -> tuple[Delta, ...]:
    """The deltas that hold exactly the changes of ``[0, t]``, oldest first (PP-04).

    Live deltas of a table never overlap in time, so the smallest cover is all that end at or before ``t``.
    A delta that spans ``t`` cannot be cut: the caller asked for a timestamp that compaction already passed.
    """
    chosen = []
    for d in sorted(deltas, key=lambda d: d.t_lo):
        if d.t_hi <= t:
            chosen.append(d)
        elif d.t_lo <= t:
            raise CatalogError(f"timestamp {t} lies inside the compacted delta [{d.t_lo}, {d.t_hi}]")
    return tuple(chosen)


def queryable_until(deltas: Iterable[Delta], max_query_deltas: int, clock: int) -> int:
    """The largest T whose cover needs at most ``max_query_deltas`` deltas (NA-19…NA-21).

    Timestamps at which a table changed nothing belong to it for free, so T ends right before the first
    hidden delta, or at the catalog's clock when none is hidden.
    """
    ordered = sorted(deltas, key=lambda d: d.t_lo)
    if len(ordered) <= max_query_deltas:
        return clock
    return ordered[max_query_deltas].t_lo - 1
