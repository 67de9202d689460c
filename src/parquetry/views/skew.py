"""Heavy clusters of a delta: found in its index, and cut out of the stream that all others are aggregated in (NA-36).

A view that shares a prefix with its table's key is made cluster by cluster. One prefix value with very many rows would
fill the memory of the task that streams them, so its rows are dealt out to many tasks by the rest of the view's key,
and aggregated in two steps, before and after. What lies between heavy clusters still streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parquetry.model.delta import Delta
from parquetry.model.schema import TableSchema
from parquetry.storage.index_reader import open_index
from parquetry.storage.spark_text import quote
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import Column

SKEW = 8  # a cluster so many times as large as the others on average is heavy (3.2-11)
LEAST_HEAVY_ROWS = 2_000_000  # what one task holds of a cluster without trouble

Cluster = tuple[Any, ...]
"""The values of the shared leading key columns."""


def heavy_clusters(delta: Delta, schema: TableSchema, shared: int, store: Store) -> tuple[Cluster, ...]:
    """The values of the leading ``shared`` key columns with far more rows than others, in the key's order.

    Only row groups of one single value are counted: a heavy value has many of those.
    """
    if delta.rows <= LEAST_HEAVY_ROWS:
        return ()
    groups = open_index(store, delta.index).row_groups()
    ends = [
        zip(*(groups.stat(kind, k, schema.column(k).arrow).to_pylist() for k in schema.key[:shared]), strict=True)
        for kind in ("min", "max")
    ]
    rows: dict[Cluster, int] = {}
    seen: set[Cluster] = set()
    for low, high, count in zip(*ends, groups.rows.tolist(), strict=True):
        seen.add(low)
        if low == high and None not in low:
            rows[low] = rows.get(low, 0) + count
    large = {c: n for c, n in rows.items() if n > LEAST_HEAVY_ROWS}
    others = (delta.rows - sum(large.values())) / max(1, len(seen) - len(large))
    return tuple(c for c, n in large.items() if n > SKEW * others)


def cluster(prefix: Sequence[str], values: Cluster) -> Column:
    """The condition for the rows of one cluster."""
    from pyspark.sql import functions as F

    found: Column = F.lit(True)
    for k, v in zip(prefix, values, strict=True):
        found = found & (F.col(quote(k)) == F.lit(v))
    return found


def between(prefix: Sequence[str], heavy: Sequence[Cluster]) -> list[Column]:
    """The conditions for what lies before, between and behind the heavy clusters, in the key's order."""
    from pyspark.sql import functions as F

    found: list[Any] = []
    for after, before in zip([None, *heavy], [*heavy, None], strict=True):
        lies: Any = F.lit(True)
        lies = lies & _beyond(prefix, after, above=True) if after is not None else lies
        lies = lies & _beyond(prefix, before, above=False) if before is not None else lies
        found.append(lies)
    return found


def _beyond(prefix: Sequence[str], values: Cluster, *, above: bool) -> Column:
    from pyspark.sql import functions as F

    found: Column = F.lit(False)
    equal: Column = F.lit(True)
    for k, v in zip(prefix, values, strict=True):
        column, value = F.col(quote(k)), F.lit(v)
        found = found | (equal & (column > value if above else column < value))
        equal = equal & (column == value)
    return found
