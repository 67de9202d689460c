"""Sends a query that lies inside the region of an extra block to that copy, delta by delta (PW-23)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parquetry.layouts.pruning.known_layouts import known_layouts
from parquetry.layouts.pruning.prune import Mask, prune
from parquetry.query.planning.plan import Decision, Plan, TablePlan
from parquetry.query.planning.rule import Rule
from parquetry.query.rules.prune_row_groups import wanted_of
from parquetry.storage.index import Ints
from parquetry.storage.snapshot_index import SnapshotIndex
from parquetry.workload.boxes import to_boxes

NAME = "extra_blocks"


@dataclass(frozen=True, eq=False)
class _Routed:
    """``keep`` reads extra block ``block`` instead of all others in ``deltas`` deltas, and there nothing else."""

    block: int
    keep: Mask
    deltas: int


def _apply(plan: Plan) -> Plan:
    for name, t in plan.tables.items():
        routed = _extra_block(t, plan.off) if t.groups_read else None
        if routed is None:
            continue
        fewer = t.groups_read - int(np.count_nonzero(routed.keep))
        by = {**t.skipped_by, NAME: fewer} if fewer else t.skipped_by
        decided = f"{name}: extra block {routed.block} answers it alone in {routed.deltas} of {len(t.deltas)} deltas"
        why = "the query lies inside its region, and it has fewer rows to read"
        figures = {"block": routed.block, "deltas": routed.deltas, "skipped": fewer}
        plan = plan.with_table(name, replace(t, keep=routed.keep, skipped_by=by))
        plan = plan.decide(Decision(NAME, decided, why, name, figures=figures))
    return plan


EXTRA_BLOCKS = Rule(NAME, "reads the copy of a region that holds all the query wants, if it has fewer rows", _apply)


def _extra_block(t: TablePlan, off: frozenset[str]) -> _Routed | None:
    """The extra block that saves most rows against the normal route; None when none saves any.

    A delta is read by the copy if it was written in this layout with extra blocks, and the copy has fewer rows to read
    in no more row groups; else by the normal route. That is right because each delta by itself has all rows of a region
    in its copy, and because on keyed tables regions are cut on key columns: all versions of a key are inside or none.
    """
    index, keep = t.index, t.keep
    assert index is not None
    assert keep is not None
    layout = next((known for known in known_layouts(t.state) if known.layout_id == t.state.layout_id), None)
    if layout is None or not layout.extra or not index.extra.any():
        return None
    inside = [box for w in wanted_of(t, off) for box in to_boxes(w.predicate, layout.columns).boxes]
    holding = [j for j, region in enumerate(layout.extra) if all(region.covers(box) for box in inside)]
    if not holding:
        return None
    deltas = len(index.tables)
    copied = np.zeros(deltas, bool)
    copied[index.delta[index.extra & (index.layout == layout.layout_id)]] = True
    rows, groups = _per_delta(index, keep)
    best: _Routed | None = None
    most = 0
    for j in holding:
        copy = np.logical_or.reduce([prune(w) for w in wanted_of(t, off, extra=j)])
        copy_rows, copy_groups = _per_delta(index, copy)
        instead = copied & (copy_rows < rows) & (copy_groups <= groups)
        saved = int((rows - copy_rows)[instead].sum())
        if saved > most:
            there = instead[index.delta]
            best, most = _Routed(j, np.where(there, copy, keep), int(instead.sum())), saved
    return best


def _per_delta(index: SnapshotIndex, keep: Mask) -> tuple[Ints, Ints]:
    """The rows and the row groups that are kept of each delta."""
    of, deltas = index.delta[keep], len(index.tables)
    rows = np.bincount(of, index.rows[keep], deltas).astype(np.int64)
    return rows, np.bincount(of, minlength=deltas)
