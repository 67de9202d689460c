"""A write attempt: its lease tells vacuum that its folder is not garbage, and its failure leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from parquetry.catalog import Catalog, LeaseKeeper
from parquetry.catalog.leases import ATTEMPT
from parquetry.errors import CatalogError, StorageError
from parquetry.storage.delta_writer import delta_directory
from parquetry.storage.store import Store

_LEASE_S = 120.0


@contextmanager
def attempt(catalog: Catalog, delta_id: str, holder: str) -> Iterator[LeaseKeeper]:
    """Holds the lease of one write. A commit under it fails if vacuum may have taken the files meanwhile."""
    lease = catalog.acquire(ATTEMPT + delta_id, holder[:200], _LEASE_S)
    assert lease is not None, "a delta id is used once"
    with catalog.keep(lease, _LEASE_S) as kept:
        yield kept


def clean_up(catalog: Catalog, store: Store, table_id: int, delta_id: str) -> None:
    """Removes what a failed attempt wrote, unless it is committed after all, or nobody can tell: vacuum will."""
    with suppress(CatalogError, StorageError):
        settle(catalog)
        if delta_id not in catalog.known_delta_ids():
            store.delete_dir(delta_directory(table_id, delta_id))


def settle(catalog: Catalog) -> None:
    """Returns when every commit before is over, also one whose answer was lost on the way: this one waits for it."""
    catalog.commit([], kind="clean up")
