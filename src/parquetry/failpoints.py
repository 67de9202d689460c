"""Named points at which a test kills the process, to prove that what is on disk survives it."""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "PARQUETRY_FAILPOINT"

FAILPOINTS: tuple[tuple[str, str], ...] = (
    ("commit.in_transaction", "all edits of a commit are applied; the database has not been told to commit"),
    ("commit.done", "the database has committed; the caller has not heard of it"),
    ("ingest.start", "the batch is accepted; nothing is written"),
    ("write.files", "the data files of a delta are written; it has no index"),
    ("write.index", "the index is written; leftovers of retried tasks may be there"),
    ("ingest.before_commit", "the delta is complete on disk; no version names it"),
    ("ingest.committed", "the batch is committed; its attempt's lease is still there"),
    ("compact.start", "a compaction holds its lease; nothing is written"),
    ("compact.before_commit", "the merged delta is complete on disk; the old ones are live"),
    ("compact.committed", "the merged delta is live; the old ones are garbage; the lease is still there"),
    ("relayout.before_commit", "the table is rewritten in its new layout; the old deltas are live"),
    ("view.start", "a view's refresh holds its lease; nothing is written"),
    ("view.before_commit", "the view's delta is complete on disk; no version names it"),
    ("view.committed", "the view has taken in a delta; the lease is still there"),
    ("vacuum.start", "garbage is chosen and the horizon raised; nothing is deleted"),
    ("vacuum.files", "the files of one replaced delta are deleted; its rows are there"),
    ("vacuum.rows", "the rows of all replaced deltas are deleted; orphans are there"),
    ("vacuum.orphans", "everything is deleted"),
)

_reached: Counter[str] = Counter()


def reach(name: str) -> None:
    """Kills this process if PARQUETRY_FAILPOINT is ``name``, or ``name:N`` and this is the N-th time."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    point, _, count = wanted.partition(":")
    known = {known_name for known_name, _ in FAILPOINTS}
    if point not in known or name not in known:
        raise ValueError(f"unknown failpoint '{point if point not in known else name}'; failpoints: {sorted(known)}")
    if point != name:
        return
    _reached[name] += 1
    if _reached[name] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
