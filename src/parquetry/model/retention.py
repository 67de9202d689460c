"""How long the catalog remembers what no reader needs: the retention policy of a warehouse."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from parquetry.errors import SchemaError

_DAY_S = 24 * 3600


@dataclass(frozen=True)
class Retention:
    """Everything else in the catalog grows with what is stored, not with time."""

    grace_s: int = _DAY_S
    """Replaced files, and with them the versions that read them, stay so long. Longer = more disk."""
    history_s: int = 7 * _DAY_S
    """Commits of ingestion and maintenance stay in ``history`` so long; those that define something stay for ever."""
    labels_s: int = 30 * _DAY_S
    """A label is known so long: a batch repeated later counts as a new one. At least one day."""
    queries_s: int = 30 * _DAY_S
    """A query stays in the log at most so long."""
    queries_rows: int = 200_000
    """The log has at most so many queries."""
    queries_bytes: int = 256 << 20
    """The texts and figures of the log take at most so many bytes."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            least = _DAY_S if f.name == "labels_s" else 0
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise SchemaError(f"retention '{f.name}' is a whole number of at least {least}, not {value!r}")

    def changed(self, changes: Mapping[str, int]) -> Retention:
        unknown = sorted(set(changes) - set(names()))
        if unknown:
            raise SchemaError(f"unknown retention setting '{unknown[0]}'; settings: {', '.join(sorted(names()))}")
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, int]:
        return dataclasses.asdict(self)


def names() -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(Retention))
