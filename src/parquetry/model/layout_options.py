"""What a user may say about a layout, listed once: the command line makes an option of every field that has a help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parquetry.errors import SchemaError

MOST_FEATURES = 512


def _said(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class UserOptions:
    """What learners are told as the user says it; each uses what concerns it."""

    delta: float | Mapping[str, Any] | None = _said(
        None, "How far queries may drift, as a share of a column's range; else estimated."
    )
    """Programs may give an amount per column instead (PW-06, PW-18)."""
    variant: str = _said("", "A learner's variant, such as paper for paw, warp and robust; else its best one.")
    """kdtree "skip" or "stop"; qdtree "history" or "extended"; paw "foresight" or "paper"; robust and two_phase "even"
    or "paper"; warp "greedy" or "paper". Empty: the first."""
    weights: Mapping[str, float] | None = _said(
        None, "robust, two_phase: how much columns count, as a=3,b=0.5; 1 for others."
    )  # RB-09
    join: str | None = _said(None, "two_phase: the join column; else the first of the key.")  # RB-24
    join_levels: int | None = _said(
        None, "two_phase: levels cut on it; else by the log, or half."
    )  # rounded up (3.3-26)
    features: int = _said(15, "warp: conditions that rows are told apart by.")  # WP-06
    seed: int = 0

    def __post_init__(self) -> None:
        for column, weight in (self.weights or {}).items():
            if not 0 <= weight < math.inf:
                raise SchemaError(f"the weight of column '{column}' is a number of at least 0, not {weight}")
        if not 1 <= self.features <= MOST_FEATURES:
            raise SchemaError(f"features is a number from 1 to {MOST_FEATURES}, not {self.features}")
        if self.join_levels is not None and self.join_levels < 0:
            raise SchemaError(f"join_levels cannot be negative: {self.join_levels}")
        if isinstance(self.delta, int | float) and self.delta < 0:
            raise SchemaError(f"delta cannot be negative: {self.delta}")


@dataclass(frozen=True, kw_only=True)
class RelayoutOptions(UserOptions):
    """What ``relayout`` may be told; None is a sensible default."""

    block_rows: int | None = _said(None, "The least rows of a block; by default by the table.")
    columns: Sequence[str] | None = _said(None, "Cut on these columns only, comma-separated.")
    sample_rows: int = _said(1_000_000, "Learn from about so many rows.")
    cells: int = _said(8, "Cells that order the rows inside a block; 1 is none.")  # each a row group if large enough
    extra_space: float = _said(0.0, "Store much-asked regions twice, up to this share of the table's rows.")  # PW-22
    within: str | None = _said(None, "Lay out each range by itself: COLUMN:year, :month, :day or :N ranges.")  # WP-18
    range: str | None = _said(None, "Only the ranges that FROM..TO touches, of a table laid out in ranges.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.extra_space < math.inf:
            raise SchemaError(f"extra_space is a share of the table's rows of at least 0, not {self.extra_space}")
