"""Reads of a file the kept row groups only, where that is sooner done than to read it whole."""

from __future__ import annotations

from parquetry.query.planning.plan import Decision, Plan
from parquetry.query.planning.rule import Rule

NAME = "pick_row_groups"


def _apply(plan: Plan) -> Plan:
    if plan.in_workers or not plan.rows:
        return plan
    tables = plan.tables.values()
    figures = {"row_groups": sum(t.groups_read for t in tables), "of": sum(t.groups_total for t in tables)}
    how = "of each file the soonest way" if plan.executor == "local" else "by their numbers"
    decided = f"{figures['row_groups']} of {figures['of']} row groups, {how}"
    return plan.decide(Decision(NAME, decided, figures=figures), picks=True)


PICK_ROW_GROUPS = Rule(NAME, "reads of a file the kept row groups, which DuckDB and Spark would not find", _apply)
