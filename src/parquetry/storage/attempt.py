"""A write attempt's lease: it tells vacuum that the attempt's folder is not garbage, however long the write takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parquetry.catalog import Catalog
from parquetry.catalog.leases import ATTEMPT

_LEASE_S = 120.0


@contextmanager
def attempt(catalog: Catalog, delta_id: str, holder: str) -> Iterator[None]:
    lease = catalog.acquire(ATTEMPT + delta_id, holder[:200], _LEASE_S)
    assert lease is not None, "a delta id is used once"
    with catalog.keep(lease, _LEASE_S):
        yield
