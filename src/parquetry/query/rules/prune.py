"""Drops what cannot match: row groups by key range, min/max and null counts; files that keep no row group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from parquetry.layouts.pruning.features import FeatureTable
from parquetry.layouts.pruning.prune import PROOFS, LayoutRegions, Pruned, prune
from parquetry.layouts.pruning.regions import RegionTable, regions
from parquetry.model.layout import layout_from_json
from parquetry.model.predicate import ANYTHING, And, Anything, Opaque, columns_of, restrict, text_of
from parquetry.model.state import TableState
from parquetry.query.planning.bind import TableRef
from parquetry.query.planning.plan import Plan, TablePlan
from parquetry.query.rules.extra import NAME as EXTRA_BLOCKS
from parquetry.query.rules.extra import Routed, choose_extra_block
from parquetry.storage.cache import METADATA
from parquetry.storage.snapshot_index import SnapshotIndex, open_snapshot
from parquetry.storage.store import Store


def rule_name(proof: str) -> str:
    return f"prune_{proof}"


def prune_tables(plan: Plan, store: Store) -> Plan:
    """Keeps of every table what some reference to it in the query might need."""
    proofs = [p for p in PROOFS if rule_name(p) not in plan.off]
    for name, t in plan.tables.items():
        pruned, extra = _prune_table(t, store, proofs, EXTRA_BLOCKS not in plan.off)
        by = ", ".join(f"{n} by {proof}" for proof, n in pruned.skipped_by.items())
        files = f"{len(pruned.files)} of {t.files_total} files"
        decided = f"{name}: {pruned.groups_read} of {pruned.groups_total} row groups, {files}"
        plan = plan.decide("prune", decided, f"skipped {by}" if by else "", tables={**plan.tables, name: pruned})
        if extra is not None:
            alone = f"{name}: extra block {extra.block} answers it alone in {extra.deltas} of {len(t.deltas)} deltas"
            plan = plan.decide(EXTRA_BLOCKS, alone, "the query lies inside its region, and it has fewer rows to read")
    return plan


def explain_filters(plan: Plan, store: Store) -> Plan:
    """Adds what each filter would skip by itself, and which could not be used and why."""
    proofs = [p for p in PROOFS if rule_name(p) not in plan.off]
    for name, t in plan.tables.items():
        if not t.deltas:
            continue
        schema = t.state.schema
        index = open_snapshot(store, t.deltas, schema)
        look = partial(prune, index, proofs=proofs, layout=regions_of(t.state), older=older_regions(t.state))
        for ref in t.refs:
            for text in ref.filters:
                plan = plan.decide("filter", f"{name}: {text}")
            parts = ref.predicate.parts if isinstance(ref.predicate, And) else (ref.predicate,)
            for part in parts:
                if isinstance(part, Anything):
                    continue
                shown = f"{name}: {text_of(part)}"
                if not columns_of(part) <= set(schema.names):
                    plan = plan.decide("skips", f"{shown}: nothing", "the view computes the column from what it stores")
                    continue
                if t.merge and not columns_of(part) <= set(schema.key):
                    plan = plan.decide("skips", f"{shown}: nothing", "a value is known only after merging deltas")
                    continue
                plan = _explain_alone(plan, shown, index, look(part))
            for o in usable_opaque(ref, t):
                found = look(ANYTHING, opaque=(o,))
                plan = _explain_alone(plan, f"{name}: {o.text}", index, found) if found.skipped_by else plan
    return plan


def _explain_alone(plan: Plan, shown: str, index: SnapshotIndex, found: Pruned) -> Plan:
    total = int(np.count_nonzero(~index.extra))
    skipped = total - int(np.count_nonzero(found.keep))
    by = ", ".join(f"{n} by {proof}" for proof, n in found.skipped_by.items())
    return plan.decide("skips", f"{shown}: {skipped} of {total} row groups by itself", by)


def usable_opaque(ref: TableRef, t: TablePlan) -> tuple[Opaque, ...]:
    """The opaque conditions that hold of every stored version of a row."""
    schema = t.state.schema
    stored = set(schema.key if t.merge else schema.names)
    return tuple(o for o in ref.opaque if set(o.columns) <= stored)


def _prune_table(
    t: TablePlan, store: Store, proofs: Sequence[str], extra_blocks: bool
) -> tuple[TablePlan, Routed | None]:
    if not t.deltas:
        return t, None
    schema = t.state.schema
    index = open_snapshot(store, t.deltas, schema)
    layout = regions_of(t.state)
    keep = np.zeros(len(index), bool)
    skipped: dict[str, int] = {}
    # A view may show columns that it does not store.
    usable = frozenset(schema.key if t.merge else schema.names) if t.merge or t.state.view is not None else None
    predicates = [r.predicate if usable is None else restrict(r.predicate, usable) for r in t.refs]
    for ref, predicate in zip(t.refs, predicates, strict=True):
        opaque = usable_opaque(ref, t)
        found = prune(index, predicate, proofs=proofs, layout=layout, older=older_regions(t.state), opaque=opaque)
        keep |= found.keep
        skipped = found.skipped_by if len(t.refs) == 1 else {}
    total, kept = int(np.count_nonzero(~index.extra)), int(np.count_nonzero(keep))
    if len(t.refs) > 1 and kept < total:
        skipped = {"all references": total - kept}
    routed = choose_extra_block(index, predicates, keep, layout, proofs) if extra_blocks else None
    if routed is not None:
        keep = routed.keep
        fewer = kept - int(np.count_nonzero(keep))
        skipped = {**skipped, **({"extra": fewer} if fewer else {})}
    pruned = replace(
        t,
        groups_total=total,
        groups_read=int(np.count_nonzero(keep)),
        rows=int(index.rows[keep].sum()),
        bytes=int(index.bytes[keep].sum()),
        files=frozenset(index.paths[i] for i in np.unique(index.path_of[keep])),
        index=index,
        keep=keep,
        skipped_by=skipped,
    )
    return pruned, routed


def regions_of(table: TableState) -> LayoutRegions | None:
    """What is known of the blocks of the table's current layout, made once per process."""
    return None if table.layout is None else _regions(table, table.layout_id, table.layout)


def older_regions(table: TableState) -> list[LayoutRegions]:
    """The same of the layouts that some deltas still have from before (3.4-10)."""
    return [_regions(table, layout_id, spec) for layout_id, spec in table.layouts.items()]


def _regions(table: TableState, layout_id: int, layout: Mapping[str, Any]) -> LayoutRegions:
    def load() -> tuple[Mapping[str, Any], LayoutRegions]:
        spec = layout_from_json(layout)
        features = FeatureTable(spec)
        known = features if features.features else None
        return layout, LayoutRegions(layout_id, spec.columns, RegionTable(regions(spec)), spec.extra, known)

    # The spec is kept beside its regions: another warehouse's could get the number of a freed one.
    key = ("regions", table.table_id, layout_id, id(layout))
    return METADATA.get(key, load, lambda r: 200 * r[1].table.count)[1]
