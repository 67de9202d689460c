"""Work on a table under its lease: the deltas that it writes are committed together, or removed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from parquetry.catalog import Catalog, Lease, LeaseKeeper
from parquetry.errors import ParquetryError
from parquetry.model.state import Commit, Edit, TableState
from parquetry.storage.delta_writer import new_delta_id
from parquetry.storage.explain_failure import explain_failure
from parquetry.storage.store import Store
from parquetry.storage.write_attempt import attempt, clean_up

LEASE_S = 60.0
REWRITE, REFRESH, TURN = "rewrite", "refresh", "turn"
"""What a table's leases are for. Who holds the last is the next to rewrite the table: compactions let it pass."""
_ASK_S = 0.1  # how often another's lease is looked at

Waiting = Callable[[str], None]


class LeasedWork:
    def __init__(self, catalog: Catalog, holder: str, kept: LeaseKeeper, attempts: ExitStack) -> None:
        self._catalog, self._holder, self._kept, self._attempts = catalog, holder, kept, attempts
        self.made: list[str] = []

    def new_delta(self) -> str:
        """The id of a delta to write. Vacuum leaves its files alone until the work has ended."""
        delta_id = new_delta_id()
        self._attempts.enter_context(attempt(self._catalog, delta_id, self._holder))
        self.made.append(delta_id)
        return delta_id

    def commit(self, edits: Sequence[Edit], kind: str, detail: Mapping[str, Any]) -> Commit:
        """Commits, unless the lease was lost meanwhile."""
        return self._catalog.commit(edits, kind=kind, lease=self._kept.lease, detail=detail)


@contextmanager
def under_lease(
    what: str, catalog: Catalog, store: Store, table: TableState, holder: str, waiting: Waiting | None = None
) -> Iterator[LeasedWork | None]:
    """Holds the table's lease for ``what``. While another worker holds it, it is waited for, which is told to
    ``waiting``; without that, None.

    What fails inside leaves nothing behind, and Spark's failures come out as errors of one line.
    """
    resource = f"{what}:{table.table_id}"
    lease = catalog.acquire(resource, holder, LEASE_S)
    if lease is None and waiting is not None:
        lease = _waited_for(catalog, resource, holder, waiting)
    if lease is None:
        yield None
        return
    with catalog.keep(lease, LEASE_S) as kept, ExitStack() as attempts:
        work = LeasedWork(catalog, holder, kept, attempts)
        try:
            yield work
        except BaseException as e:
            for delta_id in work.made:
                clean_up(catalog, store, table.table_id, delta_id)
            if isinstance(e, ParquetryError) or not isinstance(e, Exception):
                raise
            raise explain_failure(e, table.name) from e


def _waited_for(catalog: Catalog, resource: str, holder: str, waiting: Waiting) -> Lease:
    waiting(f"waiting for {catalog.at_work(resource).get(resource, 'another worker')} to finish")
    while (lease := catalog.acquire(resource, holder, LEASE_S)) is None:
        while resource in catalog.at_work(resource):
            time.sleep(_ASK_S)
    return lease


def taken_by(catalog: Catalog, *whats: str) -> dict[int, str]:
    """Who is at work on which table, or next in turn."""
    leases = [item for what in whats or (TURN, REFRESH, REWRITE) for item in catalog.at_work(f"{what}:").items()]
    return {int(resource.rpartition(":")[2]): who for resource, who in leases}
