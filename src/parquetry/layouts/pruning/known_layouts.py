"""What is known of the blocks of a table by its layouts alone."""

from __future__ import annotations

from parquetry.layouts.pruning.prune import LayoutRegions
from parquetry.model.layout import LayoutSpec
from parquetry.model.state import TableState
from parquetry.storage.cache import METADATA


def known_layouts(table: TableState) -> tuple[LayoutRegions, ...]:
    """The layouts that some deltas still have from before (3.4-10), then the table's own; made once per process."""
    own = {} if table.layout is None else {table.layout_id: table.layout}
    return tuple(_regions(table, layout_id, spec) for layout_id, spec in {**table.layouts, **own}.items())


def _regions(table: TableState, layout_id: int, spec: LayoutSpec) -> LayoutRegions:
    def load() -> tuple[LayoutSpec, LayoutRegions]:
        return spec, LayoutRegions.of(layout_id, spec)

    # The spec is kept beside its regions: another warehouse's could get the number of a freed one.
    key = ("regions", table.table_id, layout_id, id(spec))
    return METADATA.get(key, load, lambda r: 200 * r[1].table.count)[1]
