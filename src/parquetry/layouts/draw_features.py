"""The features of a layout, in words and numbers below its picture: they have no place in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from parquetry.layouts.pruning.features import items_of
from parquetry.layouts.pruning.subsume import implies
from parquetry.model.layout import Feature, FeatureLayout, LayoutSpec, NestedLayout
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import Anything, Opaque, text_of

_LINE, _BAR, _MOST_LETTERS, _MOST_FEATURES = 20, 60, 95, 40
_NOTES = (
    "Rows are told apart by the conditions below, which a picture of two columns cannot show. Rectangles are the",
    "smallest and largest values of each block's rows; they may overlap, and queries skip blocks by the conditions.",
)


@dataclass(frozen=True)
class FeatureLine:
    """A feature, the share of queries that it answers for, and the blocks that may hold rows of it."""

    text: str
    share: float | None  # None without queries
    blocks: int
    of: int


def feature_lines(spec: LayoutSpec, workload: Sequence[LoggedQuery]) -> list[FeatureLine]:
    """The features of a layout or of its parts, those of most queries first; none for layouts without features."""
    parts = [p for p in (spec.parts if isinstance(spec, NestedLayout) else (spec,)) if isinstance(p, FeatureLayout)]
    blocks: dict[Feature, int] = {}
    for part in parts:
        for i, feature in enumerate(part.features):
            held = sum(c.blocks for c in part.clusters if c.union >> i & 1)
            same = Feature(feature.predicate, feature.opaque)  # parts learn their weights apart
            blocks[same] = blocks.get(same, 0) + held
    total = sum(p.blocks for p in parts)
    lines = [FeatureLine(_text(f), _share(f, workload), held, total) for f, held in blocks.items()]
    return sorted(lines, key=lambda line: -(line.share or 0.0))


def _share(feature: Feature, workload: Sequence[LoggedQuery]) -> float | None:
    if not workload:
        return None
    items = items_of(feature)
    subsumed = [q for q in workload if all(_has(q, item) for item in items)]
    return len(subsumed) / len(workload)


def _has(query: LoggedQuery, item: object) -> bool:
    if isinstance(item, Opaque):
        return item in query.opaque
    return implies(query.predicate, item)  # type: ignore[arg-type]


def _text(feature: Feature) -> str:
    plain = [] if isinstance(feature.predicate, Anything) else [text_of(feature.predicate)]
    return " AND ".join([*plain, *(o.text for o in feature.opaque)]) or "every row"


def panel_height(lines: Sequence[FeatureLine]) -> int:
    return _LINE * (min(len(lines), _MOST_FEATURES) + len(_NOTES) + 3) if lines else 0


def panel(lines: Sequence[FeatureLine], left: int, top: int) -> list[str]:
    """A line for each feature: a bar as long as its share of the queries, its blocks, its condition."""
    if not lines:
        return []
    small = 'font-size="12" fill="#444"'
    found = [f'<text x="{left}" y="{top + i * _LINE}" {small}>{escape(t)}</text>' for i, t in enumerate(_NOTES)]
    top += len(_NOTES) * _LINE + 10
    titles = ((0, "share of queries"), (120, "blocks"), (200, "condition"))
    found += [
        f'<text x="{left + at}" y="{top}" font-size="12" font-weight="bold">{title}</text>' for at, title in titles
    ]
    for i, line in enumerate(lines[:_MOST_FEATURES], 1):
        y = top + i * _LINE
        share = "-" if line.share is None else f"{line.share:.0%}"
        text = line.text if len(line.text) <= _MOST_LETTERS else f"{line.text[: _MOST_LETTERS - 1]}…"
        width = _BAR * (line.share or 0.0)
        found += [
            f'<rect x="{left}" y="{y - 10}" width="{width:.1f}" height="12" fill="#c22" fill-opacity="0.4"/>',
            f'<text x="{left + _BAR + 6}" y="{y}" {small}>{share}</text>',
            f'<text x="{left + 120}" y="{y}" {small}>{line.blocks:,} of {line.of:,}</text>',
            f'<text x="{left + 200}" y="{y}" {small}>{escape(text)}</text>',
        ]
    if len(lines) > _MOST_FEATURES:
        left_out = f"… {len(lines) - _MOST_FEATURES} more; 'layout show' counts them"
        found.append(f'<text x="{left}" y="{top + (_MOST_FEATURES + 1) * _LINE}" {small}>{escape(left_out)}</text>')
    return found
