"""Layouts inside ranges: a column, usually time, is cut into ranges first, and any learner lays out each by itself.

Rows never move from one range to another (WP-18), so a range can be learned from its own rows and its own queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parquetry.errors import SchemaError
from parquetry.layouts.cells import with_cells
from parquetry.layouts.coding.codec import Numbers
from parquetry.layouts.coding.positions import Positions
from parquetry.layouts.learners.options import LearnOptions
from parquetry.layouts.learners.sample import encode
from parquetry.layouts.registry import learn
from parquetry.model.box import EVERYTHING, Interval
from parquetry.model.layout import LayoutSpec, NestedLayout, block_rows, learned_blocks, ranges_between
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.values import value_to_json
from parquetry.workload.boxes import to_boxes

UNITS = ("year", "month", "day")
RunAll = Callable[[Sequence[Callable[[], LayoutSpec]]], Sequence[LayoutSpec]]
_MOST_RANGES = 1000  # each has a layout of its own to learn, store and look through


@dataclass(frozen=True)
class Within:
    """The ranges of a layout: a calendar ``unit`` of a date or time column, or a number of ranges with equal rows."""

    column: str
    unit: str | int

    @classmethod
    def parse(cls, text: str, arrow: pa.DataType | None = None) -> Within:
        """``day:month``, ``n:16``; ``day`` alone means months if it is a date or time.

        >>> Within.parse("day:month"), Within.parse("n:16")
        (Within(column='day', unit='month'), Within(column='n', unit=16))
        """
        column, _, unit = text.rpartition(":") if ":" in text else (text, "", "")
        is_time = arrow is None or pa.types.is_date(arrow) or pa.types.is_timestamp(arrow)
        if not unit and is_time:
            unit = "month"
        if unit.isdecimal() and 1 <= int(unit) <= _MOST_RANGES:
            return cls(column, int(unit))
        if unit not in UNITS or not is_time:
            kinds = f"{', '.join(UNITS)} or a number" if is_time else "a number"
            raise SchemaError(f"'{text}' names no ranges; write {column}: and {kinds} of ranges up to {_MOST_RANGES:,}")
        return cls(column, unit)

    def __str__(self) -> str:
        return f"{self.column}:{self.unit}"


def boundaries_of(values: pa.ChunkedArray, within: Within) -> tuple[Any, ...]:
    """Where each range but the first begins, for a column with these values."""
    if isinstance(within.unit, int):
        return _quantiles(values, within)
    bounds = pc.min_max(values)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None:
        return ()
    return starts_between(low, high, within)


def starts_between(low: Any, high: Any, within: Within) -> tuple[Any, ...]:
    """The beginnings of calendar units after ``low`` and up to ``high``."""
    assert not isinstance(within.unit, int)
    found = []
    at = _next(_floor(low, within.unit), within.unit)
    while at is not None and at <= high:
        found.append(at)
        if len(found) >= _MOST_RANGES:
            raise SchemaError(f"'{within}' makes more than {_MOST_RANGES:,} ranges; choose a longer unit")
        at = _next(at, within.unit)
    return tuple(found)


def _floor(value: Any, unit: str) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC)
        value = value.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "day":
        return value
    return value.replace(day=1) if unit == "month" else value.replace(month=1, day=1)


def _next(value: Any, unit: str) -> Any:
    """The unit after the one that begins at ``value``; None after the last that there is."""
    try:
        if unit == "day":
            return value + timedelta(days=1)
        if unit == "year" or value.month == 12:
            return value.replace(year=value.year + 1, month=1)
        return value.replace(month=value.month + 1)
    except (OverflowError, ValueError):
        return None


def _quantiles(values: pa.ChunkedArray, within: Within) -> tuple[Any, ...]:
    assert isinstance(within.unit, int)
    options = LearnOptions(block_rows=1, columns=(within.column,))
    encoded = encode(pa.table({within.column: values}), (), options, extended=False)
    if not encoded.columns:
        return ()  # one value, or none
    places, line = np.sort(encoded.places[0]), encoded.lines[0]
    at = np.unique(places[np.arange(1, within.unit) * len(places) // within.unit] // 2)
    lowest = max(int(places[0]) // 2, 0)  # a range below the lowest row would stay empty
    return tuple(line.boundary(int(i) - 1) for i in at.tolist() if i > lowest)


def rows_by_range(boundaries: Sequence[Any], values: pa.ChunkedArray) -> list[Numbers]:
    """The ordinals of the rows in each range."""
    ranges = Positions.of(boundaries, values.type).place(values) // 2
    order = np.argsort(ranges, kind="stable")
    return np.split(order, np.searchsorted(ranges[order], np.arange(1, len(boundaries) + 1)))


def one_by_one(tasks: Sequence[Callable[[], LayoutSpec]]) -> list[LayoutSpec]:
    return [task() for task in tasks]


def learn_nested(
    name: str,
    sample: pa.Table,
    workload: Sequence[LoggedQuery],
    options: LearnOptions,
    within: Within,
    cells: int = 1,
    run_all: RunAll = one_by_one,
) -> NestedLayout:
    """Ranges of ``within``, each laid out by the named learner from its own rows and the queries that reach it.

    ``run_all`` runs the learning of all ranges, which do not depend on each other.
    """
    values = sample.column(within.column)
    boundaries = boundaries_of(values, within)
    parts = run_all(
        [
            partial(learn_part, name, sample.take(rows), asked_of(workload, within.column, own), options, cells)
            for rows, own in zip(rows_by_range(boundaries, values), ranges_between(boundaries), strict=True)
        ]
    )
    inside = options.to_json()
    how: dict[str, Any] = {"block_rows": inside.pop("block_rows"), "within": str(within)}
    how["inside"] = {"cells": cells, **inside}
    high = pc.max(values).as_py() if isinstance(within.unit, str) else None
    how |= {"learned_blocks": _learned(parts), "until": _end(high, within)}
    return NestedLayout(name, within.column, boundaries, tuple(parts), how)


def extend_nested(
    spec: NestedLayout, sample: pa.Table, sample_rate: float, workload: Sequence[LoggedQuery]
) -> NestedLayout | None:
    """``spec`` with parts for the calendar units that came after its last one, laid out as its other parts were.

    ``sample`` holds rows at and after ``spec.until``. Units count up to the last one that has rows for a block: a few
    rows, or a date far in the future, stay in the last range. None when there is no such unit. Old blocks keep their
    numbers.
    """
    until, inside, within = spec.until, dict(spec.inside), Within.parse(spec.within)
    if until is None or isinstance(within.unit, int):
        return None
    cells = inside.pop("cells")
    options = LearnOptions.from_json({"block_rows": block_rows(spec), **inside}, sample_rate)
    values = sample.column(spec.column)
    last = _last_unit(values, within.unit, options.sample_block_rows)
    if last is None:
        return None
    added = (until, *starts_between(until, last, within))
    if len(spec.parts) + len(added) > _MOST_RANGES:
        return None
    rows = rows_by_range(added, values)[1:]
    parts = tuple(
        learn_part(spec.learner, sample.take(own), asked_of(workload, spec.column, side), options, cells)
        for own, side in zip(rows, ranges_between(added)[1:], strict=True)
    )
    how = {**spec.options, "until": _end(last, within), "learned_blocks": _learned((*spec.parts, *parts))}
    return replace(spec, boundaries=spec.boundaries + added, parts=spec.parts + parts, options=how)


def _end(value: Any, within: Within) -> Any:
    """The end of the calendar unit that holds ``value``, for a spec's options."""
    if value is None or isinstance(within.unit, int):
        return None
    return value_to_json(_next(_floor(value, within.unit), within.unit))


def _last_unit(values: pa.ChunkedArray, unit: str, rows: int) -> Any:
    """The beginning of the last calendar unit with at least ``rows`` of the values; None when there is none."""
    counts = pc.value_counts(pc.floor_temporal(values, unit=unit))
    enough = counts.filter(pc.greater_equal(counts.field("counts"), rows)).field("values")
    return pc.max(enough).as_py()


def learn_part(
    name: str, rows: pa.Table, workload: Sequence[LoggedQuery], options: LearnOptions, cells: int = 1
) -> LayoutSpec:
    """The layout of one range; of an empty one, a single block."""
    if not rows.num_rows:
        return learn("key", rows, (), options)
    return with_cells(learn(name, rows, workload, options), rows, workload, options, cells)


def asked_of(workload: Sequence[LoggedQuery], column: str, own: Interval) -> Sequence[LoggedQuery]:
    """The queries that reach a range, or all where none does: what is asked of other ranges may be asked of it."""

    def reaches(query: LoggedQuery) -> bool:
        sides = (b.intervals.get(column, EVERYTHING) for b in to_boxes(query.predicate, [column]).boxes)
        return any(not side.intersect(own).empty for side in sides)

    return [q for q in workload if reaches(q)] or workload


def _learned(parts: Sequence[LayoutSpec]) -> int:
    return sum(learned_blocks(part) for part in parts)
