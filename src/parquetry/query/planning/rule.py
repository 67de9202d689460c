"""Rules: each makes a plan cheaper and leaves its answer as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from parquetry.query.planning.plan import Decision, Plan


@dataclass(frozen=True)
class Rule:
    """``name`` is what ``--off``, ``explain`` and ``stats`` call it; ``meaning`` says what it does in one line."""

    name: str
    meaning: str
    apply: Callable[[Plan], Plan]


def apply_rules(plan: Plan, rules: Iterable[Rule]) -> Plan:
    """The plan after these rules, in their order; those that are off leave it as it is."""
    for rule in rules:
        if rule.name in plan.off:
            plan = plan.decide(Decision(rule.name, "off", outcome="off"))
        else:
            plan = rule.apply(plan)
    return plan
