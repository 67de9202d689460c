"""What a view's refresh costs, by how much of its key is a prefix of its table's: the three classes (NA-31…NA-36).

A delta of the table is a sorted run. When the view's key starts with leading key columns of the table, the run is
already clustered by them: it streams through one task that aggregates, and sorts by the rest inside each cluster.
Otherwise Spark aggregates first and sorts the small result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from parquetry.model.delta import Delta
from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.distinct import single_text
from parquetry.model.state import TableState
from parquetry.model.types import is_float
from parquetry.model.view import ViewSpec
from parquetry.storage.scan.scan import layout_of
from parquetry.storage.spark_text import quote
from parquetry.storage.store import Store
from parquetry.views.changes import row_value
from parquetry.views.skew import Cluster, heavy_clusters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ViewClass:
    """``number`` 1: the view's key is a prefix of the table's; 2: they share a prefix; 3: nothing, or it does not pay.

    ``shared`` counts the leading key columns that the table's order gives for free; ``heavy`` are clusters of them
    that are too large for one task.
    """

    number: int
    shared: int
    why: str
    heavy: tuple[Cluster, ...] = ()


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


def plan_class(
    view: TableState, base: TableState, deltas: Sequence[Delta], store: Store, *, in_parts: bool = False
) -> ViewClass:
    """The class that a refresh from these deltas uses. Tasks that read the files themselves take any in key order
    (``in_parts``); what goes through Spark streams from one sorted file only."""
    assert view.view is not None
    found = class_of(view, base)
    if found.number == 3:
        return found
    if view.view.spec.how != "merge" or base.view is not None or len(view.view.spec.sources) > 1:
        return ViewClass(3, 0, "its deltas are more than aggregates of one table's")
    if view.layout is not None or any(layout_of(base, d.layout_id) is not None for d in deltas):
        return ViewClass(3, 0, "the deltas are not runs in key order")
    one_file = in_one_file(deltas)
    if not one_file and not in_parts:
        return ViewClass(3, 0, "only Spark reads them, and they are not one run in one file")
    # A full prefix makes one group of a cluster, however many rows it has.
    heavy = heavy_clusters(deltas[0], base.schema, found.shared, store) if found.number == 2 and one_file else ()
    if not heavy:
        return found
    many = f"{len(heavy)} heavy cluster{'' if len(heavy) == 1 else 's'} of it cut up"
    return replace(found, why=f"{found.why}, {many}", heavy=heavy)


def in_one_file(deltas: Sequence[Delta]) -> bool:
    """Whether Spark reads the rows of these deltas in their order, as it does of one file."""
    return len(deltas) == 1 and len(deltas[0].files) == 1


def initial_values(spec: ViewSpec, view: TableState, rows: DataFrame) -> DataFrame:
    """Each row as a group of its own: what the view's merge makes groups of."""
    from pyspark.sql import functions as F

    made: list[Any] = [F.col(quote(c.name)) for c in spec.groups]
    for v in spec.values:
        value = row_value(v)
        if v.kind == DISTINCT:
            stored = F.expr(single_text(v.row))
        elif v.kind == "count":
            stored = value.isNotNull().cast("bigint")
        else:
            stored = value.cast(view.schema.column(v.name).type)
        made.append(stored.alias(v.name))
    return rows.select(*made)
