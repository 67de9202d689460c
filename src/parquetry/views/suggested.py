"""Views for the queries that were logged: what to make over each table, and which views nobody uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parquetry.model.state import State, TableState
from parquetry.storage.store import Store
from parquetry.views.estimate import group_estimator, sampled_groups
from parquetry.views.suggest import Suggested, Suggestion, shape_of, suggest

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
) -> Suggested:
    """The views that the ``newest`` rows of the query log ask for, the best first, and those that no query used."""
    most = most or (state.profile.views if state.profile else _MOST_VIEWS)
    tables = [state.table(table)] if table is not None else state.tables.values()
    found = [s for t in tables for s in _over(spark, store, t, newest, most)]
    found.sort(key=lambda s: s.rows_after - s.rows_before)
    there = {v.view.spec.sql for v in state.tables.values() if v.view is not None}
    return Suggested(tuple(s for s in found[:most] if s.sql not in there), _idle(state, newest), len(newest))


def _over(
    spark: Callable[[], SparkSession], store: Store, t: TableState, newest: Sequence[Mapping[str, Any]], most: int
) -> list[Suggestion]:
    asked = (shape_of(q["sql"], t.readable) for q in newest if t.name.lower() in q["tables"])
    shapes = [s for s in asked if s is not None]
    rows = sum(d.rows for d in t.deltas)
    if t.view is not None or not shapes or not rows:
        return []
    expressions = sorted({g for s in shapes for g in s.groups})
    sample = sampled_groups(spark(), store, t, expressions)
    return suggest(t.name, shapes, rows, group_estimator(sample, expressions, rows), most)


def _idle(state: State, newest: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Views that no query read and no other view is made of; without any query nothing counts as idle."""
    if not newest:
        return ()
    used = {name for q in newest for name in [*q["tables"], str((q["stats"] or {}).get("view")).lower()]}
    below = {s.table_id for v in state.tables.values() if v.view for s in v.view.spec.sources}
    idle = (v.name for v in state.tables.values() if v.view and v.table_id not in below)
    return tuple(n for n in idle if n.lower() not in used)
