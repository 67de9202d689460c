"""Sends a query that lies inside the region of an extra block to that copy, delta by delta (PW-23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parquetry.layouts.pruning.prune import LayoutRegions, Mask, prune
from parquetry.model.predicate import Predicate
from parquetry.storage.index import Ints
from parquetry.storage.snapshot_index import SnapshotIndex
from parquetry.workload.boxes import to_boxes

NAME = "extra_blocks"


@dataclass(frozen=True, eq=False)
class Routed:
    """``keep`` reads extra block ``block`` instead of all others in ``deltas`` deltas, and there nothing else."""

    block: int
    keep: Mask
    deltas: int


def choose_extra_block(
    index: SnapshotIndex,
    predicates: Sequence[Predicate],
    keep: Mask,
    layout: LayoutRegions | None,
    proofs: Sequence[str],
) -> Routed | None:
    """The extra block that saves most rows against ``keep``, the normal route; None when none saves any.

    ``predicates`` are those of all references to the table. A delta is read by the copy if it was written in this
    layout with extra blocks, and the copy has fewer rows to read in no more row groups; else by the normal route. That
    is right because each delta by itself has all rows of a region in its copy, and because on keyed tables regions
    are cut on key columns: all versions of a key are inside or none is.
    """
    if layout is None or not layout.extra or not index.extra.any():
        return None
    asked = [box for p in predicates for box in to_boxes(p, layout.columns).boxes]
    holding = [j for j, region in enumerate(layout.extra) if all(region.covers(box) for box in asked)]
    if not holding:
        return None
    deltas = len(index.tables)
    copied = np.zeros(deltas, bool)
    copied[index.delta[index.extra & (index.layout == layout.layout_id)]] = True
    rows, groups = _per_delta(index, keep)
    best: Routed | None = None
    most = 0
    for j in holding:
        copy = np.logical_or.reduce([prune(index, p, proofs=proofs, extra=j).keep for p in predicates])
        copy_rows, copy_groups = _per_delta(index, copy)
        instead = copied & (copy_rows < rows) & (copy_groups <= groups)
        saved = int((rows - copy_rows)[instead].sum())
        if saved > most:
            there = instead[index.delta]
            best, most = Routed(j, np.where(there, copy, keep), int(instead.sum())), saved
    return best


def _per_delta(index: SnapshotIndex, keep: Mask) -> tuple[Ints, Ints]:
    """The rows and the row groups that are kept of each delta."""
    of, deltas = index.delta[keep], len(index.tables)
    rows = np.bincount(of, index.rows[keep], deltas).astype(np.int64)
    return rows, np.bincount(of, minlength=deltas)
