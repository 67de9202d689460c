"""What queries would read under a layout, from a sample and without writing: row groups are cut, described and pruned
as writer and reader do it.

The sample's rows are routed, sorted by (block, key) and cut into row groups at the writer's sizes times the sampling
rate. Each gets an index entry, and the queries are pruned by the very code that prunes real ones, with all its proofs.
A sample misses the outermost rows of a row group, so min and max are widened by what uniform rows would miss.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.pricing.column_bytes import ColumnBytes, simulated_column_bytes
from parquetry.layouts.pricing.priced_sample import PlacedColumn, SampledTable
from parquetry.layouts.pruning.prune import LayoutRegions, Wanted, prune
from parquetry.layouts.routing.route import route_numpy
from parquetry.model.keys import block_prefix, encode_keys
from parquetry.model.layout import LayoutSpec
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import Anything, Nothing, Predicate
from parquetry.model.settings import Settings
from parquetry.model.through import about, is_through
from parquetry.model.types import is_float
from parquetry.storage.index_reader import RowGroupTable
from parquetry.storage.snapshot_index import SnapshotIndex

_SIMULATED = 0  # the layout id of simulated row groups: an index without deltas has no other


@dataclass(frozen=True)
class Asked:
    """A query as a price needs it: what it demands of the table's rows, and the columns it reads."""

    query: LoggedQuery
    columns: tuple[str, ...]

    @property
    def predicate(self) -> Predicate:
        return self.query.predicate

    @property
    def filters(self) -> bool:
        """Whether a layout can learn from it: it demands something, and something that rows may satisfy."""
        understood = not isinstance(self.predicate, Anything | Nothing)
        return understood or (bool(self.query.opaque) and not isinstance(self.predicate, Nothing))


@dataclass(frozen=True)
class Price:
    """What one query reads of a table."""

    groups: int
    rows: float
    bytes: float


@dataclass(frozen=True, eq=False)
class PricedLayout:
    """Row groups, simulated or real, that queries are priced on."""

    index: SnapshotIndex
    layouts: tuple[LayoutRegions, ...]
    sizes: ColumnBytes
    merged_by: tuple[str, ...] = ()  # the key, where several deltas are merged: only it may prune (3.2-5)

    @property
    def groups(self) -> int:
        return int(np.count_nonzero(~self.index.extra))

    def price(self, asked: Asked) -> Price:
        predicate, opaque = asked.predicate, asked.query.opaque
        if self.merged_by:
            predicate = about(predicate, self.merged_by)
            opaque = tuple(o for o in opaque if set(o.columns) <= set(self.merged_by))
        keep = prune(Wanted(self.index, predicate, self.layouts, opaque))
        groups, rows = int(np.count_nonzero(keep)), float(self.index.rows[keep].sum())
        columns = (*asked.columns, *self.merged_by) or self.index.schema.key[:1]
        return Price(groups, rows, self.sizes.of(columns, groups, rows))

    def price_all(self, queries: Sequence[Asked]) -> tuple[Price, ...]:
        return tuple(self.price(q) for q in queries)


def simulate(
    table: SampledTable,
    spec: LayoutSpec | None,
    filtered: Collection[str],
    stored: ColumnBytes,
    *,
    measure: bool = True,
) -> PricedLayout:
    """The row groups that a rewrite in the layout would make; ``filtered`` columns get min, max and null counts.

    ``measure`` writes some of them to see how their columns compress; otherwise columns are taken as ``stored``.
    """
    sample = table.sample
    blocks = np.zeros(sample.num_rows, np.int64) if spec is None else route_numpy(spec, sample).astype(np.int64)
    order = np.argsort(blocks * sample.num_rows + table.key_rank)
    starts = cut_row_groups(blocks[order], table.settings, table.rate, single=spec is None or spec.blocks == 1)
    index = _index(table, blocks[order], order, starts, filtered)
    known = () if spec is None else (LayoutRegions.of(_SIMULATED, spec),)
    sizes = stored
    if measure and sample.num_rows:
        sizes = simulated_column_bytes(sample.take(pa.array(order)), starts, table.rate, table.settings, stored)
    return PricedLayout(index, known, sizes)


def cut_row_groups(blocks: Numbers, settings: Settings, rate: float, *, single: bool) -> Numbers:
    """Where row groups begin in a run of rows with these ascending blocks, by the writer's rules at sample size."""
    rows = len(blocks)
    largest = max(1, round(settings.row_group_rows * rate))
    if single:
        return np.arange(0, rows, largest)
    least = max(1, round(settings.block_group_rows * rate))
    ends = np.append(np.flatnonzero(np.diff(blocks)) + 1, rows)  # of the blocks that have rows
    starts = []
    start = 0
    while start < rows:
        starts.append(start)
        reached = min(start + least, rows)
        start = min(int(ends[np.searchsorted(ends, reached)]), start + largest)
    return np.array(starts, np.int64)


def _index(
    table: SampledTable, blocks: Numbers, order: Numbers, starts: Numbers, filtered: Collection[str]
) -> SnapshotIndex:
    counts = np.diff(np.append(starts, len(order)))
    lasts = starts + counts - 1
    rows = np.maximum(1, np.round(counts / table.rate)).astype(np.int64)
    data: dict[str, pa.Array] = {
        "start": _keys(table, blocks, order, starts, b""),
        "end": _keys(table, blocks, order, lasts, b"\x00"),
        "rows": pa.array(rows),
        "bytes": pa.array(np.zeros(len(starts), np.int64)),
        "file": pa.array(np.zeros(len(starts), np.int32)),
        "row_group": pa.array(np.arange(len(starts), dtype=np.int32)),
        "block": pa.array(blocks[starts] if len(starts) else blocks),
        "boxes": pa.nulls(len(starts), pa.string()),
    }
    for name in sorted(c for c in filtered if not is_through(c)):
        placed = table.column(name)
        if placed is not None and len(starts):
            data |= _statistics(table, name, placed, order, starts, counts)
    batch = pa.RecordBatch.from_pydict(data)
    return SnapshotIndex([RowGroupTable(batch, frozenset(table.schema.names))], table.schema)


def _keys(table: SampledTable, blocks: Numbers, order: Numbers, at: Numbers, suffix: bytes) -> pa.Array:
    taken = table.sample.select(list(table.schema.key)).take(pa.array(order[at]))
    keys = encode_keys(taken.columns).to_pylist()
    return pa.array([block_prefix(b) + k + suffix for b, k in zip(blocks[at].tolist(), keys, strict=True)], pa.binary())


def _statistics(
    table: SampledTable, name: str, placed: PlacedColumn, order: Numbers, starts: Numbers, counts: Numbers
) -> dict[str, Any]:
    places, line = placed.places[order], placed.line
    null, nan = places == 0, places == placed.nan_place
    known = ~(null | nan)
    valued = np.add.reduceat(known, starts, dtype=np.int64)
    top = line.count - (placed.nan_place > 0)
    index = places // 2 - 1  # among the sample's own values
    low = np.minimum.reduceat(np.where(known, index, top), starts)
    high = np.maximum.reduceat(np.where(known, index, -1), starts)
    missed = _missed(high - low, valued, table.rate)
    low, high = np.maximum(low - missed, 0), np.minimum(high + missed, top - 1)
    nulls = np.add.reduceat(null, starts, dtype=np.int64)
    # All null or not is a proof of its own, so it must survive the rounding.
    scaled = np.where(nulls == counts, np.maximum(1, np.round(counts / table.rate)), np.floor(nulls / table.rate))
    arrow = table.schema.column(name).arrow

    def values(at: Numbers) -> pa.Array:
        there = zip(at.tolist(), (valued > 0).tolist(), strict=True)
        return pa.array([line.boundary(i) if some else None for i, some in there], arrow)

    found = {
        f"min.{name}": values(low),
        f"max.{name}": values(high),
        f"nulls.{name}": pa.array(scaled.astype(np.int64)),
    }
    if is_float(arrow):
        found[f"nan.{name}"] = pa.array(np.add.reduceat(nan, starts, dtype=np.int64) > 0)
    return found


def _missed(width: Numbers, seen: Numbers, rate: float) -> Numbers:
    """How far min and max of all rows lie beyond those of the rows seen, in values of the sample, on each side.

    Of ``n`` uniform rows the outermost ones span ``(n - 1) / (n + 1)`` of the range.
    """
    if rate >= 1:
        return np.zeros(len(width), np.int64)
    of_all = np.maximum(seen / rate, 2)
    stretch = (seen + 1) / np.maximum(seen - 1, 1) * (of_all - 1) / (of_all + 1)
    missed: Numbers = np.floor(np.maximum(width, 0) * np.maximum(stretch - 1, 0) / 2).astype(np.int64)
    return missed
