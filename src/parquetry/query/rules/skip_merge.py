"""Leaves rows of equal keys unmerged where the query's own aggregates do the merging (PP-05, NA-54)."""

from __future__ import annotations

from dataclasses import replace

from parquetry.query.compile.plain_select import LocalPlan
from parquetry.query.planning.plan import Decision, Plan, TablePlan
from parquetry.query.planning.rule import Rule

NAME = "skip_merge"


def _apply(plan: Plan) -> Plan:
    for name, t in plan.tables.items():
        if not t.merge:
            continue
        lazily, why = _lazily(plan, t)
        if lazily:
            decided = f"{name}: not merged, {len(t.deltas)} deltas aggregate together"
            plan = plan.with_table(name, replace(t, merge=False)).decide(Decision(NAME, decided, why, name))
        else:
            decided = f"{name}: {len(t.deltas)} deltas merge by key"
            plan = plan.decide(Decision(NAME, decided, why, name, "refused", {"deltas": len(t.deltas)}))
    return plan


def _lazily(plan: Plan, t: TablePlan) -> tuple[bool, str]:
    if t.state.view is not None and t.state.view.spec.hides_rows:
        return False, "a later delta may say that a group is gone"
    local = plan.bound.local
    if isinstance(local, LocalPlan) and t.state.table_id not in local.joined_ids:
        return local.can_skip_merge(t.state.schema)
    return False, "the query is not a plain aggregate over one table"


SKIP_MERGE = Rule(NAME, "leaves equal keys of several deltas unmerged where the query's aggregates merge them", _apply)
