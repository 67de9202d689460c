"""Decides per table whether rows of equal keys from several deltas must be merged (PP-05, NA-54)."""

from __future__ import annotations

from dataclasses import replace

from parquetry.query.compile.plain_select import LocalPlan
from parquetry.query.planning.plan import Plan

NAME = "skip_merge"


def choose_merge(plan: Plan) -> Plan:
    """No merge for append tables and single deltas; lazily none where the query's own aggregates do the merging."""
    for name, t in plan.tables.items():
        schema = t.state.schema
        if not schema.keyed or len(t.deltas) <= 1:
            why = "append tables keep every row" if not schema.keyed else "one delta is merged already"
            plan = plan.decide("merge", f"{name}: no merge", why)
            continue
        lazily, why = False, "the query is not a plain aggregate over one table"
        if t.state.view is not None and t.state.view.spec.hides_rows:
            why = "a later delta may say that a group is gone"
        elif isinstance(plan.bound.local, LocalPlan) and t.state.table_id not in plan.bound.local.joined_ids:
            lazily, why = plan.bound.local.can_skip_merge(schema)
        if lazily and NAME not in plan.off:
            plan = plan.decide(NAME, f"{name}: not merged, {len(t.deltas)} deltas aggregate together", why)
            continue
        tables = {**plan.tables, name: replace(t, merge=True)}
        plan = plan.decide("merge", f"{name}: {len(t.deltas)} deltas merge by key", why, tables=tables)
    return plan
