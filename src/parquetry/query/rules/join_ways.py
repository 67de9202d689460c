"""Three ways to deal a join to workers without a shuffle: in equal ranges, in groups of blocks, or one table alone.

Each gives what every worker reads of every table, or the reason why it cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from parquetry.joins.co_range import cut_together
from parquetry.joins.hyper import common_ranges, hyper_groups
from parquetry.model.types import is_float, is_nested
from parquetry.query.compile.alignment import Alignment
from parquetry.query.compile.join_parts import JoinParts
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.compile.whole import Mention
from parquetry.query.planning.join_plan import JoinPlan
from parquetry.query.planning.plan import Plan, TablePlan
from parquetry.splits.assignment import SplitTask, assign, assign_by_delta
from parquetry.splits.cut import Precision, Split
from parquetry.splits.delta_index import DeltaIndex
from parquetry.splits.entries import Mask
from parquetry.splits.selection import Wish
from parquetry.storage.scan.scan import layout_of, stored_columns

_EVERYTHING = Split(None, None, 0.0, 0.0, 0.0)
_MOST_ANCHORS = 3  # the largest tables are tried: to deal out another would read more
_TASKS_PER_CORE = 2  # so that one that takes longer holds up less
_GROWTH = 4  # compressed bytes to those in memory, roughly


@dataclass(frozen=True, eq=False)
class Dealing:
    """A query that could be dealt out, and what it would be dealt to."""

    plan: Plan
    parts: JoinParts
    alignment: Alignment
    workers: int
    memory: int  # of one worker
    asked: int | None  # how many parts the user wants

    @cached_property
    def nodes(self) -> Mapping[int, Mention]:
        """The mentions by their place in the tree."""
        by_number = {m.number: m for m in self.parts.mentions}
        return {node: by_number[n] for node, n in self.parts.nodes.items() if n in by_number}

    def table(self, m: Mention) -> TablePlan:
        return self.plan.tables[m.table]

    def share(self, m: Mention) -> float:
        t = self.table(m)
        named = stored_columns(t.state, m.columns, visible=not t.stored)
        return max(1, len(named | (set(t.state.schema.key) if t.merge else set()))) / len(t.state.schema.columns)

    def bytes(self, m: Mention) -> float:
        return self.table(m).bytes * self.share(m)

    def rest(self, dealt: Iterable[Mention]) -> float:
        """The bytes of the tables that everyone reads whole."""
        known = {m.number for m in dealt}
        return sum(self.bytes(m) for m in self.parts.mentions if m.number not in known)

    @cached_property
    def anchors(self) -> list[int]:
        """The largest tables whose rows can be dealt out, the largest first."""
        found = [n for n in self.alignment.anchors if n in self.nodes and self.table(self.nodes[n]).groups_read]
        return sorted(found, key=lambda n: -self.bytes(self.nodes[n]))[:_MOST_ANCHORS]

    def span(self, join: JoinPlan) -> float:
        """The bytes that the worker with most to do reads."""
        return max(join.bytes / self.workers, join.largest)

    def wanted(self, size: float) -> int:
        """How many parts of a query of this size."""
        if self.asked is not None:
            return self.asked
        fits = self.memory / _GROWTH
        return max(_TASKS_PER_CORE * self.workers, math.ceil(size / fits))


Way = Callable[[Dealing], JoinPlan | Refusal]
Dealt = list[tuple[dict[int, SplitTask], float]]
"""For each worker what it reads of the mentions that are not read whole, and how many bytes that is."""


def co_range(d: Dealing) -> JoinPlan | Refusal:
    """All tables that lie in the order of the join attribute are cut at the same values."""
    refused: list[str] = []
    found: list[JoinPlan] = []
    for anchor in d.anchors:
        first, t = d.nodes[anchor], d.table(d.nodes[anchor])
        column = t.state.schema.key[0]
        if why := _not_in_order(t, column):
            refused.append(f"{first.table} {why}")
            continue
        others = [m for m, _ in _aligned(d, anchor, column, _not_in_order, refused)]
        if not others:
            refused.append(f"nothing lies in the order of {first.table}.{column} beside it")
            continue
        dealt = _cut(d, [first, *others])
        told = f"{first.table} and {', '.join(m.table for m in others)} cut at the same {column}"
        found.append(_planned(d, "co_range_join", dealt, told))
    return min(found, key=d.span) if found else Refusal("; ".join(dict.fromkeys(refused)) or "no anchor")


def hyper(d: Dealing) -> JoinPlan | Refusal:
    """Groups of one table's blocks, each with the blocks of the others whose values of the join attribute overlap."""
    refused: list[str] = []
    found: list[JoinPlan] = []
    for anchor in d.anchors:
        first, t = d.nodes[anchor], d.table(d.nodes[anchor])
        for column in d.alignment.columns(anchor):
            if why := _no_bounds(t, column):
                refused.append(f"{first.table} {why}")
                continue
            aligned = _aligned(d, anchor, column, _no_bounds, refused)
            others = [(m, name) for m, name in aligned if d.table(m).groups_read]
            if not others:
                refused.append(f"nothing else has bounds that meet {first.table}.{column}")
                continue
            dealt = _group(d, (first, column), others)
            if dealt is None:
                refused.append(f"{first.table} has too many blocks to compare")
                continue
            blocks = sum(len(task.parts) for reads, _ in dealt for task in reads.values())
            met = ", ".join(m.table for m, _ in others)
            told = f"blocks of {first.table} in groups by {column}, with those of {met}: {blocks} pieces of files"
            found.append(_planned(d, "hyper_join", dealt, told))
    return min(found, key=d.span) if found else Refusal("; ".join(dict.fromkeys(refused)) or "no anchor")


def _aligned(
    d: Dealing, anchor: int, column: str, why_not: Callable[[TablePlan, str], str], refused: list[str]
) -> list[tuple[Mention, str]]:
    """The other tables with the column that meets the anchor's; why one of them cannot is added to ``refused``."""
    first = d.nodes[anchor]
    kind = d.table(first).state.schema.column(column).arrow
    found = []
    for node, name in d.alignment.aligned(anchor, column).items():
        m = d.nodes.get(node)
        if m is None or m is first:
            continue
        if why := why_not(d.table(m), name):
            refused.append(f"{m.table} {why}")
        elif d.table(m).state.schema.column(name).arrow != kind:
            refused.append(f"{m.table}.{name} has another type than {first.table}.{column}")
        else:
            found.append((m, name))
    return found


def broadcast(d: Dealing) -> JoinPlan | Refusal:
    """The largest table is dealt out, and everyone reads all of the others."""
    if not d.anchors:
        return Refusal("there is nothing to deal out")
    first = d.nodes[d.anchors[0]]
    t = d.table(first)
    if not t.merge:
        assert t.index is not None
        assert t.keep is not None
        tasks = assign_by_delta(t.index, t.keep, t.deltas, d.wanted(d.bytes(first)))
        dealt: Dealt = [({first.number: task}, d.bytes(first) / len(tasks)) for task in tasks]
    elif why := _not_in_order(t, t.state.schema.key[0]):
        return Refusal(f"{first.table} has to be merged by key, and {why}")
    else:
        dealt = _cut(d, [first])
    return _planned(d, "broadcast_join", dealt, f"{first.table} dealt out, all else read by everyone")


def one_worker(plan: Plan, parts: JoinParts, memory: int) -> JoinPlan | Refusal:
    """The whole query in one worker."""
    tables = {m.table: plan.tables[m.table] for m in parts.mentions}
    size = sum(t.bytes * t.column_share for t in tables.values())
    if size * _GROWTH > memory:
        return Refusal(f"about {int(size):,} bytes are too many for one worker")
    whole = {n: _whole(t) for n, t in tables.items()}
    task = tuple(whole[m.table] for m in parts.mentions)
    return JoinPlan("one_worker", parts, (task,), size, size, 0.0, "the whole query in one worker")


def _planned(d: Dealing, way: str, dealt: Dealt, told: str) -> JoinPlan:
    """The plan in which every worker also reads all of the tables that nothing is said of."""
    known = set(dealt[0][0])
    whole = {m.table: _whole(d.table(m)) for m in d.parts.mentions if m.number not in known}
    tasks = tuple(tuple(reads.get(m.number) or whole[m.table] for m in d.parts.mentions) for reads, _ in dealt)
    rest = d.rest(m for m in d.parts.mentions if m.number in known)
    sizes = [size + rest for _, size in dealt]
    return JoinPlan(way, d.parts, tasks, sum(sizes), max(sizes), 0.0, told)


def _cut(d: Dealing, mentions: list[Mention]) -> Dealt:
    """Tables in the order of their leading key columns, cut at the same values; the first one is dealt out."""
    plans = [d.table(m) for m in mentions]
    there = [
        (m, t, t.index, t.keep)
        for m, t in zip(mentions, plans, strict=True)
        if t.index is not None and t.keep is not None
    ]
    indexes = [DeltaIndex(index, t.deltas, d.plan.store, keep) for _, t, index, keep in there]
    first = plans[0].state.schema
    splits = cut_together(
        indexes,
        [d.share(m) for m, *_ in there],
        first.column(first.key[0]).arrow,
        Wish(d.wanted(sum(d.bytes(m) for m in mentions))),
        Precision(),
    )
    dealt: Dealt = []
    for i, split in enumerate(splits):
        reads = {m.number: _part(t, split, i) for m, t in zip(mentions, plans, strict=True)}
        if reads[mentions[0].number].parts or (i + 1 == len(splits) and not dealt):
            dealt.append((reads, split.size))
    return dealt


def _group(d: Dealing, anchor: tuple[Mention, str], others: list[tuple[Mention, str]]) -> Dealt | None:
    t = d.table(anchor[0])
    sides = []
    for m, column in (anchor, *others):
        side = d.table(m)
        assert side.index is not None
        assert side.keep is not None
        at = np.flatnonzero(side.keep)
        sides.append((m, side, at, tuple(end.take(at) for end in side.index.ends(column))))
    ranges = common_ranges([(low, high) for *_, (low, high) in sides])
    assert t.index is not None
    sizes = t.index.bytes[sides[0][2]]
    wanted = d.wanted(sum(d.bytes(m) for m, _ in (anchor, *others)))
    most = max(1, int(d.memory / _GROWTH / d.share(anchor[0])))
    groups = hyper_groups(ranges[0], sizes, ranges[1:], most, wanted, whole_values=t.merge)
    if groups is None:
        return None
    dealt: Dealt = []
    for i, group in enumerate(groups):
        reads, size = {}, 0.0
        for (m, side, at, _), blocks in zip(sides, (group.build, *group.probes), strict=True):
            assert side.index is not None
            mask = np.zeros(len(side.index), bool)
            mask[at[blocks]] = True
            reads[m.number] = _part(side, _EVERYTHING, i, mask)
            size += float(side.index.bytes[mask].sum()) * d.share(m)
        dealt.append((reads, size))
    return dealt


def _whole(t: TablePlan) -> SplitTask:
    return _part(t, _EVERYTHING, 0)


def _part(t: TablePlan, split: Split, ordinal: int, keep: Mask | None = None) -> SplitTask:
    """A table's rows in a split; without any there is nothing to read."""
    keep = t.keep if keep is None else keep
    found = [] if t.index is None or keep is None else assign([split], t.index, keep, t.deltas)
    return SplitTask(ordinal, split.lo, split.hi, found[0].parts if found else ())


def _not_in_order(t: TablePlan, column: str) -> str:
    """Why the rows that are read do not lie in the order of the column; empty where they do."""
    schema = t.state.schema
    if column != schema.key[0]:
        return f"is sorted by {schema.key[0]}, not by {column}"
    if t.index is None or t.keep is None:
        return ""
    if is_float(schema.column(column).arrow):
        return f"has floats in {column}"
    if t.index.extra[t.keep].any() or t.index.block_span[1][t.keep].any():
        return "is laid out in blocks"
    if any(layout_of(t.state, d.layout_id) is not None for d in t.deltas):
        return "is laid out in blocks"
    return ""


def _no_bounds(t: TablePlan, column: str) -> str:
    """Why the stored bounds of a column do not tell which values the query will see there; empty where they do."""
    schema = t.state.schema
    usable = schema.key if t.merge or t.state.view is not None else schema.names
    if column not in usable:
        return f"has {column}, which is known only after merging"
    kind = schema.column(column).arrow
    if is_float(kind) or is_nested(kind):
        return f"has no bounds of {column} to compare"
    return ""
