"""What a view's refresh costs, by how much of its key is a prefix of its table's: the three classes (NA-31…NA-36).

A delta of the table is a sorted run. When the view's key starts with leading key columns of the table, the run is
already clustered by them: it streams through one task that aggregates, and sorts by the rest inside each cluster.
Otherwise Spark aggregates first and sorts the small result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parquetry.model.delta import Delta
from parquetry.model.state import TableState
from parquetry.model.types import is_float
from parquetry.model.view import ViewSpec
from parquetry.storage.index_reader import open_index
from parquetry.storage.store import Store
from parquetry.views.changes import argument_name
from parquetry.views.normalize import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SKEW = 8  # a cluster so many times as large as the average is heavy (3.2-11)
_LEAST_HEAVY_ROWS = 2_000_000  # what one task holds of a cluster without trouble


@dataclass(frozen=True)
class ViewClass:
    """``number`` 1: the view's key is a prefix of the table's; 2: they share a prefix; 3: nothing, or it does not pay.

    ``shared`` counts the leading key columns that the table's order gives for free.
    """

    number: int
    shared: int
    why: str


def class_of(view: TableState, base: TableState) -> ViewClass:
    """The class by the definitions alone."""
    assert view.view is not None
    arguments = {c.name: c.argument for c in view.view.spec.groups}
    shared = 0
    for name, key in zip(view.schema.key, base.schema.key, strict=False):
        if arguments[name].strip("`").lower() != key.lower() or is_float(base.schema.column(key).arrow):
            break
        shared += 1
    if shared == len(view.schema.key):
        return ViewClass(1, shared, "its key is a prefix of the table's")
    if shared:
        return ViewClass(2, shared, f"it shares {', '.join(view.schema.key[:shared])} with the table's key")
    return ViewClass(3, 0, "it shares no leading key column with the table")


def plan_class(view: TableState, base: TableState, deltas: Sequence[Delta], store: Store) -> ViewClass:
    """The class that a refresh from these deltas uses: streaming needs one sorted file and no heavy cluster."""
    assert view.view is not None
    found = class_of(view, base)
    if found.number == 3:
        return found
    if view.view.spec.how != "merge" or base.view is not None or len(view.view.spec.sources) > 1:
        return ViewClass(3, 0, "its deltas are more than aggregates of one table's")
    if view.layout is not None or len(deltas) != 1 or deltas[0].layout_id != 0 or len(deltas[0].files) != 1:
        return ViewClass(3, 0, "the delta is not one run in key order in one file")
    heavy = _heaviest(deltas[0], base, store)
    if found.number == 2 and heavy > _LEAST_HEAVY_ROWS:
        return ViewClass(3, 0, f"skew: {heavy:,} rows have one value of {base.schema.key[0]}, so groups are cut up")
    return found


def _heaviest(delta: Delta, base: TableState, store: Store) -> int:
    """The rows of the first key column's heaviest value, as far as row groups of one single value tell; 0: no skew."""
    groups = open_index(store, delta.index).row_groups().batch.to_pylist()
    first = base.schema.key[0]
    rows: dict[Any, int] = {}
    for g in groups:
        low, high = g.get(f"min.{first}"), g.get(f"max.{first}")
        if low == high:
            rows[low] = rows.get(low, 0) + g["rows"]
    heaviest = max(rows.values(), default=0)
    average = delta.rows / max(1, len({g.get(f"min.{first}") for g in groups}))
    return heaviest if heaviest > SKEW * average or len(rows) == 1 else 0


def initial_values(spec: ViewSpec, view: TableState, rows: DataFrame) -> DataFrame:
    """Each row as a group of its own: what the view's merge makes groups of."""
    from pyspark.sql import functions as F

    made: list[Any] = [F.col(quoted(c.name)) for c in spec.groups]
    for i, c in enumerate(spec.aggregates):
        value = F.lit(1) if c.argument == "*" else F.col(argument_name(i))
        stored = spec.stored(c)
        if c.function != "count":
            made.append(value.cast(view.schema.column(stored[0]).type).alias(stored[0]))
        if c.function == "count" or len(stored) > 1:
            made.append(value.isNotNull().cast("bigint").alias(stored[-1]))
    return rows.select(*made)
