"""Reads of a file the kept row groups only, where that is sooner done than to read it whole."""

from __future__ import annotations

from dataclasses import replace

from parquetry.query.planning.rule import Rule

PICK_ROW_GROUPS = Rule(
    "pick_row_groups",
    "hands DuckDB the kept row groups of a file, which it could not find by itself",
    lambda plan: replace(plan, picks=plan.executor == "local"),
)
