"""A query on its way through the rules: what each decided and why. ``explain`` prints it, the executors run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from parquetry.layouts.pruning.prune import Mask
from parquetry.model.delta import Delta
from parquetry.model.predicate import Predicate
from parquetry.model.state import TableState
from parquetry.query.planning.bind import BoundQuery, TableRef
from parquetry.query.planning.join_plan import JoinPlan
from parquetry.query.planning.snapshots import Snapshot
from parquetry.query.planning.speeds import ROUGH
from parquetry.query.planning.split_plan import SplitPlan
from parquetry.storage.scan.scan import KeptGroups, ReadTask, TableScan, columns_read, must_merge, read_tasks
from parquetry.storage.snapshot_index import SnapshotIndex, open_snapshot
from parquetry.storage.store import Store

Outcome = Literal["chosen", "considered", "refused", "off"]


@dataclass(frozen=True)
class Decision:
    """What one rule decided about one table, view or executor: in words, and as data."""

    rule: str
    decided: str
    why: str = ""
    about: str = ""
    outcome: Outcome = "chosen"
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TablePlan:
    """What is read of one table. Row groups are the units of skipping; ``files`` those that hold a kept one.

    ``masks`` are the row groups that each reference of the query needs; ``keep`` those that are read.
    """

    state: TableState
    deltas: tuple[Delta, ...]
    refs: tuple[TableRef, ...]
    index: SnapshotIndex | None = None  # None without deltas
    masks: tuple[Mask, ...] = ()
    keep: Mask | None = None
    skipped_by: Mapping[str, int] = field(default_factory=dict)  # row groups, by the rule that skipped them first
    merge: bool = False  # equal keys of several deltas must become one row
    key_filter: str | None = None  # a condition on the key, for rows that are not merged yet
    stored: bool = False  # of a view: the query was rewritten to name what is stored, not what the view shows

    @property
    def usable(self) -> frozenset[str]:
        """The columns whose stored values hold of every version of a row: conditions on them can skip."""
        return frozenset(self.state.schema.key if self.merge else self.state.schema.names)

    @cached_property
    def groups_total(self) -> int:
        return 0 if self.index is None else int(np.count_nonzero(~self.index.extra))

    @cached_property
    def groups_read(self) -> int:
        return 0 if self.keep is None else int(np.count_nonzero(self.keep))

    @property
    def rows(self) -> int:
        """In the kept row groups."""
        return 0 if self.kept is None else self.kept.rows

    @cached_property
    def bytes(self) -> int:
        """Of the kept row groups, all columns."""
        return 0 if self.index is None else int(self.index.bytes[self.keep].sum())

    @cached_property
    def files(self) -> frozenset[str]:
        index = self.index
        return frozenset() if index is None else frozenset(index.paths[i] for i in np.unique(index.path_of[self.keep]))

    def scan(self, named: Iterable[str]) -> TableScan:
        """What an executor reads for these columns."""
        named = tuple(named)
        columns = columns_read(self.state, named, merge=self.merge, visible=not self.stored)
        return TableScan(self.state, self.tasks, named, columns, self.merge, not self.stored, self.kept)

    @cached_property
    def tasks(self) -> tuple[ReadTask, ...]:
        return read_tasks(self.deltas, self.files)

    @cached_property
    def kept(self) -> KeptGroups | None:
        return None if self.index is None or self.keep is None else KeptGroups(self.index, self.keep)

    def narrowed(self, rule: str, masks: Sequence[Mask]) -> TablePlan:
        """The same table with only what ``masks`` leave of it; what that skips is the rule's merit."""
        keep = masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)
        skipped = self.groups_read - int(np.count_nonzero(keep))
        by = {**self.skipped_by, rule: skipped} if skipped else self.skipped_by
        return replace(self, masks=tuple(masks), keep=keep, skipped_by=by)

    def whole(self) -> TablePlan:
        """The same table with nothing skipped."""
        keep = None if self.index is None else ~self.index.extra
        return replace(self, masks=() if keep is None else (keep,) * len(self.refs), keep=keep, skipped_by={})

    @cached_property
    def delta_ids(self) -> tuple[str, ...]:
        return tuple(d.delta_id for d in self.deltas)

    @property
    def files_total(self) -> int:
        return len(read_tasks(self.deltas))

    @property
    def column_share(self) -> float:
        """The share of the columns that the query reads, as a rough share of the bytes."""
        named = [c for r in self.refs for c in r.columns]
        read = columns_read(self.state, named, merge=self.merge, visible=not self.stored)
        return len(read) / len(self.state.schema.columns)


def read_whole(
    snapshot: Snapshot, state: TableState, refs: tuple[TableRef, ...], store: Store, *, stored: bool = False
) -> TablePlan:
    """A table of which nothing is skipped, with equal keys merged."""
    deltas = snapshot.deltas(state)
    index = open_snapshot(store, deltas, state.schema) if deltas else None
    return TablePlan(state, deltas, refs, index, merge=must_merge(state, deltas), stored=stored).whole()


@dataclass(frozen=True, eq=False)
class Plan:
    """A query as far as it is decided how to answer it. Without any rule it is right, and reads everything."""

    bound: BoundQuery
    snapshot: Snapshot
    store: Store
    tables: Mapping[str, TablePlan]
    off: frozenset[str]
    wanted: str  # auto, local or spark
    splits: int | None = None  # how many the user wants
    executor: str = "spark"
    decisions: tuple[Decision, ...] = ()
    view: str | None = None  # the view that answers instead of the table
    asked: BoundQuery | None = None  # the user's own query, when a view answers it
    chosen_rows: int = 0  # to read, when this view or table was chosen
    picks: bool = False  # of a file only the kept row groups are read, where that is sooner done
    holds: bool = False  # rows may come from memory
    times: int = 1  # that the query was asked for, with this one
    plan_ms: float = 0.0
    slowness: Mapping[str, float] = field(default_factory=lambda: ROUGH)  # of each executor here (speeds.py)
    scan: SplitPlan | None = None  # how Spark's part is cut for scan workers
    induced: tuple[Predicate, ...] = ()  # what joins say of each reference of the user's query, for the log
    ways: tuple[JoinPlan, ...] = ()  # to deal a join to workers
    join: JoinPlan | None = None  # the one that is taken

    def decide(self, decision: Decision, **changes: Any) -> Plan:
        return replace(self, decisions=(*self.decisions, decision), **changes)

    def with_table(self, name: str, table: TablePlan) -> Plan:
        return replace(self, tables={**self.tables, name: table})

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
    def in_workers(self) -> bool:
        """Whether workers on Spark read the files, and not Spark itself."""
        return self.scan is not None or self.join is not None

    @property
    def bytes_estimate(self) -> int:
        return int(sum(t.bytes * t.column_share for t in self.tables.values()))
