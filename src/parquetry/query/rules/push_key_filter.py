"""Filters by key before deltas are merged (NA-47)."""

from __future__ import annotations

from dataclasses import replace

from parquetry.query.compile.plain_select import LocalPlan
from parquetry.query.planning.plan import Decision, Plan
from parquetry.query.planning.rule import Rule

NAME = "push_key_filter"


def _apply(plan: Plan) -> Plan:
    local = plan.bound.local
    if not isinstance(local, LocalPlan):
        return plan
    for name, t in plan.tables.items():
        condition = None if t.state.table_id in local.joined_ids else local.key_filter(t.state.schema)
        if t.merge and condition is not None:
            plan = plan.with_table(name, replace(t, key_filter=condition))
            plan = plan.decide(Decision(NAME, f"{name}: rows are filtered by key before they are merged", about=name))
    return plan


PUSH_KEY_FILTER = Rule(NAME, "applies conditions on the key before rows of several deltas are merged", _apply)
