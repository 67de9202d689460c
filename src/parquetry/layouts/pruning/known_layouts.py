"""What is known of the blocks of a table by its layouts alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parquetry.layouts.pruning.prune import LayoutRegions
from parquetry.model.layout import layout_from_json
from parquetry.model.state import TableState
from parquetry.storage.cache import METADATA


def known_layouts(table: TableState) -> tuple[LayoutRegions, ...]:
    """The layouts that some deltas still have from before (3.4-10), then the table's own; made once per process."""
    own = {} if table.layout is None else {table.layout_id: table.layout}
    return tuple(_regions(table, layout_id, spec) for layout_id, spec in {**table.layouts, **own}.items())


def _regions(table: TableState, layout_id: int, layout: Mapping[str, Any]) -> LayoutRegions:
    def load() -> tuple[Mapping[str, Any], LayoutRegions]:
        return layout, LayoutRegions.of(layout_id, layout_from_json(layout))

    # The spec is kept beside its regions: another warehouse's could get the number of a freed one.
    key = ("regions", table.table_id, layout_id, id(layout))
    return METADATA.get(key, load, lambda r: 200 * r[1].table.count)[1]
