"""Cuts a plan that Spark runs into even splits for scan workers, where these are expected to be sooner done."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from parquetry.layouts.pruning.features import opaque_conditions
from parquetry.layouts.pruning.known_layouts import known_layouts
from parquetry.layouts.pruning.prune import Mask
from parquetry.model.key_ranges import key_ranges
from parquetry.model.predicate import restrict
from parquetry.query.compile.partials import PartialPlan, plan_in_parts
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.compile.whole import WholeQuery
from parquetry.query.planning.plan import Decision, Plan, TablePlan
from parquetry.query.planning.rule import Rule
from parquetry.query.planning.split_plan import SplitPlan
from parquetry.query.rules.choose_executor import (
    LOCAL_BYTES_PER_CORE_S,
    SPARK_BYTES_PER_CORE_S,
    WORKER_FLOOR_S,
    spark_cores,
)
from parquetry.query.rules.worker_refusals import A_VIEW_ANSWERS, too_small, workers_refuse
from parquetry.splits.assignment import assign, assign_by_delta
from parquetry.splits.cut import Precision, Split, cut_into_splits
from parquetry.splits.delta_index import DeltaIndex
from parquetry.splits.other_orders import KeyOrder, Others, keys_in_order, main_order
from parquetry.splits.ranges import KeyRanges
from parquetry.splits.selection import Wish
from parquetry.splits.shorten_key import shorten_columns
from parquetry.storage.scan.scan import layout_of, must_merge
from parquetry.storage.snapshot_index import SnapshotIndex

NAME = "scan_workers"

# A round of index reads and one node, as bytes that a worker scans in the same time.
_ROUND_BYTES, _NODE_BYTES = 100e3, 10e3


def _apply(plan: Plan) -> Plan:
    """Adds how the query is cut, if Spark runs it."""
    if plan.executor != "spark":
        return plan
    started = time.perf_counter()
    parts, asked = _parts(plan), plan.splits
    if isinstance(parts, Refusal):
        return plan.decide(Decision(NAME, "Spark's own reader", parts.reason, outcome="refused"))
    ((name, t),) = plan.tables.items()
    assert t.index is not None
    assert t.keep is not None
    cores = spark_cores()
    settings = t.state.settings
    if asked is not None:
        wish, precision = Wish(asked), Precision()
    else:
        most = max(cores, math.ceil(plan.bytes_estimate / settings.max_split_bytes))
        wish = Wish(most, min_size=settings.min_split_bytes / t.column_share)
        precision = Precision(round_size=_ROUND_BYTES / t.column_share, node_size=_NODE_BYTES / t.column_share)
    schema = t.state.schema
    order, own = _order(t, t.index, t.keep)
    others = _others(t, t.index, np.flatnonzero(t.keep & ~own).tolist(), order)
    index = DeltaIndex(t.index, t.deltas, plan.store, own)
    shorten = shorten_columns([schema.column(k).arrow for k in schema.key])
    ranges = _ranges(t, t.index, t.keep)
    splits = cut_into_splits(index, ranges, wish, precision, shorten)
    touched = index.rows_touched(ranges)
    if lazily := not t.merge and must_merge(t.state, t.deltas):
        tasks = assign_by_delta(t.index, t.keep, t.deltas, splits.wanted, touched)
    else:
        everything = Split(None, None, 0.0, 0.0, 0.0)
        tasks = assign(splits.splits or [everything], t.index, own, t.deltas, touched, others)
    spent = (time.perf_counter() - started) * 1e3
    decided = f"{name}: {len(tasks)} splits, one task each{', delta by delta' if lazily else ''}"
    why = (
        f"P {wish.splits}{f' for {cores} cores' if asked is None else ' as asked'}, θ {precision.theta:g}, "
        f"{index.nodes_read} index nodes read in {index.rounds_read} rounds, "
        f"estimated skew {splits.skew:.2f}, {spent:.1f} ms"
        f"{f', {len(others)} row groups lie in another order' if others else ''}"
    )
    read = index.rounds_read, index.nodes_read
    scan = SplitPlan(ranges, splits, precision.theta, tuple(tasks), order, parts, *read, spent)
    figures = {"splits": len(tasks), "estimated_skew": splits.skew, "nodes_read": index.nodes_read, "ms": spent}
    return plan.decide(Decision(NAME, decided, why, name, figures=figures), scan=scan)


SCAN_WORKERS = Rule(NAME, "cuts a large scan into even splits, each read by one worker with DuckDB", _apply)


def _parts(plan: Plan) -> PartialPlan | None | Refusal:
    """What workers compute (None: rows), or why Spark's own reader is taken."""
    local, asked = plan.bound.local, plan.splits
    if isinstance(local, Refusal):
        return local
    if isinstance(local, WholeQuery) or local.joined:
        return Refusal("it joins tables, or nests queries")
    (t,) = plan.tables.values()
    if t.stored:
        return A_VIEW_ANSWERS
    if t.index is None or t.keep is None or not t.keep.any():
        return Refusal("there is nothing to read")
    if t.state.view is not None:
        return Refusal("it reads a view")
    if refused := workers_refuse(plan):
        return refused
    if asked is None and not _pays(plan):
        return too_small(plan)
    if unsplittable := _unroutable(t):
        return Refusal(unsplittable)
    parts = plan_in_parts(plan.bound.tree, plan.bound.sql, t.state.name, t.state.readable, local, t.rows)
    if isinstance(parts, PartialPlan):
        return parts
    if asked is None or local.aggregated or local.limit is not None:
        return parts
    return None


def _pays(plan: Plan) -> bool:
    per_core = plan.bytes_estimate / spark_cores()
    return per_core * (1 / SPARK_BYTES_PER_CORE_S - 1 / LOCAL_BYTES_PER_CORE_S) > WORKER_FLOOR_S


def _unroutable(t: TablePlan) -> str:
    """Why workers cannot tell the blocks of the rows of all deltas; empty where they can."""
    used = {d.layout_id for d in t.deltas}
    if not used <= {0, *t.state.layouts, t.state.layout_id}:
        return "a delta has a layout that is no longer known"
    # A worker routes rows of a row group with several blocks, and only Spark evaluates opaque conditions exactly.
    if any(opaque_conditions(spec) for i in used if (spec := layout_of(t.state, i)) is not None):
        return "its layout has conditions that only Spark can route by"
    return ""


def _order(t: TablePlan, index: SnapshotIndex, keep: Mask) -> tuple[KeyOrder, Mask]:
    """The order to cut in, and which row groups lie in it. Where nothing merges, each is cut in its own."""
    if not t.merge:
        return KeyOrder(t.state.layout_id), keep
    return main_order(index, keep, [d.layout_id for d in t.deltas if layout_of(t.state, d.layout_id) is None])


def _others(t: TablePlan, index: SnapshotIndex, groups: Sequence[int], order: KeyOrder) -> Others:
    """The row groups that lie in another order, with the keys that they can have in this one."""
    known = {layout.layout_id: layout.table for layout in known_layouts(t.state)} if groups else {}
    return {g: keys_in_order(index, g, order, known.get(order.layout_id)) for g in groups}


def _ranges(t: TablePlan, index: SnapshotIndex, keep: Mask) -> KeyRanges:
    """The prefix key ranges of the query in every block (PP-13); all keys when its filters give none."""
    schema = t.state.schema
    (ref,) = t.refs
    copies = np.unique(index.block_span[0][index.extra & keep]).tolist()
    found = key_ranges(restrict(ref.predicate, frozenset(schema.key)), schema, [*index.blocks, *copies])
    return KeyRanges.everything() if found is None else KeyRanges(found)
