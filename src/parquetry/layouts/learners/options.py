"""What a learner may be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from parquetry.errors import SchemaError
from parquetry.model.layout import Feature
from parquetry.model.layout_options import UserOptions
from parquetry.model.values import value_from_json, value_to_json

CountVectors = Callable[[Sequence[Feature]], Mapping[int, int]]
"""How many rows have each feature vector."""
_OF_ONE_TABLE = {"sample_rate", "count_vectors"}  # what a learner is told of the rows at hand, not by the user


@dataclass(frozen=True)
class LearnOptions(UserOptions):
    """What a learner is told: what the user says, of which rows it learns, and knobs that only the papers have."""

    block_rows: int
    """No block gets fewer rows of the whole table than this, the paper's b_min (PW-01)."""
    sample_rate: float = 1.0
    """Rows of the sample by rows of the table; block sizes in the sample scale with it (PW-20, 3.5-21)."""
    columns: tuple[str, ...] | None = None
    """Columns that blocks may be cut on; None: those that the workload filters."""
    delta_estimate: str = "hausdorff"
    """How it is estimated: "hausdorff" (nearest earlier query) or "matching" (one to one) (3.5-12)."""
    delta_quantile: float = 0.75
    """Share of the later queries that the estimate must reach. 1 is the paper's; less forgives outliers (3.5-12)."""
    alpha: float = 10.0
    """PAW tries groups on nodes of at most so many blocks (PW-15, 3.5-1)."""
    refine: bool = True
    """Cut what no query touches further by medians, so that unforeseen queries skip too (PW-19)."""
    count_vectors: CountVectors | None = None
    """warp: counts the feature vectors of the whole table; None: of the sample only (WP-08)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block_rows < 1:
            raise SchemaError(f"block_rows must be at least 1, not {self.block_rows}")
        if not 0 < self.sample_rate <= 1:
            raise SchemaError(f"sample_rate is a share of the table's rows above 0 and up to 1, not {self.sample_rate}")
        if self.alpha < 2:
            raise SchemaError(f"alpha must be at least 2 blocks, not {self.alpha}")
        if self.delta_estimate not in ("hausdorff", "matching"):
            raise SchemaError(f"delta_estimate is hausdorff or matching, not '{self.delta_estimate}'")
        if not 0 < self.delta_quantile <= 1:
            raise SchemaError(f"delta_quantile lies above 0 and up to 1, not {self.delta_quantile}")

    @property
    def sample_block_rows(self) -> int:
        return max(1, round(self.block_rows * self.sample_rate))

    def to_json(self) -> dict[str, Any]:
        """All that the user said, so that other rows can be laid out alike."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _OF_ONE_TABLE}
        told["columns"] = None if self.columns is None else list(self.columns)
        told["weights"] = None if self.weights is None else dict(self.weights)
        if isinstance(self.delta, Mapping):
            told["delta"] = {column: _amount_to_json(amount) for column, amount in self.delta.items()}
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any], sample_rate: float) -> LearnOptions:
        """The same options for another sample; what an older release did not keep is as it is by default."""
        unknown = set(told) - {f.name for f in fields(cls)}
        if unknown:
            raise SchemaError(f"a layout has the unknown option '{min(unknown)}'; it was written by a newer release")
        columns, delta = told.get("columns"), told.get("delta")
        if isinstance(delta, Mapping):
            delta = {column: _amount_from_json(amount) for column, amount in delta.items()}
        columns = None if columns is None else tuple(columns)
        return cls(**{**told, "columns": columns, "delta": delta, "sample_rate": sample_rate})


def _amount_to_json(amount: Any) -> Any:
    if isinstance(amount, timedelta):
        return {"microseconds": amount // timedelta(microseconds=1)}
    return value_to_json(amount)


def _amount_from_json(encoded: Any) -> Any:
    if isinstance(encoded, dict) and "microseconds" in encoded:
        return timedelta(microseconds=encoded["microseconds"])
    return value_from_json(encoded)
