"""Views for the queries that were logged: what to make over each table, and which views nobody uses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parquetry.model.queryable import ready, views_over
from parquetry.model.schema import TableSchema
from parquetry.model.state import State, TableState
from parquetry.storage.store import Store
from parquetry.views.asked import NoMatch
from parquetry.views.estimate import group_estimator, sampled_groups
from parquetry.views.here import Compile
from parquetry.views.lattice import Suggested, There, suggest
from parquetry.views.shapes import Shape, shape_of

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
    compile_: Compile = lambda _text, _tables: None,
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
    shapes, refused = _shapes(state, tables, newest)
    used = [t for t in tables if t.rows and shapes[t.table_id]]
    over = [_over(spark, store, state, t, shapes[t.table_id], most, compile_) for t in used]
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
    return Suggested(tuple(best), tuple(drop), len(newest), dict(refused.most_common()))


def _shapes(
    state: State, tables: Sequence[TableState], newest: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[int, Sequence[Shape]], Counter[str]]:
    """What the queries that read one of ``tables`` need of views over each, and how often which reason has no shape."""
    names = {t.name.lower() for t in tables}
    schemas = _schemas(state)
    shapes: defaultdict[int, list[Shape]] = defaultdict(list)
    refused = Counter[str]()
    for sql, times in Counter(q["sql"] for q in newest if names & set(map(str.lower, q["tables"]))).items():
        found = shape_of(sql, schemas)
        if isinstance(found, NoMatch):
            refused[str(found)] += times
        elif (read := state.table(found[0].sources[0].table)).view is not None:
            refused["it reads a view"] += times
        else:
            shapes[read.table_id] += [found[1]] * times
    return shapes, refused


def _schemas(state: State) -> dict[str, tuple[int, TableSchema]]:
    return {t.name.lower(): (t.table_id, t.readable) for t in state.tables.values()}


def _over(
    spark: Callable[[], SparkSession],
    store: Store,
    state: State,
    t: TableState,
    shapes: Sequence[Shape],
    most: int,
    compile_: Compile,
) -> tuple[Suggested, set[str]]:
    """What to make over the table, and the views over it that this was compared with."""
    there = [known for v in views_over(state, t) if (known := _there(state, v)) is not None]
    expressions = sorted({g for s in [*shapes, *(v.shape for v in there)] for g in s.groups})
    sample = sampled_groups(spark, store, t, expressions, compile_)
    estimate = group_estimator(sample, expressions, t.rows)
    there = [v if v.filled else replace(v, rows=estimate(v.shape.groups)) for v in there]
    return suggest(t.name, shapes, t.rows, estimate, most, there, state.tables), {v.name for v in there}


def _there(state: State, view: TableState) -> There | None:
    """A view of one table alone, of all its rows, as suggestions are compared with it."""
    assert view.view is not None
    spec = view.view.spec
    found = NoMatch() if spec.where else shape_of(spec.sql, _schemas(state))
    if isinstance(found, NoMatch):
        return None
    asked, shape = found
    texts = {c.name: asked.text(e) for c, (_, e) in zip(spec.columns, asked.items, strict=True)}
    return There(view.name, shape, tuple(texts[k] for k in view.schema.key), float(view.rows), ready(state, view))


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
