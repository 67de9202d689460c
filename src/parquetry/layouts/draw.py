"""A picture of a layout over two columns: blocks, irregular ones with their holes, and the queries (PW-27)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from html import escape
from typing import Any

from parquetry.layouts.regions import Region, regions
from parquetry.model.box import Box, Interval
from parquetry.model.layout import LayoutSpec
from parquetry.model.values import order_key
from parquetry.model.workload import LoggedQuery
from parquetry.workload.boxes import to_boxes

_SIZE, _MARGIN = 760, 60
_FILLS = ("#eef3fa", "#e3ecf7", "#f2f0fa", "#eaf5f0", "#f8f4e8", "#f7eef0")


def draw_svg(
    spec: LayoutSpec,
    x: str,
    y: str,
    domains: dict[str, tuple[Any, Any]],
    workload: Sequence[LoggedQuery] = (),
    title: str = "",
) -> str:
    """An SVG document. ``domains`` gives the lowest and highest value of both columns.

    Blocks that differ only in other columns lie on top of each other, as a projection must.
    """
    blocks = regions(spec)
    queries = [box for q in workload for box in to_boxes(q.predicate, (x, y)).boxes if box.intervals]
    across = _Scale(x, domains[x], [*(r.box for r in blocks), *(h for r in blocks for h in r.holes), *queries])
    upward = _Scale(y, domains[y], [*(r.box for r in blocks), *(h for r in blocks for h in r.holes), *queries])

    def rectangle(box: Box, style: str) -> str:
        x0, x1 = across.span(box.intervals.get(x))
        y0, y1 = upward.span(box.intervals.get(y))
        left, top = _MARGIN + x0 * _SIZE, _MARGIN + (1 - y1) * _SIZE
        width, height = max(0.5, (x1 - x0) * _SIZE), max(0.5, (y1 - y0) * _SIZE)
        return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" {style}/>'

    parts = [_head(title or f"{spec.learner}: {spec.blocks:,} blocks over {x} and {y}")]
    parts += [rectangle(r.box, _block_style(i, r)) for i, r in enumerate(blocks)]
    hole = 'fill="none" stroke="#7a5c1e" stroke-width="0.8" stroke-dasharray="3 2"'
    parts += [rectangle(h, hole) for r in blocks for h in r.holes]
    query = 'fill="#d33" fill-opacity="0.10" stroke="#c22" stroke-width="1.2"'
    parts += [rectangle(q, query) for q in queries]
    parts += _axes(x, y, domains)
    return "\n".join([*parts, "</svg>", ""])


def _block_style(i: int, region: Region) -> str:
    fill = "#fbf3d9" if region.holes else _FILLS[i % len(_FILLS)]
    return f'fill="{fill}" stroke="#5b6b80" stroke-width="0.5"'


def _head(title: str) -> str:
    side = _SIZE + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side} {side + 30}" font-family="sans-serif">\n'
        f'<rect width="{side}" height="{side + 30}" fill="white"/>\n'
        f'<text x="{_MARGIN}" y="32" font-size="18">{escape(title)}</text>'
    )


def _axes(x: str, y: str, domains: dict[str, tuple[Any, Any]]) -> list[str]:
    bottom, end = _MARGIN + _SIZE + 18, _MARGIN + _SIZE
    (x0, x1), (y0, y1) = domains[x], domains[y]
    small = 'font-size="12" fill="#444"'
    legend = "blue: blocks · sand: irregular blocks, dashed: their holes · red: queries"
    return [
        f'<text x="{_MARGIN}" y="{bottom}" {small}>{escape(str(x0))}</text>',
        f'<text x="{end}" y="{bottom}" text-anchor="end" {small}>{escape(str(x1))}</text>',
        f'<text x="{_MARGIN + _SIZE / 2}" y="{bottom}" text-anchor="middle" font-size="14">{escape(x)}</text>',
        f'<text x="{_MARGIN - 6}" y="{end}" text-anchor="end" {small}>{escape(str(y0))}</text>',
        f'<text x="{_MARGIN - 6}" y="{_MARGIN + 10}" text-anchor="end" {small}>{escape(str(y1))}</text>',
        f'<text x="{_MARGIN - 6}" y="{_MARGIN + _SIZE / 2}" text-anchor="end" font-size="14">{escape(y)}</text>',
        f'<text x="{_MARGIN}" y="{bottom + 26}" {small}>{legend}</text>',
    ]


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
