"""Answers a query from the cheapest view that can, instead of from its tables (NA-46, 3.2-10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from parquetry.model.schema import TableSchema
from parquetry.model.state import TableState
from parquetry.query.compile.over_view import plan_over_view
from parquetry.query.compile.plain_select import LocalPlan, Refusal
from parquetry.query.planning.bind import BoundQuery, TableRef, table_refs
from parquetry.query.planning.plan import Decision, Plan, read_whole
from parquetry.query.planning.rule import Rule, apply_rules
from parquetry.query.planning.snapshots import ViewOver
from parquetry.query.rules.extra_blocks import EXTRA_BLOCKS
from parquetry.query.rules.prune_join import PRUNE_JOIN
from parquetry.query.rules.prune_row_groups import PRUNING
from parquetry.query.rules.skip_merge import SKIP_MERGE
from parquetry.views.asked import Asked, NoMatch, shown, take_apart, written
from parquetry.views.match import Match, match_view
from parquetry.views.normalize import text_of
from parquetry.views.rewrite import as_text, conditions, rewrite, source
from parquetry.workload.plain_select import NotPlain
from parquetry.workload.predicates import predicate
from parquetry.workload.simplify import both

NAME = "views"
_PRICED = 3  # matching views, the smallest ones, whose cost is looked up in the index

PRICING = (SKIP_MERGE, *PRUNING, PRUNE_JOIN, EXTRA_BLOCKS)
"""The rules after which a plan's cost is known from the index."""


@dataclass(frozen=True)
class _Candidate:
    view: TableState
    match: Match
    rows: int  # to read


def _apply(plan: Plan) -> Plan:
    """The query over the view with the fewest rows to read, when those are fewer than the tables'; else as it is.

    The plan is priced already; one over a view is priced here, in the same way.
    """
    views = list(dict.fromkeys(v for t in plan.tables.values() for v in plan.snapshot.views_over(t.state)))
    if not views:
        return plan
    itself = "the table itself" if len(plan.tables) == 1 else "the tables themselves"
    asked = _asked(plan)
    if isinstance(asked, NoMatch):
        return plan.decide(Decision(NAME, itself, str(asked), outcome="refused"))
    found, told = _matches(plan, asked, views)
    candidates = [
        _Candidate(v.view, match, v.rows if v.whole else apply_rules(_read_by(plan, v.view, match), PRICING).rows)
        for v, match in found[:_PRICED]
    ]
    candidates.sort(key=lambda c: (c.rows, c.view.name))
    least = plan.rows
    chosen: tuple[_Candidate, Plan] | None = None
    for c in candidates:
        figures = {"rows": c.rows, "instead_of": least}
        if chosen is not None or c.rows >= least:
            other = f"{chosen[0].view.name} has {chosen[0].rows:,}" if chosen else f"{itself} {least:,}"
            why = f"{c.rows:,} rows to read, {other}"
            told.append(Decision(NAME, f"matched, not chosen: {c.view.name}", why, c.view.name, "considered", figures))
            continue
        try:
            chosen = c, _over(plan, c.view, c.match)
            why = f"{c.rows:,} rows to read instead of {least:,}"
            told.insert(0, Decision(NAME, f"chosen: {c.view.name}", why, c.view.name, figures=figures))
        except NoMatch as e:
            told.append(Decision(NAME, f"not matched: {c.view.name}", str(e), c.view.name, "refused"))
    for v, _ in found[_PRICED:]:
        why = f"{v.rows:,} rows, more than others that match"
        figures = {"rows": v.rows}
        told.append(Decision(NAME, f"matched, not chosen: {v.view.name}", why, v.view.name, "considered", figures))
    if chosen is None:
        return replace(plan, decisions=(*plan.decisions, *told))
    # What was decided about the tables is no longer of interest.
    return apply_rules(replace(chosen[1], decisions=(plan.decisions[0], *told)), PRICING)


VIEWS = Rule(NAME, "answers from the view with the fewest rows to read", _apply)


def _asked(plan: Plan) -> Asked | NoMatch:
    named = {t.state.name.lower(): (t.state.table_id, t.state.readable) for t in plan.tables.values()}

    def find() -> Asked | NoMatch:
        if plan.bound.tree is None or plan.bound.doubt:
            return NoMatch(plan.bound.doubt)
        try:
            return take_apart(plan.bound.tree.copy(), named)
        except NotPlain as e:
            return NoMatch(str(e))  # without the frames that it came through: they hold the snapshot

    return plan.bound.once(NAME, find)


def _matches(
    plan: Plan, asked: Asked, views: Sequence[ViewOver]
) -> tuple[list[tuple[ViewOver, Match]], list[Decision]]:
    """The views that can answer the query, the smallest first, and why others cannot."""

    def find(view: TableState) -> Match | NoMatch:
        try:
            return match_view(asked, view)
        except NoMatch as e:
            return NoMatch(str(e))  # without the frames that it came through: they hold the snapshot

    found, told = [], []
    for v in views:
        match = plan.bound.once((NAME, v.view.table_id), partial(find, v.view))
        if not v.ready:
            match = NoMatch("it is still being filled")
        if isinstance(match, NoMatch):
            told.append(Decision(NAME, f"not matched: {v.view.name}", str(match), v.view.name, "refused"))
        else:
            found.append((v, match))
    return sorted(found, key=lambda f: (f[0].rows, f[0].view.name)), told


def _read_by(plan: Plan, view: TableState, match: Match) -> Plan:
    """What the query reads over the view, without what it makes of it: enough to price it."""
    return _with_tables(plan, view, match, plan.bound.once((NAME, view.table_id, "read"), lambda: _reads(plan, match)))


def _reads(plan: Plan, match: Match) -> tuple[TableRef, ...]:
    if match.others:
        return table_refs(source(match), _schemas(plan, match))
    types = {c.name: c.type for c in match.view.schema.columns}
    wanted = both([predicate(c, types) for c in conditions(match)])
    return (TableRef(match.view.name, match.view.name, (), wanted, ()),)


def _over(plan: Plan, view: TableState, match: Match) -> Plan:
    """The plan of the rewritten query, not yet merged or pruned."""

    def find() -> BoundQuery | NoMatch:
        try:
            return _rewritten(plan, match)
        except NoMatch as e:
            return NoMatch(str(e))  # without the frames that it came through: they hold the snapshot

    bound = plan.bound.once((NAME, view.table_id, "over"), find)
    if isinstance(bound, NoMatch):
        raise NoMatch(str(bound))
    return replace(_with_tables(plan, view, match, bound.refs), bound=bound, view=view.name, asked=plan.bound)


def _rewritten(plan: Plan, match: Match) -> BoundQuery:
    local = plan_over_view(match, plan.bound.sql)
    if isinstance(local, Refusal) and not isinstance(plan.bound.local, Refusal):
        raise NoMatch(f"only Spark can read the answer from it: {local.reason}")
    names = _names(local, match.asked)
    if isinstance(local, LocalPlan):
        refs = tuple(_with_columns(r, match, local) for r in table_refs(source(match), _schemas(plan, match)))
    else:
        refs = table_refs(rewrite(match, names), _schemas(plan, match))
    return BoundQuery(lambda: as_text(rewrite(match, names)), refs, local)


def _with_columns(ref: TableRef, match: Match, local: LocalPlan) -> TableRef:
    """The reference with the columns that the local plan reads."""
    if ref.table == match.view.name:
        return replace(ref, columns=local.columns)
    (other,) = (s for s in match.others if s.table.lower() == ref.table.lower())
    (joined,) = (j for j in local.joined if j.table_id == other.table_id)
    return replace(ref, columns=tuple(c for c, _ in joined.columns))


def _with_tables(plan: Plan, view: TableState, match: Match, refs: tuple[TableRef, ...]) -> Plan:
    """``view`` is as it is now; a match may be older and knows only how it is defined."""
    own = tuple(r for r in refs if r.table == view.name)
    tables = {view.name: read_whole(plan.snapshot, view, own, plan.store, stored=True)}
    for name, t in plan.tables.items():
        if t.state.table_id not in match.known.tables:
            own = tuple(r for r in refs if r.table == name)
            tables[name] = read_whole(plan.snapshot, t.state, own, plan.store, stored=t.stored)
    return replace(plan, tables=tables)


def _schemas(plan: Plan, match: Match) -> dict[str, TableSchema]:
    others = {n: t.state.readable for n, t in plan.tables.items() if t.state.table_id not in match.known.tables}
    return {match.view.name: match.view.schema, **others}


def _names(local: LocalPlan | Refusal, asked: Asked) -> list[str]:
    """What Spark calls the columns of the query's answer."""
    if isinstance(local, LocalPlan):
        return list(local.schema.names)
    names = []
    for alias, e in asked.items:
        if alias is not None:
            names.append(alias)
        elif isinstance(e, exp.Column):
            names.append(written(e))
        else:
            raise NoMatch(f"Spark's name for the column {shown(text_of(e))[:60]} is not certain; give it an alias")
    return names
