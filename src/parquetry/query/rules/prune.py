"""Drops what cannot match: row groups by key range, min/max and null counts; files that keep no row group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parquetry.layouts.prune import PROOFS, LayoutRegions, prune
from parquetry.layouts.regions import RegionTable, regions
from parquetry.model.layout import layout_from_json
from parquetry.model.predicate import And, Anything, columns_of, restrict, text_of
from parquetry.model.state import TableState
from parquetry.query.plan import Plan, TablePlan
from parquetry.query.rules.extra import NAME as EXTRA_BLOCKS
from parquetry.query.rules.extra import Routed, choose_extra_block
from parquetry.storage.cache import METADATA
from parquetry.storage.snapshot_index import open_snapshot
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
        for ref in t.refs:
            for text in ref.filters:
                plan = plan.decide("filter", f"{name}: {text}")
            parts = ref.predicate.parts if isinstance(ref.predicate, And) else (ref.predicate,)
            for part in parts:
                if isinstance(part, Anything):
                    continue
                shown = f"{name}: {text_of(part)}"
                if t.merge and not columns_of(part) <= set(schema.key):
                    plan = plan.decide("skips", f"{shown}: nothing", "a value is known only after merging deltas")
                    continue
                found = prune(index, part, proofs=proofs, layout=regions_of(t.state))
                total = int(np.count_nonzero(~index.extra))
                skipped = total - int(np.count_nonzero(found.keep))
                by = ", ".join(f"{n} by {proof}" for proof, n in found.skipped_by.items())
                plan = plan.decide("skips", f"{shown}: {skipped} of {total} row groups by itself", by)
    return plan


def _prune_table(
    t: TablePlan, store: Store, proofs: Sequence[str], extra_blocks: bool
) -> tuple[TablePlan, Routed | None]:
    if not t.deltas:
        return t, None
    schema = t.state.schema
    index = open_snapshot(store, t.deltas, schema)
    layout = regions_of(t.state)
    keep, by_statistics = np.zeros(len(index), bool), np.zeros(len(index), bool)
    skipped: dict[str, int] = {}
    predicates = [restrict(r.predicate, frozenset(schema.key)) if t.merge else r.predicate for r in t.refs]
    for predicate in predicates:
        found = prune(index, predicate, proofs=proofs, layout=layout)
        keep |= found.keep
        by_statistics |= found.by_statistics
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
        rows_by_statistics=int(index.rows[by_statistics | keep].sum()),
        skipped_by=skipped,
    )
    return pruned, routed


def regions_of(table: TableState) -> LayoutRegions | None:
    """The regions of the table's current layout, made once per process."""
    if table.layout is None:
        return None
    layout = table.layout

    def load() -> LayoutRegions:
        spec = layout_from_json(layout)
        return LayoutRegions(table.layout_id, spec.columns, RegionTable(regions(spec)), spec.extra)

    return METADATA.get(("regions", table.table_id, table.layout_id, id(layout)), load, lambda r: 200 * r.table.count)
