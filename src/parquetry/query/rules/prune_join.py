"""Skips row groups of one side of a join by what the filters leave of the other, along the join graph.

The smallest and largest values of the row groups that a side keeps bound the other side's column: that costs nothing. A
small side is evaluated first, once for the deltas and filters that its rows follow from: then the very values of its
column are a condition on the other side, which every proof may use.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from parquetry.errors import StorageError
from parquetry.joins.induced import MOST_VALUES, induced, kept_values, satisfying, told_briefly
from parquetry.joins.reach import kept_rows, small_beside
from parquetry.layouts.pruning.known_layouts import known_layouts
from parquetry.layouts.pruning.prune import Wanted, prune
from parquetry.model.predicate import ANYTHING, Anything, Predicate, columns_of, restrict
from parquetry.model.reached import MOST_KEYS
from parquetry.model.through import MOST_STEPS, renamed, steps_of, through
from parquetry.model.types import is_float
from parquetry.query.planning.bind import EqualColumns
from parquetry.query.planning.plan import Decision, Plan, TablePlan
from parquetry.query.planning.rule import Rule
from parquetry.storage.cache import METADATA
from parquetry.workload.simplify import both

NAME = "prune_join"
_MOST_ROWS = 1 << 19  # of a side that is evaluated, unless a layout was learned for what it says
_MOST_EVALUATED = 1 << 22  # rows, of all sides of a query
_MOST_LOGGED = 256  # values of a column, one by one; more are told by ranges
_MOST_STEPS = 64
_MOST_SECONDS = 0.03  # of this thread, beside the time to evaluate sides, after which no step is taken again


@dataclass(frozen=True)
class _Left:
    """What the filters leave of one column of a side: of so many rows, and the distinct values if they were read."""

    rows: int
    values: pa.Array | None = None


@dataclass
class _Graph:
    """The plan's masks while values travel along the equal columns of its joins."""

    plan: Plan
    said: dict[int, Predicate]  # of each reference: its own filters, and what was induced
    logged: dict[int, Predicate]  # of each reference: what was induced, and by which filters of which tables
    rows_left: int = _MOST_EVALUATED
    steps_left: int = _MOST_STEPS
    until: float = field(default_factory=lambda: time.thread_time() + _MOST_SECONDS)

    def place(self, ref: int) -> tuple[str, int]:
        """The table of a reference of the query, and its place among that table's references."""
        name = self.plan.bound.refs[ref].table
        return name, sum(r.table == name for r in self.plan.bound.refs[:ref])

    def side(self, ref: int) -> tuple[TablePlan, int]:
        name, at = self.place(ref)
        return self.plan.tables[name], at


def _apply(plan: Plan) -> Plan:
    refs, equal = plan.bound.refs, plan.bound.equal
    if not equal or any(r.table not in plan.tables for r in refs):  # a view stands for one of them
        return plan
    graph = _Graph(plan, {i: r.predicate for i, r in enumerate(refs)}, dict.fromkeys(range(len(refs)), ANYTHING))
    used: dict[EqualColumns, Predicate] = {}  # what was said of the source then
    while graph.steps_left:
        again = time.thread_time() < graph.until
        step = next(
            (e for e in _edges(graph, equal) if e not in used or (again and used[e] != graph.said[e.source])), None
        )
        if step is None:
            break
        used[step] = graph.said[step.source]
        graph.steps_left -= 1
        _travel(graph, step)
    return replace(graph.plan, induced=tuple(told_briefly(p, _MOST_LOGGED) for p in graph.logged.values()))


PRUNE_JOIN = Rule(NAME, "skips row groups that can join nothing of what filters leave of the other side", _apply)


def _edges(graph: _Graph, equal: tuple[EqualColumns, ...]) -> Iterator[EqualColumns]:
    """Those whose source something is said of, the smallest sources first: they may make the others smaller."""
    said = [i for i, p in graph.said.items() if not isinstance(p, Anything)]
    said.sort(key=lambda i: graph.side(i)[0].rows)
    return (e for i in said for e in equal if e.source == i)


def _travel(graph: _Graph, e: EqualColumns) -> None:
    """Lets the source's values skip row groups of the target."""
    (source, (a, at)), (target, (b, of)) = (
        (graph.plan.bound.refs[i].table, graph.side(i)) for i in (e.source, e.target)
    )
    if a.index is None or b.index is None or e.target_column not in _stored(b) or e.source_column not in _stored(a):
        return
    bounds = a.index.bounds(e.source_column)
    if bounds is None or is_float(bounds.kind):
        return
    keep = a.masks[at]
    kept_rows = int(a.index.rows[keep].sum())
    left = _Left(kept_rows)
    layouts = known_layouts(b.state)
    reaches = any(r.own == e.target_column for known in layouts for r in known.reached)
    most, others = (MOST_KEYS, int(b.index.rows.sum())) if reaches else (_MOST_ROWS, b.rows)
    if kept_rows <= min(most, graph.rows_left) and small_beside(kept_rows, others):
        graph.rows_left -= kept_rows
        began = time.thread_time()
        try:
            left = _evaluated(graph.plan, a, at, e.source_column, restrict(graph.said[e.source], _stored(a)))
        except (pa.ArrowException, OSError, StorageError) as error:  # who reads it for the answer will tell
            told = f"{source} cannot be read: {str(error).splitlines()[0][:120]}"
            graph.plan = graph.plan.decide(Decision(NAME, f"{target}: nothing skipped", told, target, "refused"))
            return
        graph.until += time.thread_time() - began
    exact = left.values is not None
    if left.values is not None:
        found = induced(e.target_column, left.values, b.index.bounds(e.target_column))
    else:
        found = kept_values(e.target_column, bounds, keep & (a.index.nulls(e.source_column) != a.index.rows))
    _log(graph, e, found, a)
    said = both([graph.said[e.target], found])
    whole = left.values is None or len(left.values) <= MOST_VALUES
    if said == graph.said[e.target] and whole:  # more values than a condition tells may still say more to a layout
        return
    mask = b.masks[of]
    if mask.any():
        joined = {} if left.values is None else {e.target_column: left.values}
        mask = mask & prune(Wanted(b.index, found, layouts, off=graph.plan.off, joined=joined))
    if mask.sum() < b.masks[of].sum() or exact:
        graph.said[e.target] = said
    if mask.sum() < b.masks[of].sum():
        narrowed = b.narrowed(NAME, [mask if i == of else m for i, m in enumerate(b.masks)])
        graph.plan = graph.plan.with_table(target, narrowed).decide(_told(e, source, target, a, left, b, narrowed))


def _told(
    e: EqualColumns, source: str, target: str, a: TablePlan, left: _Left, b: TablePlan, narrowed: TablePlan
) -> Decision:
    assert a.index is not None
    assert b.index is not None
    skipped = b.groups_read - narrowed.groups_read
    rows, of = int(a.index.rows[~a.index.extra].sum()), int(b.index.rows[~b.index.extra].sum())
    decided = f"{target}: {skipped} of {b.groups_total} row groups skipped, {narrowed.rows:,} of {of:,} rows kept"
    if left.values is not None:
        what = f"of which {len(left.values):,} values are left, in {left.rows:,} of {rows:,} rows"
    else:
        what = f"which lies within the bounds of {left.rows:,} of {rows:,} rows"
    figures = {"skipped": skipped, "rows_kept": narrowed.rows, "rows": of, "source_rows_kept": left.rows}
    figures |= {"source_rows": rows, "values": 0 if left.values is None else len(left.values)}
    why = f"{e.target_column} equals {source}.{e.source_column}, {what}"
    return Decision(NAME, decided, why, target, figures=figures)


def _log(graph: _Graph, e: EqualColumns, found: Predicate, a: TablePlan) -> None:
    """Notes what a layout of the target may be learned from: the values, and the filters that left them."""
    told = [graph.logged[e.target], found]
    if a.state.schema.key == (e.source_column,):  # each value leads to one row at most
        own, further = graph.plan.bound.refs[e.source].predicate, graph.logged[e.source]
        told += [
            renamed(restrict(p, names), lambda c: through(e.target_column, a.state.name, c))
            for p, names in ((own, columns_of(own) - {e.source_column}), (further, _reached_soon(further)))
        ]
    graph.logged[e.target] = both([p for p in told if not isinstance(p, Anything)])


def _reached_soon(predicate: Predicate) -> frozenset[str]:
    """What it says of other tables' columns that are not many steps away."""
    return frozenset(c for c in columns_of(predicate) if 0 < len(steps_of(c)[1]) < MOST_STEPS)


def _stored(t: TablePlan) -> frozenset[str]:
    """The columns whose stored values are those that the query sees, in every version of a row."""
    return frozenset(t.state.schema.key) if t.state.view is not None else t.usable


def _evaluated(plan: Plan, t: TablePlan, at: int, column: str, said: Predicate) -> _Left:
    """The rows that may satisfy what is said, and their distinct values of a column."""
    assert t.index is not None
    columns = sorted({column} | columns_of(said))
    index, mask = t.index, t.masks[at]

    def load() -> _Left:
        rows = kept_rows(plan.store, t.state, t.deltas, index, mask, columns)
        found = [satisfying(part, said).column(column).combine_chunks() for part in rows]
        kind = t.state.schema.column(column).arrow
        values = pa.chunked_array([f.cast(kind) for f in found], kind).unique().drop_null()
        return _Left(sum(map(len, found)), values)

    key = ("induced", t.state.table_id, t.delta_ids, column, said, mask.tobytes())
    return METADATA.get(key, load, lambda left: 256 + (0 if left.values is None else left.values.nbytes))
