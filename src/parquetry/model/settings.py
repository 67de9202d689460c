"""Settings of a table, in two groups: what changes behaviour, and what changes only speed and cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parquetry.errors import SchemaError

VIEW_GROUP_ROWS = 16_384
"""``row_group_rows`` of views: most queries want few of a view's rows, and a scan of all of them is short."""


DEFAULT = "default"
"""The value that hands a setting back to the database's profile, or to the default where there is none."""


@dataclass(frozen=True)
class Settings:
    # -- changes behaviour: what a reader sees, and when ------------------------------------------
    max_query_deltas: int = 16
    """A query opens at most so many deltas; the QT waits for compaction beyond that (NA-21). Lower = faster, staler."""

    # -- changes speed and cost only --------------------------------------------------------------
    compaction_width: int = 4
    """Compaction starts when so many neighbouring deltas of similar size wait. Lower = fewer deltas, more rewriting."""
    compaction_fan_in: int = 1000
    """One compaction reads at most so many deltas (NA-44)."""
    row_group_rows: int = 122_880
    """Rows of one row group: the unit of skipping inside a file. Smaller = faster lookups, slower scans."""
    block_group_rows: int = 1024
    """Under a learned layout a row group ends at a block's end once it has so many rows. Larger = fewer row groups."""
    descriptor_boxes: int = 0
    """Under a learned layout, precise boxes kept per row group (PW-21): 0 is off, 3 skips more and costs write time."""
    file_bytes: int = 256 << 20
    """A data file is closed at about this size."""
    in_process_bytes: int = 32 << 20
    """A batch, compaction or refresh of at most so many bytes in memory is written without Spark; 0 is never."""
    min_split_bytes: int = 16 << 20
    """A scan worker gets at least about so much to read (PP-19). Smaller = more workers for small queries."""
    max_split_bytes: int = 1 << 30
    """A query gets more splits than cores when they would otherwise be larger than this (PP-20)."""
    leaf_capacity: int = 10
    """Entries of a leaf node of the index, that is data blocks per row group (PP-10)."""
    inner_capacity: int = 1000
    """Entries of an inner node of the index (PP-10)."""
    compression: str = "snappy"
    """Parquet codec: snappy, zstd, lz4 or none."""

    # -- no setting, but whose they are -----------------------------------------------------------
    given: tuple[str, ...] = ()
    """The settings that a user has chosen for this table: a profile leaves them alone."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            least = 0 if f.name in ("descriptor_boxes", "in_process_bytes") else 1
            if f.type == "int" and (not isinstance(value, int) or value < least):
                raise SchemaError(f"setting '{f.name}' must be a whole number of at least {least}, not {value!r}")
        if self.max_query_deltas < 2:
            # What is visible and what is not yet cannot be merged with each other, so a table may need one of each.
            raise SchemaError("max_query_deltas must be at least 2")
        if self.compaction_width < 2 or self.compaction_fan_in < 2:
            raise SchemaError("compaction merges at least 2 deltas: raise compaction_width and compaction_fan_in")
        if self.compression not in ("snappy", "zstd", "lz4", "none"):
            raise SchemaError(f"unknown compression '{self.compression}'; use snappy, zstd, lz4 or none")

    @classmethod
    def names(cls) -> list[str]:
        return [f.name for f in dataclasses.fields(cls) if f.name != "given"]

    def changed(self, changes: Mapping[str, Any], otherwise: Settings) -> Settings:
        """The settings with a user's changes; what is changed to ``default`` is as ``otherwise``, and no longer the
        user's."""
        for name in sorted(set(changes) - set(self.names())):
            raise SchemaError(f"unknown setting '{name}'; settings: {', '.join(sorted(self.names()))}")
        back = {name for name, value in changes.items() if value is None or value == DEFAULT}
        values = {name: getattr(otherwise, name) if name in back else value for name, value in changes.items()}
        given = (set(self.given) | set(changes)) - back
        return dataclasses.replace(self, **values, given=tuple(sorted(given)))

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.names()}
        return {**told, "given": list(self.given)} if self.given else told

    @classmethod
    def from_json(cls, d: Mapping[str, Any]) -> Settings:
        unknown = set(d) - set(cls.names()) - {"given"}
        if unknown:
            raise SchemaError(f"unknown setting '{min(unknown)}'; settings: {', '.join(sorted(cls.names()))}")
        return cls(**{**d, "given": tuple(d.get("given", ()))})
