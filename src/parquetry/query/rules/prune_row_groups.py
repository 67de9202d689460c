"""Drops row groups of which a proof shows that they hold no wanted row: a rule for each proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from parquetry.layouts.pruning.known_layouts import known_layouts
from parquetry.layouts.pruning.prune import PROOFS, Mask, Wanted, prune
from parquetry.model.predicate import ANYTHING, And, Anything, Opaque, columns_of, restrict, text_of
from parquetry.query.planning.bind import TableRef
from parquetry.query.planning.plan import Decision, Plan, TablePlan
from parquetry.query.planning.rule import Rule

_MEANINGS = {
    "prune_key": "skips row groups whose range of keys holds no wanted key",
    "prune_minmax": "skips row groups whose smallest and largest values rule the filters out",
    "prune_nulls": "skips row groups whose null counts rule the filters out",
    "prune_region": "skips row groups whose blocks lie outside the filters' part of space",
    "prune_features": "skips row groups none of whose rows satisfies a condition that the layout learned",
    "prune_boxes": "skips row groups by their precise descriptors",
}


def _pruning(name: str) -> Rule:
    proof = PROOFS[name]

    def apply(plan: Plan) -> Plan:
        for table, t in plan.tables.items():
            if t.groups_read:
                plan = _narrowed(plan, name, proof, table, t)
        return plan

    return Rule(name, _MEANINGS[name], apply)


def _narrowed(plan: Plan, name: str, proof: Callable[[Wanted], Mask | None], table: str, t: TablePlan) -> Plan:
    might = [proof(w) for w in wanted_of(t, plan.off)]
    if all(m is None for m in might):
        return plan
    narrowed = t.narrowed(name, [a if b is None else a & b for a, b in zip(t.masks, might, strict=True)])
    if not (skipped := narrowed.skipped_by.get(name, 0)):
        return plan
    decided = f"{table}: {skipped} of {t.groups_total} row groups skipped"
    figures = {"skipped": skipped, "left": narrowed.groups_read, "of": t.groups_total}
    return plan.with_table(table, narrowed).decide(Decision(name, decided, about=table, figures=figures))


PRUNING = tuple(_pruning(name) for name in PROOFS)


def wanted_of(t: TablePlan, off: frozenset[str], extra: int | None = None) -> Iterator[Wanted]:
    """What each reference of the query wants of the table's row groups. A view may show what it does not store."""
    assert t.index is not None
    every = not t.merge and t.state.view is None
    layouts = known_layouts(t.state)
    for ref in t.refs:
        predicate = ref.predicate if every else restrict(ref.predicate, t.usable)
        yield Wanted(t.index, predicate, layouts, usable_opaque(ref, t), extra, off)


def usable_opaque(ref: TableRef, t: TablePlan) -> tuple[Opaque, ...]:
    """The opaque conditions that hold of every stored version of a row."""
    return tuple(o for o in ref.opaque if t.usable.issuperset(o.columns))


def explain_filters(plan: Plan) -> Plan:
    """Adds what each filter would skip by itself, and which could not be used and why."""
    for name, t in plan.tables.items():
        if t.index is None:
            continue
        stored, layouts = set(t.state.schema.names), known_layouts(t.state)
        for ref in t.refs:
            for text in ref.filters:
                plan = plan.decide(Decision("filter", f"{name}: {text}", about=name))
            parts = ref.predicate.parts if isinstance(ref.predicate, And) else (ref.predicate,)
            for part in (p for p in parts if not isinstance(p, Anything)):
                shown = f"{name}: {text_of(part)}"
                why = ""
                if not columns_of(part) <= stored:
                    why = "the view computes the column from what it stores"
                elif not columns_of(part) <= t.usable:
                    why = "a value is known only after merging deltas"
                if why:
                    plan = plan.decide(Decision("skips", f"{shown}: nothing", why, name, "refused"))
                else:
                    plan = _explain_alone(plan, name, shown, t, Wanted(t.index, part, layouts, off=plan.off))
            for o in usable_opaque(ref, t):
                wanted = Wanted(t.index, ANYTHING, layouts, (o,), off=plan.off)
                if int(np.count_nonzero(prune(wanted))) < t.groups_total:
                    plan = _explain_alone(plan, name, f"{name}: {o.text}", t, wanted)
    return plan


def _explain_alone(plan: Plan, table: str, shown: str, t: TablePlan, wanted: Wanted) -> Plan:
    keep, by = wanted.all, {}
    for name in PROOFS:
        might = None if name in wanted.off else PROOFS[name](wanted)
        left = keep if might is None else keep & might
        if skipped := int(np.count_nonzero(keep)) - int(np.count_nonzero(left)):
            by[name] = skipped
        keep = left
    decided = f"{shown}: {sum(by.values())} of {t.groups_total} row groups by itself"
    why = ", ".join(f"{n} by {proof}" for proof, n in by.items())
    return plan.decide(Decision("skips", decided, why, table, figures=by))
