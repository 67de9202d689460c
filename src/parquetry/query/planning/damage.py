"""Tells a damaged data file from a wrong query when an engine has failed."""

from __future__ import annotations

from parquetry.errors import StorageError
from parquetry.query.planning.plan import Plan
from parquetry.storage.checked_file import footer_of, wrong_size
from parquetry.storage.store import Store


def find_damage(plan: Plan, store: Store) -> StorageError | None:
    """The first file of the plan that is missing, is not as long as the catalog knows it, or has a damaged footer."""
    for t in plan.tables.values():
        for task in t.tasks:
            if wrong := wrong_size(store, task.file):
                return wrong
            checked = None if t.index is None else t.index.file(task.file.path)
            if checked is not None and checked.known and store.local:
                try:
                    footer_of(store, checked)
                except StorageError as e:
                    return e
    return None
