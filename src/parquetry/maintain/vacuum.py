"""Removes what no version and no reader needs: replaced deltas, and leftovers of attempts that never committed.

A replaced delta goes when every pinned reader has moved past the version that replaced it and the grace period is
over. A folder that no delta names goes when it is older than the grace period and no live attempt holds it.
Files go first, then their rows in the catalog, some deltas at a time: a crash between the two leaves rows that the next
vacuum finishes. What else the catalog remembers is trimmed as the retention policy says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from parquetry import failpoints
from parquetry.catalog import Catalog, Reader, Trimmed
from parquetry.catalog.leases import ATTEMPT
from parquetry.model.delta import Delta
from parquetry.storage.delta_writer import delta_directory
from parquetry.storage.store import Store

HOUR_S = 3600.0
_LOOK_S = 60.0
_BATCH_DELTAS = 500  # whose files go before their rows do


@dataclass(frozen=True)
class Vacuumed:
    deltas: int
    orphans: int
    bytes: int
    trimmed: Trimmed
    held_by: Reader | None  # who reads the oldest version, if something that is old enough stays for that
    dry_run: bool


def vacuum(catalog: Catalog, store: Store, *, grace_s: float | None = None, dry_run: bool = False) -> Vacuumed:
    """Removes garbage older than ``grace_s`` seconds, by default as the retention policy says, and trims the catalog
    by that policy; with ``dry_run`` only counts the garbage."""
    kept = catalog.retention()
    before = catalog.now() - (kept.grace_s if grace_s is None else grace_s)
    # From here on nobody can pin a version that needs what goes; a later reader pins a newer one.
    horizon = catalog.lift_horizon(before, dry_run=dry_run)
    # A delta that took files over was committed together with the end of their first one, so that at the horizon
    # either it or the one that took them over from it needs them.
    needed = catalog.referenced_paths(horizon)
    orphans, orphan_bytes = _orphans(catalog, store, before)
    failpoints.reach("vacuum.start")
    deltas = size = 0
    counted: set[str] = set()
    while True:
        replaced = catalog.garbage(horizon, limit=None if dry_run else _BATCH_DELTAS)
        for d in replaced:
            for f in (*d.files, d.index):
                if f.path not in needed and f.path not in counted:
                    size += f.bytes
                    counted.add(f.path)
        deltas += len(replaced)
        if dry_run or not replaced:
            break
        for d in replaced:
            _delete_files(store, d, needed)
            failpoints.reach("vacuum.files")
        catalog.forget([d.delta_id for d in replaced], horizon)
    failpoints.reach("vacuum.rows")
    old_enough = catalog.garbage(catalog.version(), before, 1 + (deltas if dry_run else 0))
    held_by = catalog.oldest_reader() if len(old_enough) > (deltas if dry_run else 0) else None
    if dry_run:
        return Vacuumed(deltas, len(orphans), size + orphan_bytes, Trimmed(), held_by, dry_run=True)
    for path in orphans:
        store.delete(path)
    failpoints.reach("vacuum.orphans")
    return Vacuumed(deltas, len(orphans), size + orphan_bytes, catalog.trim(kept, horizon), held_by, dry_run=False)


def vacuum_hourly(
    catalog: Catalog, store: Store, holder: str, ended: threading.Event, told: Callable[[Exception], None]
) -> None:
    """Vacuums by the retention policy once an hour, whichever of several workers gets to it, until ``ended`` is set.

    Whatever fails is told, and tried again in the next hour.
    """
    while not ended.wait(_LOOK_S):
        try:
            # Never released: until it ends, somebody has done it.
            if catalog.acquire("vacuum", holder, HOUR_S) is not None:
                vacuum(catalog, store)
        except Exception as e:
            told(e)


def _delete_files(store: Store, delta: Delta, needed: Collection[str]) -> None:
    """Removes a delta's folder and the files that it took over, but not those that another delta took over from it."""
    own = delta_directory(delta.table_id, delta.delta_id)
    for path in {f.path for f in (*delta.files, delta.index)} - set(needed):
        if path.rpartition("/")[0] != own:
            store.delete(path)
    left = [path for path, *_ in store.list(own) if path in needed]
    if not left:
        store.delete_dir(own)
        return
    for path, *_ in store.list(own):
        if path not in needed:
            store.delete(path)


def _orphans(catalog: Catalog, store: Store, before: float) -> tuple[list[str], int]:
    """Files that no delta in the catalog names, old enough and not of a live attempt."""
    # Attempts and files are listed before the catalog is asked for deltas: a delta committed in between is then
    # known, never taken for an orphan.
    attempts = catalog.live_resources(ATTEMPT)
    found = store.list()
    known = catalog.known_delta_ids()
    published = catalog.referenced_paths()
    live = {d.delta_id for t in catalog.state().tables.values() for d in t.deltas}
    orphans, size = [], 0
    for path, length, changed in found:
        folder = path.split("/")[1] if path.count("/") == 2 else ""
        # A replaced delta's files are not orphans; a live delta's folder may hold what a slow, retried task left.
        wanted = path in published or (folder in known and folder not in live) or ATTEMPT + folder in attempts
        if folder and not wanted and changed.timestamp() <= before:
            orphans.append(path)
            size += length
    return orphans, size
