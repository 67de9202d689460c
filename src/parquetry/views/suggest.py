"""Views for the queries that were logged: what to make over each table, and which views nobody uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parquetry.model.queryable import ready, views_over
from parquetry.model.state import State, TableState
from parquetry.storage.store import Store
from parquetry.views.estimate import group_estimator, sampled_groups
from parquetry.views.lattice import Suggested, There, shape_of, suggest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_VIEWS = 5  # without a profile


def suggested_views(
    spark: Callable[[], SparkSession],
    store: Store,
    state: State,
    newest: Sequence[Mapping[str, Any]],
    table: str | None = None,
    most: int | None = None,
    made: Mapping[str, float] | None = None,
) -> Suggested:
    """The views that the ``newest`` rows of the query log ask for, the best first, and those that no query needs.

    ``most`` limits the suggestions; without it the profile limits all views together, or 5 are suggested at most.
    ``made`` tells when views were made: one that nobody could use yet is not idle.
    """
    idle = _idle(state, newest, made or {})
    if most is None and state.profile is not None:
        kept = sum(v.view is not None for v in state.tables.values()) - len(idle)
        most = max(0, state.profile.views - kept)
    most = _MOST_VIEWS if most is None else most
    tables = [state.table(table)] if table is not None else list(state.tables.values())
    over = [o for t in tables if (o := _over(spark, store, state, t, newest, most)) is not None]
    found = [s for s, _ in over]
    compared = {name for _, names in over for name in names}
    best = sorted((v for s in found for v in s.views), key=lambda v: v.rows_after - v.rows_before)[:most]
    names = {v.name for v in best}
    # What is made needless by a view that is not among the best is still needed.
    replaced = [name for s in found if all(v.name in names for v in s.views) for name in s.drop]
    below = _below(state)
    by_name = {n.lower() for q in newest for n in q["tables"] if n.lower() != _view_of(q)}
    drop = [
        v.name
        for v in state.tables.values()
        if (v.name in idle and v.name not in compared)
        or (v.name in replaced and v.table_id not in below and v.name.lower() not in by_name)
    ]
    return Suggested(tuple(best), tuple(drop), len(newest))


def _over(
    spark: Callable[[], SparkSession],
    store: Store,
    state: State,
    t: TableState,
    newest: Sequence[Mapping[str, Any]],
    most: int,
) -> tuple[Suggested, set[str]] | None:
    """What to make over the table, and the views over it that this was compared with."""
    asked = (shape_of(q["sql"], t.readable) for q in newest if t.name.lower() in q["tables"])
    shapes = [s for s in asked if s is not None]
    if t.view is not None or not shapes or not t.rows:
        return None
    there = [known for v in views_over(state, t) if (known := _there(v, t, ready(state, v))) is not None]
    expressions = sorted({g for s in [*shapes, *(v.shape for v in there)] for g in s.groups})
    sample = sampled_groups(spark(), store, t, expressions)
    estimate = group_estimator(sample, expressions, t.rows)
    there = [v if v.filled else replace(v, rows=estimate(v.shape.groups)) for v in there]
    return suggest(t.name, shapes, t.rows, estimate, most, there, state.tables), {v.name for v in there}


def _there(view: TableState, t: TableState, filled: bool) -> There | None:
    """A view of this table alone, of all its rows, as suggestions are compared with it."""
    assert view.view is not None
    spec = view.view.spec
    shape = None if spec.where or len(spec.sources) > 1 else shape_of(spec.sql, t.readable)
    if shape is None:
        return None
    grouped = {c.name: shape_of(f"SELECT count(*) AS n FROM t GROUP BY {c.argument}", t.readable) for c in spec.groups}
    order = [group for name in view.schema.key if (one := grouped.get(name)) is not None for group in one.groups]
    return There(view.name, shape, tuple(order), float(view.rows), filled)


def _idle(state: State, newest: Sequence[Mapping[str, Any]], made: Mapping[str, float]) -> set[str]:
    """Filled views that no query read since they were made, and no other view is made of; without a query none."""
    below = _below(state)
    found = set()
    for v in state.tables.values():
        if v.view is not None and v.table_id not in below and ready(state, v):
            since = [q for q in newest if q["at"] >= made.get(v.name, 0.0)]
            if since and all(v.name.lower() not in [*map(str.lower, q["tables"]), _view_of(q)] for q in since):
                found.add(v.name)
    return found


def _view_of(query: Mapping[str, Any]) -> str:
    """The lowered name of the view that answered a logged query, unasked."""
    return str((query["stats"] or {}).get("view")).lower()


def _below(state: State) -> set[int]:
    """The tables and views that views are made of."""
    return {s.table_id for v in state.tables.values() if v.view for s in v.view.spec.sources}
