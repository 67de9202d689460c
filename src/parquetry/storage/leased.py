"""Work on a table under its lease: the deltas that it writes are committed together, or removed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from parquetry.catalog import Catalog, LeaseKeeper
from parquetry.errors import ParquetryError
from parquetry.model.state import Commit, Edit, TableState
from parquetry.storage.attempt import attempt, clean_up
from parquetry.storage.delta_writer import new_delta_id
from parquetry.storage.failure import explain_failure
from parquetry.storage.store import Store

_LEASE_S = 60.0


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
    what: str, catalog: Catalog, store: Store, table: TableState, holder: str
) -> Iterator[LeasedWork | None]:
    """Holds the table's lease for ``what``; None when another worker holds it.

    What fails inside leaves nothing behind, and Spark's failures come out as errors of one line.
    """
    lease = catalog.acquire(f"{what}:{table.table_id}", holder, _LEASE_S)
    if lease is None:
        yield None
        return
    with catalog.keep(lease, _LEASE_S) as kept, ExitStack() as attempts:
        work = LeasedWork(catalog, holder, kept, attempts)
        try:
            yield work
        except BaseException as e:
            for delta_id in work.made:
                clean_up(catalog, store, table.table_id, delta_id)
            if isinstance(e, ParquetryError) or not isinstance(e, Exception):
                raise
            raise explain_failure(e, table.name) from e
