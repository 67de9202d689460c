"""Answers small queries that are asked often from rows in memory."""

from __future__ import annotations

from dataclasses import replace

from parquetry.query.planning.rule import Rule

HOLD_ROWS = Rule(
    "hold_rows",
    "keeps rows that are asked for often in memory, and answers from there",
    lambda plan: replace(plan, holds=plan.executor == "local"),
)
