"""The files of a table that can hold a key that a delta changed: a lookup reads those, not the whole table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.layouts.pruning.prune import Wanted, prune
from parquetry.model.delta import Delta
from parquetry.model.predicate import And, Range
from parquetry.model.state import TableState
from parquetry.model.types import is_float
from parquetry.storage.index_reader import open_index
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.store import Store


def files_near(store: Store, t: TableState, deltas: Sequence[Delta], changed: Sequence[Delta]) -> frozenset[str] | None:
    """The files of ``deltas`` whose keys may lie within the ranges of those in ``changed``; None for all of them."""
    if not deltas or t.schema.null_keys:
        return None
    ranges = []
    for k in t.schema.key:
        arrow = t.schema.column(k).arrow
        if not is_float(arrow):
            low, high = (_extreme(store, changed, kind, k, arrow) for kind in ("min", "max"))
            if low is not None and high is not None:
                ranges.append(Range(k, low, high))
    if not ranges:
        return None
    index = open_snapshot(store, deltas, t.schema)
    keep = prune(Wanted(index, And(tuple(ranges))))
    return frozenset(index.paths[i] for i in np.unique(index.path_of[keep]))


def _extreme(store: Store, deltas: Sequence[Delta], kind: str, column: str, arrow: pa.DataType) -> object:
    found = pa.concat_arrays([open_index(store, d.index).row_groups().stat(kind, column, arrow) for d in deltas])
    if found.null_count:
        return None  # a bound that is not known
    return (pc.min if kind == "min" else pc.max)(found).as_py()
