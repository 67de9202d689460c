"""Answers small queries that are asked often from rows in memory."""

from __future__ import annotations

from parquetry.query.planning.plan import Decision, Plan
from parquetry.query.planning.rule import Rule

NAME = "hold_rows"
_MOST_ROWS = 1 << 19  # that a query reads; several threads are sooner done with more
_MOST_PIECES = 32  # and of how many pieces


def _apply(plan: Plan) -> Plan:
    if plan.executor != "local" or not plan.rows:
        return plan
    pieces = sum(len(t.kept.pieces) for t in plan.tables.values() if t.kept)
    figures = {"rows": plan.rows, "pieces": pieces}
    if plan.rows > _MOST_ROWS or pieces > _MOST_PIECES:
        why = f"{plan.rows:,} rows in {pieces} pieces are too many to be held"
        return plan.decide(Decision(NAME, "from files", why, outcome="refused", figures=figures))
    why = "from the second use on, as far as there is room"
    return plan.decide(Decision(NAME, "from memory, if the rows are there", why, figures=figures), holds=True)


HOLD_ROWS = Rule(NAME, "keeps rows that are asked for often in memory, and answers from there", _apply)
