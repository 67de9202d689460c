"""Tells a damaged data file from a wrong query when an engine has failed."""

from __future__ import annotations

from parquetry.errors import StorageError
from parquetry.query.planning.plan import Plan
from parquetry.storage.checked_file import footer_of
from parquetry.storage.store import Store


def find_damage(plan: Plan, store: Store) -> StorageError | None:
    """The first file of the plan that is missing, is not as long as the catalog knows it, or has a damaged footer."""
    for t in plan.tables.values():
        for f in (f for d in t.deltas for f in d.files if f.path in t.files):
            try:
                size = store.size(f.path)
            except StorageError as e:
                return e
            if size != f.bytes:
                return StorageError(
                    f"data file '{f.path}' has {size} bytes instead of {f.bytes}; "
                    "run 'parquetry verify' to see what is damaged, and restore it from a backup"
                )
            checked = None if t.index is None else t.index.file(f.path)
            if checked is not None and checked.known and store.local:
                try:
                    footer_of(store, checked)
                except StorageError as e:
                    return e
    return None
