"""Skips row groups of one side of a join by what the filters leave of the other, along the join graph.

A small filtered side is evaluated first: the values of its join column are a condition on the other side, which every
proof may use. They are found once for the deltas and filters that they follow from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from parquetry.joins.induced import induced, satisfying
from parquetry.layouts.pruning.known_layouts import known_layouts
from parquetry.layouts.pruning.prune import Wanted, prune
from parquetry.model.predicate import And, Anything, Predicate, columns_of, restrict
from parquetry.model.types import is_float
from parquetry.query.planning.bind import EqualColumns
from parquetry.query.planning.plan import Decision, Plan, TablePlan
from parquetry.query.planning.rule import Rule
from parquetry.storage.cache import METADATA
from parquetry.storage.scan.arrow import stored_rows
from parquetry.storage.scan.scan import KeptGroups, read_tasks

NAME = "prune_join"
_MOST_ROWS = 1 << 19  # of a side that is evaluated
_MOST_EVALUATED = 1 << 21  # rows, of all sides of a query
_LESS = 4  # times fewer rows than the side that is to be skipped
_SMALL = 1 << 14  # rows of a side that may be evaluated whatever the other side's
_MOST_STEPS = 64


@dataclass
class _Graph:
    """The plan's masks while values travel along the equal columns of its joins."""

    plan: Plan
    said: dict[int, Predicate]  # of each reference: its own filters, and what was induced
    rows_left: int = _MOST_EVALUATED

    def place(self, ref: int) -> tuple[str, int]:
        """The table of a reference of the query, and its place among that table's references."""
        name = self.plan.bound.refs[ref].table
        return name, sum(r.table == name for r in self.plan.bound.refs[:ref])


def _apply(plan: Plan) -> Plan:
    equal = plan.bound.equal
    if not equal or any(r.table not in plan.tables for r in plan.bound.refs):  # a view stands for one of them
        return plan
    graph = _Graph(plan, {i: r.predicate for i, r in enumerate(plan.bound.refs)})
    waiting, done = _order(graph, [i for i, p in graph.said.items() if not isinstance(p, Anything)]), set()
    for _ in range(_MOST_STEPS):
        step = next((e for e in _edges(equal, waiting) if e not in done), None)
        if step is None:
            break
        done.add(step)
        if _travel(graph, step) and step.target not in waiting:
            waiting = _order(graph, [*waiting, step.target])
    return graph.plan


PRUNE_JOIN = Rule(NAME, "skips row groups that can join nothing of what filters leave of the other side", _apply)


def _order(graph: _Graph, refs: list[int]) -> list[int]:
    """The smallest tables first: what they say may make the others smaller."""
    return sorted(refs, key=lambda i: graph.plan.tables[graph.place(i)[0]].rows)


def _edges(equal: tuple[EqualColumns, ...], refs: list[int]) -> Iterator[EqualColumns]:
    return (e for i in refs for e in equal if e.source == i)


def _travel(graph: _Graph, e: EqualColumns) -> bool:
    """Lets the source's values skip row groups of the target; whether more is known of it now."""
    (source, at), (target, of) = graph.place(e.source), graph.place(e.target)
    plan = graph.plan
    a, b = plan.tables[source], plan.tables[target]
    if a.index is None or b.index is None or e.target_column not in _stored(b) or e.source_column not in _stored(a):
        return False
    if is_float(a.state.schema.column(e.source_column).arrow):
        return False
    rows = int(a.index.rows[a.masks[at]].sum())
    small = b.rows <= _SMALL
    if (
        rows > min(_MOST_ROWS, graph.rows_left)
        or rows > max(_SMALL, b.rows // _LESS)
        or small
        and isinstance(graph.said[e.source], Anything)
    ):
        return False
    graph.rows_left -= rows
    said = restrict(graph.said[e.source], _stored(a))
    values = _values(plan, a, at, e.source_column, said)
    found = induced(e.target_column, values)
    wanted = Wanted(b.index, found, known_layouts(b.state), off=plan.off)
    mask = b.masks[of] & prune(wanted)
    graph.said[e.target] = And((graph.said[e.target], found))
    if mask.sum() == b.masks[of].sum():
        return small
    narrowed = b.narrowed(NAME, [mask if i == of else m for i, m in enumerate(b.masks)])
    skipped = b.groups_read - narrowed.groups_read
    decided = f"{target}: {skipped} of {b.groups_total} row groups skipped"
    why = f"{e.target_column} equals {source}.{e.source_column}, of which {len(values):,} values are left"
    figures = {"skipped": skipped, "values": len(values), "rows_evaluated": rows}
    told = Decision(NAME, decided, why, target, figures=figures)
    graph.plan = plan.with_table(target, narrowed).decide(told)
    return True


def _stored(t: TablePlan) -> frozenset[str]:
    """The columns whose stored values are those that the query sees, in every version of a row."""
    return frozenset(t.state.schema.key) if t.state.view is not None else t.usable


def _values(plan: Plan, t: TablePlan, at: int, column: str, said: Predicate) -> pa.Array:
    """The distinct values of a column in the rows that may satisfy what is said."""
    assert t.index is not None
    columns = sorted({column} | columns_of(said))
    index, mask = t.index, t.masks[at]

    def load() -> pa.Array:
        found = []
        groups = KeptGroups(index, mask).row_groups()
        for task in read_tasks(t.deltas, groups):
            file = index.file(task.file.path)
            rows, _ = stored_rows(plan.store, t.state, task.schema_id, file, groups[file.path], columns)
            found.append(satisfying(rows, said).column(column).combine_chunks())
        kind = t.state.schema.column(column).arrow
        return pa.chunked_array([f.cast(kind) for f in found], kind).unique().drop_null()

    key = ("induced", t.state.table_id, t.delta_ids, column, said, mask.tobytes())
    return METADATA.get(key, load, lambda values: 256 + values.nbytes)
