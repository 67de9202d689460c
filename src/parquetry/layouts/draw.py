"""A picture of a layout over two columns: blocks, irregular ones with their holes, and the queries (PW-27)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from html import escape
from typing import Any

import numpy as np

from parquetry.layouts.draw_features import feature_lines, panel, panel_height
from parquetry.layouts.pruning.features import FeatureTable
from parquetry.layouts.pruning.regions import Region, RegionTable, regions
from parquetry.model.box import Box, Interval
from parquetry.model.layout import LayoutSpec
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.values import order_key
from parquetry.workload.boxes import to_boxes

_SIZE, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 110, 60, 30, 70
_BLOCK = 'stroke="#8fa0b5" stroke-width="0.5"'
_HOLE = 'fill="none" stroke="#7a5c1e" stroke-width="0.8" stroke-dasharray="3 2"'
_QUERY = 'fill="#d33" fill-opacity="0.10" stroke="#c22" stroke-width="1.2"'
_SKIPPED, _READ, _IRREGULAR = "#f8fafc", "#cfe0f5", "#fbf3d9"


def draw_svg(
    spec: LayoutSpec,
    x: str,
    y: str,
    domains: dict[str, tuple[Any, Any]],
    workload: Sequence[LoggedQuery] = (),
    title: str = "",
    extents: Mapping[int, Box] | None = None,
) -> str:
    """An SVG document. ``domains`` gives the lowest and highest value of both columns.

    Blocks that differ only in other columns lie on top of each other, as a projection must. Blocks of features have no
    place of their own: they are drawn by ``extents``, the smallest and largest values of their rows, above a list of
    the features.
    """
    features = feature_lines(spec, workload)
    blocks, read = _shapes(spec, workload, extents if features else None)
    queries = [box for q in workload for box in to_boxes(q.predicate, (x, y)).boxes if box.intervals]
    shapes = [*(r.box for r in blocks), *(h for r in blocks for h in r.holes), *queries]
    across, upward = _Scale(x, domains[x], shapes), _Scale(y, domains[y], shapes)

    def rectangle(box: Box, style: str) -> str:
        x0, x1 = across.span(box.intervals.get(x))
        y0, y1 = upward.span(box.intervals.get(y))
        left, top = _LEFT + x0 * _SIZE, _TOP + (1 - y1) * _SIZE
        width, height = max(0.5, (x1 - x0) * _SIZE), max(0.5, (y1 - y0) * _SIZE)
        return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'

    parts = [_head(title or f"{spec.learner}: {spec.blocks:,} blocks over {x} and {y}", panel_height(features))]
    # Irregular blocks first: what lies in their holes is drawn over them.
    shown = sorted(zip(blocks, read, strict=True), key=lambda block: not block[0].holes)
    see_through = ' fill-opacity="0.4"' if features else ""
    parts += [rectangle(r.box, f'fill="{_fill(r, is_read)}"{see_through} {_BLOCK}') for r, is_read in shown]
    holes = dict.fromkeys(rectangle(h.intersect(r.box), _HOLE) for r in blocks for h in r.holes)
    parts += holes
    parts += [rectangle(q, _QUERY) for q in queries]
    parts += [*_axes(x, y, domains), *_legend(bool(queries), any(r.holes for r in blocks))]
    parts += panel(features, _LEFT, _TOP + _SIZE + _BOTTOM)
    return "\n".join([*parts, "</svg>", ""])


def _shapes(
    spec: LayoutSpec, workload: Sequence[LoggedQuery], extents: Mapping[int, Box] | None
) -> tuple[list[Region], list[bool]]:
    """What is drawn of each block, and whether some query reads it."""
    blocks = regions(spec)
    if extents is not None:
        known = FeatureTable(spec)
        blocks = [Region(r.box.intersect(extents[i])) if i in extents else r for i, r in enumerate(blocks)]
        might = np.zeros(spec.blocks, bool)
        for q in workload:
            inside = RegionTable(blocks).might_match(to_boxes(q.predicate).boxes)
            might |= inside & known.might_match(q.predicate, q.opaque)
        held = sorted(i for i in extents if i < spec.blocks)  # the others hold no row
        return [blocks[i] for i in held], [bool(might[i]) for i in held]
    asked = (b for q in workload for b in to_boxes(q.predicate, spec.columns).boxes)
    return blocks, RegionTable(blocks).might_match(asked).tolist()


def _fill(region: Region, is_read: bool) -> str:
    if region.holes:
        return _IRREGULAR
    return _READ if is_read else _SKIPPED


def _head(title: str, below: int) -> str:
    width, height = _LEFT + _SIZE + _RIGHT, _TOP + _SIZE + _BOTTOM + below
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        f'<text x="{_LEFT}" y="36" font-size="18">{escape(title)}</text>'
    )


def _axes(x: str, y: str, domains: dict[str, tuple[Any, Any]]) -> list[str]:
    bottom, below, right, beside = _TOP + _SIZE, _TOP + _SIZE + 18, _LEFT + _SIZE, _LEFT - 8
    middle = _TOP + _SIZE / 2
    (x0, x1), (y0, y1) = domains[x], domains[y]
    small = 'font-size="12" fill="#444"'
    return [
        f'<text x="{_LEFT}" y="{below}" {small}>{escape(str(x0))}</text>',
        f'<text x="{right}" y="{below}" text-anchor="end" {small}>{escape(str(x1))}</text>',
        f'<text x="{_LEFT + _SIZE / 2}" y="{below}" text-anchor="middle" font-size="14">{escape(x)}</text>',
        f'<text x="{beside}" y="{bottom}" text-anchor="end" {small}>{escape(str(y0))}</text>',
        f'<text x="{beside}" y="{_TOP + 10}" text-anchor="end" {small}>{escape(str(y1))}</text>',
        f'<text x="{beside - 8}" y="{middle}" transform="rotate(-90 {beside - 8} {middle})" text-anchor="middle" '
        f'font-size="14">{escape(y)}</text>',
    ]


def _legend(queries: bool, irregular: bool) -> list[str]:
    """What the colours mean, of those that occur."""
    entries = [(f'fill="{_SKIPPED}" {_BLOCK}', "block")]
    if queries:
        entries = [(_QUERY, "query"), (f'fill="{_READ}" {_BLOCK}', "block that some query reads")]
        entries.append((f'fill="{_SKIPPED}" {_BLOCK}', "block that no query reads"))
    if irregular:
        entries.append((f'fill="{_IRREGULAR}" {_BLOCK}', "irregular block"))
        entries.append((_HOLE, "its holes"))
    found, at, level = [], float(_LEFT), _TOP + _SIZE + 40
    for style, meaning in entries:
        found.append(f'<rect x="{at:.0f}" y="{level}" width="14" height="14" {style}/>')
        found.append(f'<text x="{at + 20:.0f}" y="{level + 12}" font-size="12" fill="#444">{meaning}</text>')
        at += 45 + 6.5 * len(meaning)
    return found


class _Scale:
    """Places a column's values between 0 and 1: numbers and times by size, everything else by rank."""

    def __init__(self, column: str, domain: tuple[Any, Any], boxes: Sequence[Box]) -> None:
        low, high = domain
        self._number: Callable[[Any], float]
        if _as_number(low) is not None and _as_number(high) is not None:
            lowest, length = _as_number(low) or 0.0, (_as_number(high) or 0.0) - (_as_number(low) or 0.0)
            self._number = lambda v: ((_as_number(v) or 0.0) - lowest) / (length or 1.0)
            return
        bounds = [v for b in boxes for v in _bounds(b.intervals.get(column))]
        ranked = sorted({order_key(v): None for v in (low, high, *bounds) if v is not None})
        self._number = lambda v: bisect_left(ranked, order_key(v)) / max(1, len(ranked) - 1)

    def span(self, interval: Interval | None) -> tuple[float, float]:
        if interval is None:
            return 0.0, 1.0
        low = 0.0 if interval.lo is None else self._number(interval.lo)
        high = 1.0 if interval.hi is None else self._number(interval.hi)
        return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)


def _bounds(interval: Interval | None) -> list[Any]:
    return [] if interval is None else [v for v in (interval.lo, interval.hi) if v is not None]


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float | Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value.toordinal()) if isinstance(value, date) else None
