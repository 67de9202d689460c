"""Why workers on Spark do not run a plan, whichever way it would be dealt to them."""

from __future__ import annotations

from parquetry.query.compile.plain_select import Refusal
from parquetry.query.planning.plan import Plan
from parquetry.storage.scan.duck import ROW_NUMBER

A_VIEW_ANSWERS = Refusal("a view answers it")


def workers_refuse(plan: Plan) -> Refusal | None:
    """Why workers cannot read the tables of the plan; None if they can."""
    if not plan.store.local:
        return Refusal("workers read local storage roots only")
    for name, t in plan.tables.items():
        if ROW_NUMBER in {n.lower() for n in t.state.schema.names}:
            return Refusal(f"a column of {name} is called {ROW_NUMBER}, as workers call the number of a row")
    return None


def too_small(plan: Plan) -> Refusal:
    return Refusal(f"about {plan.bytes_estimate:,} bytes: too few to pay for Python workers")
