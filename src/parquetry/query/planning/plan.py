"""A query on its way through the rules: what each decided and why. ``explain`` prints it, the executors run it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from parquetry.layouts.pruning.prune import Mask
from parquetry.model.delta import Delta
from parquetry.model.state import TableState
from parquetry.model.view import ROWS
from parquetry.query.planning.bind import BoundQuery, TableRef
from parquetry.query.planning.snapshots import Snapshot
from parquetry.storage.snapshot_index import SnapshotIndex

if TYPE_CHECKING:
    from parquetry.query.planning.split_plan import SplitPlan


PIECE_ROWS = 1 << 15
Piece = tuple[str, int]
"""A file's path, and a number: of its row groups, those that start within so many times ``PIECE_ROWS``."""


@dataclass(frozen=True)
class Decision:
    """One rule's decision, in words."""

    rule: str
    decided: str
    why: str = ""


@dataclass(frozen=True, eq=False)
class TablePlan:
    """What is read of one table. Row groups are the units of skipping; ``files`` those that hold a kept one."""

    state: TableState
    deltas: tuple[Delta, ...]
    refs: tuple[TableRef, ...]
    groups_total: int = 0
    groups_read: int = 0
    rows: int = 0  # in the kept row groups
    bytes: int = 0  # of the kept row groups, all columns
    files: frozenset[str] = frozenset()
    index: SnapshotIndex | None = None
    keep: Mask | None = None  # the kept row groups of ``index``
    skipped_by: dict[str, int] = field(default_factory=dict)
    merge: bool = False  # equal keys of several deltas must become one row
    stored: bool = False  # of a view: the query was rewritten to name what is stored, not what the view shows

    def stored_columns(self, named: Iterable[str]) -> set[str]:
        """The stored columns that the columns a query names are read from."""
        view = self.state.view
        if view is None:
            return set(named)
        hidden = {ROWS} if view.spec.hides_rows else set()
        return set(named) | hidden if self.stored else view.spec.stored_for(set(named))

    def whole(self) -> TablePlan:
        """The same table with nothing skipped."""
        files = frozenset(f.path for d in self.deltas for f in d.files if not f.extra)
        return replace(self, files=files, groups_read=self.groups_total, keep=None, skipped_by={})

    def row_groups(self) -> dict[str, list[int]]:
        """The ordinals of the kept row groups in each file, in the files' order."""
        if self.index is None or self.keep is None or not self.keep.any():
            return {}
        paths, ordinals = self.index.path_of[self.keep], self.index.row_group[self.keep]
        order = np.lexsort((ordinals, paths))
        files, starts = np.unique(paths[order], return_index=True)
        parts = np.split(ordinals[order], starts[1:])
        return {self.index.paths[f]: part.tolist() for f, part in zip(files.tolist(), parts, strict=True)}

    @cached_property
    def delta_ids(self) -> tuple[str, ...]:
        return tuple(d.delta_id for d in self.deltas)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of files that the kept row groups lie in."""
        if self.index is None or self.keep is None:
            return ()
        paths, numbers = self.index.path_of[self.keep], self.index.first_row[self.keep] // PIECE_ROWS
        found = dict.fromkeys(zip(paths.tolist(), numbers.tolist(), strict=True))
        return tuple((self.index.paths[path], number) for path, number in found)

    def row_ranges(self) -> dict[str, list[tuple[int, int]]]:
        """The kept rows of each file as ranges of their numbers, the last one included; neighbours are joined."""
        if self.index is None or self.keep is None:
            return {}
        found: dict[str, list[tuple[int, int]]] = {}
        kept = np.flatnonzero(self.keep)
        kept = kept[np.lexsort((self.index.row_group[kept], self.index.path_of[kept]))]
        first, rows = self.index.first_row[kept], self.index.rows[kept]
        for path, a, n in zip(self.index.path_of[kept].tolist(), first.tolist(), rows.tolist(), strict=True):
            ranges = found.setdefault(self.index.paths[path], [])
            if ranges and ranges[-1][1] == a - 1:
                ranges[-1] = (ranges[-1][0], a + n - 1)
            else:
                ranges.append((a, a + n - 1))
        return found

    @property
    def rows_in_files(self) -> int:
        """Of the files that hold a kept row group: what a reader reads that skips nothing below the file."""
        if self.index is None or self.keep is None:
            return 0
        read = np.zeros(len(self.index.paths), bool)
        read[self.index.path_of[self.keep]] = True
        return int(self.index.rows[read[self.index.path_of]].sum())

    @property
    def files_total(self) -> int:
        return sum(not f.extra for d in self.deltas for f in d.files)

    @property
    def column_share(self) -> float:
        """The share of the columns that the query reads, as a rough share of the bytes."""
        named = self.stored_columns(c for r in self.refs for c in r.columns)
        used = named | (set(self.state.schema.key) if self.merge else set())
        return max(1, len(used)) / len(self.state.schema.columns)


@dataclass
class Uses:
    """How often a query was asked, at this QT and at earlier ones."""

    times: int = 0

    @property
    def often(self) -> bool:
        return self.times > 8


@dataclass(frozen=True, eq=False)
class Plan:
    bound: BoundQuery
    snapshot: Snapshot
    tables: dict[str, TablePlan]
    off: frozenset[str]
    wanted: str  # auto, local or spark
    executor: str = ""
    decisions: tuple[Decision, ...] = ()
    view: str | None = None  # the view that answers instead of the table
    asked: BoundQuery | None = None  # the user's own query, when a view answers it
    chosen_rows: int = 0  # to read, when this view or table was chosen
    uses: Uses = field(default_factory=Uses)
    plan_ms: float = 0.0
    read: dict[str, int] = field(default_factory=dict)  # by the first local run; files never change, so by any other
    scan: SplitPlan | None = None  # how Spark's part is cut for scan workers

    def decide(self, rule: str, decided: str, why: str = "", **changes: Any) -> Plan:
        return replace(self, decisions=(*self.decisions, Decision(rule, decided, why)), **changes)

    def at(self, snapshot: Snapshot) -> Plan:
        """The same plan for a reader of ``snapshot``, which may show it other deltas."""
        first, *more = self.decisions
        return replace(self, snapshot=snapshot, decisions=(replace(first, why=snapshot.named), *more))

    def reads(self, snapshot: Snapshot) -> bool:
        """Whether it reads the deltas that ``snapshot`` shows."""
        return all(snapshot.ids(n) == t.delta_ids for n, t in self.tables.items())

    @property
    def rows(self) -> int:
        """To read: all rows of the kept row groups."""
        return sum(t.rows for t in self.tables.values())

    @property
    def bytes_estimate(self) -> int:
        return int(sum(t.bytes * t.column_share for t in self.tables.values()))
