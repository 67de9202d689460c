"""Removes what no version and no reader needs: replaced deltas, and leftovers of attempts that never committed.

A replaced delta goes when every pinned reader has moved past the version that replaced it and the grace period is
over. A folder that no delta names goes when it is older than the grace period and no live attempt holds it.
Files go first, then their rows in the catalog: a crash between the two leaves rows that the next vacuum finishes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from parquetry import failpoints
from parquetry.catalog import Catalog
from parquetry.catalog.leases import ATTEMPT
from parquetry.model.delta import Delta
from parquetry.storage.delta_writer import delta_directory
from parquetry.storage.store import Store

DEFAULT_GRACE_S = 24 * 3600.0


@dataclass(frozen=True)
class Vacuumed:
    deltas: int
    orphans: int
    bytes: int
    dry_run: bool


def vacuum(catalog: Catalog, store: Store, *, grace_s: float = DEFAULT_GRACE_S, dry_run: bool = False) -> Vacuumed:
    """Removes garbage older than ``grace_s`` seconds; with ``dry_run`` only counts it."""
    before = catalog.now() - grace_s
    # What is pinned is read once, before anything is chosen: a later reader pins the present version or a newer one.
    version = catalog.version()
    pinned = catalog.oldest_pinned()
    horizon = version if pinned is None else min(version, pinned)
    replaced = catalog.garbage(horizon, before)
    # Read after what is garbage: a delta that took files over was committed together with the end of their first one.
    needed = catalog.referenced_paths(besides={d.delta_id for d in replaced}) if replaced else set()
    size = sum({f.path: f.bytes for d in replaced for f in (*d.files, d.index) if f.path not in needed}.values())
    orphans, orphan_bytes = _orphans(catalog, store, before)
    if dry_run:
        return Vacuumed(len(replaced), len(orphans), size + orphan_bytes, dry_run=True)
    if replaced:
        catalog.raise_horizon(horizon)  # from here on nobody can pin a version that needs these deltas
    failpoints.reach("vacuum.start")
    for d in replaced:
        _delete_files(store, d, needed)
        failpoints.reach("vacuum.files")
    if replaced:
        catalog.forget([d.delta_id for d in replaced], horizon)
    failpoints.reach("vacuum.rows")
    for path in orphans:
        store.delete(path)
    failpoints.reach("vacuum.orphans")
    return Vacuumed(len(replaced), len(orphans), size + orphan_bytes, dry_run=False)


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
