"""Answers a query from the cheapest view that can, instead of from its table (NA-46, 3.2-10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from parquetry.errors import ParquetryError
from parquetry.model.freshness import ready, views_over
from parquetry.model.state import TableState
from parquetry.query.bind import BoundQuery, bind
from parquetry.query.local_plan import LocalPlan
from parquetry.query.plan import Plan, TablePlan
from parquetry.query.view_plan import plan_over_view
from parquetry.views.match import Asked, Match, NoMatch, match_view, take_apart
from parquetry.workload.sql_text import parse_query

NAME = "views"
_PRICED = 3  # matching views, the smallest ones, whose cost is looked up in the index


def choose_view(plan: Plan, price: Callable[[Plan], Plan]) -> Plan:
    """The plan over the view with the fewest rows to read, when that is fewer than over the table; else ``plan``.

    ``price`` completes a plan as far as its cost is known from the index: merged or not, and pruned.
    """
    if len(plan.tables) != 1:
        return plan
    (table,) = (t.state for t in plan.tables.values())
    views = views_over(plan.snapshot.state, table)
    if not views:
        return plan
    if NAME in plan.off:
        return plan.decide(NAME, "the table itself", f"rule '{NAME}' is off")
    try:
        asked = take_apart(parse_query(plan.bound.sql), table.readable)
        names = _names(plan.bound, asked)
    except NoMatch as e:
        return plan.decide(NAME, "the table itself", str(e))
    found: list[Match] = []
    refused: list[tuple[str, str]] = []
    for view in views:
        try:
            found.append(match_view(asked, _checked(plan, view)))
        except NoMatch as e:
            refused.append((view.name, str(e)))
    matched: list[tuple[int, Plan, TableState]] = []
    larger: list[tuple[str, str]] = []
    for i, match in enumerate(sorted(found, key=lambda m: _stored_rows(m.view))):
        if i >= _PRICED:
            larger.append((match.view.name, f"{_stored_rows(match.view):,} rows, more than other views that match"))
            continue
        try:
            candidate = price(_over(plan, match, names))
            matched.append((_rows(candidate), candidate, match.view))
        except NoMatch as e:
            refused.append((match.view.name, str(e)))
    own = _rows(price(plan)) if matched else 0
    matched.sort(key=lambda m: (m[0], m[1].bytes_estimate, m[2].name))
    chosen = matched[0] if matched and matched[0][0] < own else None
    base = plan if chosen is None else _over_of(plan, chosen[1])
    if chosen is not None:
        base = base.decide(NAME, f"chosen: {chosen[2].name}", f"{chosen[0]:,} rows to read instead of {own:,}")
    for rows, _, view in matched:
        if chosen is None or view is not chosen[2]:
            other = f"{chosen[2].name} has {chosen[0]:,}" if chosen else f"{table.name} has {own:,}"
            base = base.decide(NAME, f"matched, not chosen: {view.name}", f"{rows:,} rows to read, {other}")
    for name, why in larger:
        base = base.decide(NAME, f"matched, not chosen: {name}", why)
    for name, why in refused:
        base = base.decide(NAME, f"not matched: {name}", why)
    return base


def _checked(plan: Plan, view: TableState) -> TableState:
    if not ready(plan.snapshot.state, view):
        raise NoMatch("it is still being filled")
    return view


def _names(bound: BoundQuery, asked: Asked) -> list[str]:
    """What Spark calls the columns of the query's answer."""
    if isinstance(bound.local, LocalPlan):
        return list(bound.local.schema.names)
    names = []
    for alias, e in asked.items:
        if alias is None and not isinstance(e, exp.Column):
            raise NoMatch(f"Spark's name for the column {e.sql('spark')[:60]} is not certain; give it an alias")
        names.append(alias or e.name)
    return names


def _over(plan: Plan, match: Match, names: list[str]) -> Plan:
    """The plan of the rewritten query, not yet merged or pruned."""
    view = match.view
    (table,) = plan.tables
    rewritten = match.rewrite(names)
    try:
        refs = bind(rewritten, {view.name: view.schema}).refs
    except ParquetryError as e:
        raise NoMatch(f"the rewritten query cannot be bound: {e}") from e
    bound = BoundQuery(rewritten, refs, plan_over_view(match, table, plan.bound.sql))
    reading = TablePlan(view, plan.snapshot.deltas(view), refs, stored=True)
    return replace(plan, bound=bound, tables={view.name: reading}, view=view.name, asked=plan.bound)


def _over_of(plan: Plan, candidate: Plan) -> Plan:
    """``plan`` with the candidate's query and table, and none of what pricing decided."""
    (t,) = candidate.tables.values()
    fresh = TablePlan(t.state, t.deltas, t.refs, stored=True)
    return replace(
        plan, bound=candidate.bound, tables={t.state.name: fresh}, view=candidate.view, asked=candidate.asked
    )


def _stored_rows(view: TableState) -> int:
    return sum(d.rows for d in view.deltas)


def _rows(plan: Plan) -> int:
    return sum(t.rows for t in plan.tables.values())
