"""Checks what must always hold: files as the catalog knows them, indexes that add up, deltas that do not overlap."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from parquetry.catalog import Catalog
from parquetry.errors import CatalogError, StorageError
from parquetry.model.delta import Delta, StoredFile, cover
from parquetry.model.layout import EXTRA_BASE
from parquetry.model.state import State, TableState
from parquetry.storage.index_reader import IndexReader
from parquetry.storage.store import Store

_READERS = 8


@dataclass(frozen=True)
class Problem:
    table: str
    what: str


def verify(catalog: Catalog, store: Store, *, quick: bool) -> list[Problem]:
    """Every violation found, none when all is well."""
    state = catalog.state()
    problems = _state_problems(state)
    work = [(t.name, d) for t in state.tables.values() for d in t.deltas]
    with ThreadPoolExecutor(_READERS) as readers:
        for (name, _), found in zip(
            work, readers.map(lambda w: _delta_problems(store, w[1], quick), work), strict=True
        ):
            problems += [Problem(name, what) for what in found]
    return problems


def _state_problems(state: State) -> list[Problem]:
    problems = []
    for t in state.tables.values():
        for before, after in zip(t.deltas, t.deltas[1:], strict=False):
            if after.t_lo <= before.t_hi:
                problems.append(Problem(t.name, f"deltas {before.delta_id} and {after.delta_id} overlap in time"))
        problems += _qt_problems(state, t)
    return problems


def _qt_problems(state: State, t: TableState) -> list[Problem]:
    try:
        cover(t.deltas, state.qt)
    except CatalogError as e:
        return [Problem(t.name, f"the QT cannot be read: {e}")]
    return []


def _delta_problems(store: Store, delta: Delta, quick: bool) -> list[str]:
    problems = []
    for f in (*delta.files, delta.index):
        problem = _file_problem(store, f, quick)
        if problem:
            problems.append(problem)
    if problems:
        return problems
    try:
        # Not through the cache: what is on the disk counts.
        index = IndexReader(
            lambda at, n: store.read(delta.index.path, at, n), delta.index.bytes, checksum=delta.index.checksum
        )
        groups = index.row_groups()
    except StorageError as e:
        return [e.what]
    stored = delta.rows + delta.extra_rows
    if int(groups.rows.sum()) != stored or index.root.rows != stored:
        problems.append(f"the index of delta {delta.delta_id} counts {index.root.rows} rows, the catalog {stored}")
    extra = np.asarray(groups.batch["block"]) >= EXTRA_BASE
    files = groups.batch["file"].to_pylist()
    if max(files, default=-1) >= len(delta.files):
        problems.append(f"delta {delta.delta_id} has fewer files than its index names")
    elif any(delta.files[f].extra != e for f, e in zip(files, extra.tolist(), strict=True)):
        problems.append(f"delta {delta.delta_id} mixes extra blocks and others in a file")
    if groups.starts != sorted(groups.starts):
        problems.append(f"the index of delta {delta.delta_id} is out of order")
    return problems


def _file_problem(store: Store, f: StoredFile, quick: bool) -> str | None:
    try:
        if store.size(f.path) != f.bytes:
            return f"file '{f.path}' has {store.size(f.path)} bytes instead of {f.bytes}"
        if not quick and store.checksum_of(f.path) != f.checksum:
            return f"file '{f.path}' does not match its checksum"
    except StorageError as e:
        return e.what
    return None
