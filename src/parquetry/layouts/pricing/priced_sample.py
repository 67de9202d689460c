"""A sample prepared for pricing: its rows in key order, its filtered columns as small integers, who matches what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.layouts.coding.codec import Numbers, codec_for
from parquetry.layouts.coding.positions import Positions
from parquetry.layouts.pruning.features import Evaluator
from parquetry.model.box import Interval
from parquetry.model.layout import Feature
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import ANYTHING, And, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.reached import Reached, with_reached
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.model.types import is_nested
from parquetry.model.values import order_key


@dataclass(frozen=True, eq=False)
class PlacedColumn:
    """``places[i]`` is row i's position on a line whose boundaries are all values of the sample; 0 is null."""

    line: Positions
    places: Numbers

    @property
    def nan_place(self) -> int:
        """The position of NaN, which is above all others; -1 when the sample has none."""
        last = self.line.array[-1] if self.line.array is not None and self.line.count else 0
        return 2 * self.line.count if last != last else -1


class SampledTable:
    """Rows drawn from a table of ``rows`` rows. Holds its key columns and every column that a price depends on, with
    what the rows reach through keys."""

    def __init__(
        self,
        sample: pa.Table,
        schema: TableSchema,
        settings: Settings,
        rows: int,
        reached: Mapping[str, Reached] | None = None,
    ) -> None:
        self.reached = reached or {}
        self.sample = with_reached(sample, self.reached.values()).combine_chunks()
        self.schema, self.settings = schema, settings
        self.rows = max(rows, sample.num_rows)
        self.rate = sample.num_rows / self.rows if self.rows else 1.0
        self._columns: dict[str, PlacedColumn | None] = {}

    @cached_property
    def key_rank(self) -> Numbers:
        """The place of each row in key order."""
        order = pc.sort_indices(self.sample, sort_keys=[(k, "ascending") for k in self.schema.key])  # never null
        rank = np.empty(self.sample.num_rows, np.int64)
        rank[np.asarray(order)] = np.arange(self.sample.num_rows)
        return rank

    def column(self, name: str) -> PlacedColumn | None:
        """The column on its line; None for one that is nested or not in the sample: nothing is known of it."""
        if name not in self._columns:
            self._columns[name] = self._place(name)
        return self._columns[name]

    def matching(self, query: LoggedQuery) -> Numbers:
        """Which rows of the sample the query wants, by its predicate and its opaque conditions."""
        found = self.matches(query.predicate)
        if query.opaque and all(c in self.sample.column_names for o in query.opaque for c in o.columns):
            tested = Evaluator([Feature(ANYTHING, query.opaque)], self.sample.schema).bits(self.sample)
            found &= tested[0]
        return found

    def matches(self, predicate: Predicate) -> Numbers:
        """Which rows of the sample satisfy the predicate as far as it is understood: the rest counts as true."""
        match predicate:
            case And(parts):
                return self._all(np.logical_and, parts, True)
            case Or(parts):
                return self._all(np.logical_or, parts, False)
            case Nothing():
                return np.zeros(self.sample.num_rows, bool)
            case Range(column) | OneOf(column) | IsNull(column) | NotNull(column):
                placed = self.column(column)
                if placed is not None:
                    try:
                        return _leaf(placed, predicate)
                    except (TypeError, ValueError):
                        pass  # a value that is not of the column's type
        return np.ones(self.sample.num_rows, bool)

    def _all(self, operation: np.ufunc, parts: Collection[Predicate], empty: bool) -> Numbers:
        found = np.full(self.sample.num_rows, empty)
        for part in parts:
            operation(found, self.matches(part), out=found)
        return found

    def _place(self, name: str) -> PlacedColumn | None:
        if name not in self.sample.column_names or is_nested(self.sample.schema.field(name).type):
            return None
        column = self.sample.column(name)
        codec = codec_for(column.type)
        if codec.kind == "object":
            distinct = sorted(order_key(v) for v in pc.unique(column).to_pylist() if v is not None)
            line = Positions(distinct, codec)
        else:
            numbers, nulls = codec.numbers(column)
            line = Positions(np.unique(numbers if nulls is None else numbers[~nulls]), codec)
        return PlacedColumn(line, line.place(column))


def _leaf(placed: PlacedColumn, leaf: Range | OneOf | IsNull | NotNull) -> Numbers:
    places, line = placed.places, placed.line
    if isinstance(leaf, IsNull):
        return np.asarray(places == 0)
    if isinstance(leaf, NotNull):
        return np.asarray(places != 0)
    if isinstance(leaf, Range):
        lo_open, hi_open = leaf.lo is not None and leaf.lo_open, leaf.hi is not None and leaf.hi_open
        lo, hi = line.range(Interval(leaf.lo, leaf.hi, lo_open, hi_open))
        # An even position is a value of the sample; the odd gaps between hold no row of it.
        return np.asarray((places >= lo) & (places <= hi))
    wanted = [lo for lo, hi in (line.range(Interval(v, v)) for v in leaf.values) if lo == hi and lo % 2 == 0]
    return np.isin(places, np.array(wanted, places.dtype))
