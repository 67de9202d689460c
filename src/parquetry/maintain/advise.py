"""The layout advisor: learns layouts from the older part of the log and prices them on the newer part, held out.

One sample serves all candidates; today's layout is priced on its real index by the same pruning. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from parquetry.joins.reach import reach
from parquetry.layouts.pricing.column_bytes import ColumnBytes, stored_column_bytes
from parquetry.layouts.pricing.price import Asked, PricedLayout
from parquetry.layouts.pricing.priced_sample import SampledTable
from parquetry.layouts.pruning.known_layouts import known_layouts
from parquetry.maintain.candidates import Candidate, candidates_of
from parquetry.maintain.compare import AdviseOptions, compare, cuttable, filtered_columns
from parquetry.maintain.relayout import Phase, default_block_rows, draw_sample, ranges_of, through_columns
from parquetry.maintain.verdict import KEEP, Advice
from parquetry.model.layout_options import RelayoutOptions
from parquetry.model.predicate import Nothing
from parquetry.model.reached import Reached
from parquetry.model.state import State, TableState
from parquetry.model.types import is_nested
from parquetry.storage.scan.scan import must_merge
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_QUERIES = 4
_WIDE = 64  # bytes per row; a wider column that is only read is not sampled, its stored size serves


def advise(
    spark: Callable[[], SparkSession],
    store: Store,
    state: State,
    name: str,
    log: Sequence[Asked],
    options: AdviseOptions,
    phase: Phase = lambda _: None,
) -> Advice:
    """Compares layouts on the newer part of ``log``, which lists the queries of the table oldest first."""
    table = state.table(name)
    candidates_of(options.learners)  # a wrong name is told before any work
    why_not = _nothing_to_do(table, log, options.layout)
    if why_not:
        return Advice(table.name, KEEP, why_not, rows=table.rows)
    possible = [q for q in log if not isinstance(q.predicate, Nothing)]
    stored = stored_column_bytes(store, table.deltas)
    phase(f"sampling {table.name}")
    reached = reach(store, state, table.rows, through_columns(q.query for q in possible))
    sampled = sample_for(spark, store, table, possible, stored, options.layout, reached)
    today = stored_layout(store, state, table, stored)
    return replace(compare(table, sampled, today, possible, options, phase), notes=_notes(log, possible, state, table))


@dataclass(frozen=True)
class Winner:
    """What a rewrite needs of the advice: the winner is learned again, from the whole log."""

    learner: str
    options: RelayoutOptions
    predicted: Mapping[str, Any]


def winning_options(advice: Advice, table: TableState, log: Sequence[Asked], base: RelayoutOptions) -> Winner:
    chosen, today = advice.chosen, advice.today
    assert chosen is not None
    assert today is not None
    options = Candidate(chosen.learner, chosen.settings).options(base, cuttable(table, filtered_columns(log)))
    predicted = {
        "layout": chosen.label,
        "bytes_per_query": round(chosen.bytes_per_query),
        "rows_per_query": round(chosen.rows_per_query),
        "bytes_per_query_before": round(today.bytes_per_query),
        "held_out_queries": advice.held_out,
    }
    return Winner(chosen.learner, options, predicted)


def sample_for(
    spark: Callable[[], SparkSession],
    store: Store,
    table: TableState,
    queries: Sequence[Asked],
    stored: ColumnBytes,
    options: RelayoutOptions,
    reached: Mapping[str, Reached] | None = None,
) -> SampledTable:
    """One sample with the key, all columns that the queries filter, and those they read unless they are wide."""
    schema = table.schema
    needed = {
        *schema.key,
        *filtered_columns(queries),
        *(options.columns or ()),
        *(r.own for r in (reached or {}).values()),
    }
    if options.within is not None:
        needed.add(ranges_of(table, options).column)
    needed |= {c for q in queries for o in q.query.opaque for c in o.columns}
    needed |= {c for q in queries for c in q.columns if stored.per_row.get(c, 0.0) <= _WIDE}
    columns = [c.name for c in schema.columns if c.name in needed and not is_nested(c.arrow)]
    drawn = draw_sample(spark, store, table, columns, options)
    return SampledTable(drawn, schema, table.settings, table.rows, reached)


def stored_layout(store: Store, state: State, table: TableState, stored: ColumnBytes) -> PricedLayout:
    """The table as it is: its real index, pruned as a query would; what is not visible yet is left out."""
    deltas = tuple(d for d in table.deltas if d.t_hi <= state.qt) or table.deltas
    index = open_snapshot(store, deltas, table.schema)
    merged_by = table.schema.key if must_merge(table, deltas) else ()
    return PricedLayout(index, known_layouts(table), stored, tuple(merged_by))


def _nothing_to_do(table: TableState, log: Sequence[Asked], layout: RelayoutOptions) -> str:
    rows = table.rows
    if not rows:
        return f"'{table.name}' has no rows; ingest first"
    if not log:
        return f"the log has no query of '{table.name}'; run queries, or add some with 'workload import'"
    least = layout.block_rows or default_block_rows(table)
    if rows < 2 * least:
        return f"'{table.name}' has {rows:,} rows, less than two blocks of {least:,}: every query reads one row group"
    if all(isinstance(q.predicate, Nothing) for q in log):
        return f"no row can satisfy any of the {len(log)} logged queries: their filters contradict themselves"
    if not any(q.filters for q in log):
        return f"all {len(log)} logged queries of '{table.name}' read the whole table: no layout lets them skip"
    useful = sum(not isinstance(q.predicate, Nothing) for q in log)
    if useful < _LEAST_QUERIES:
        return f"the log has {useful} usable queries of '{table.name}'; {_LEAST_QUERIES} are needed to hold some back"
    return ""


def _notes(log: Sequence[Asked], possible: Sequence[Asked], state: State, table: TableState) -> tuple[str, ...]:
    notes = []
    if len(possible) < len(log):
        notes.append(f"{len(log) - len(possible)} queries can never match and were left out")
    whole = sum(not q.filters for q in possible)
    if whole:
        notes.append(f"{whole} of {len(possible)} queries read the whole table under any layout")
    hidden = sum(d.t_hi > state.qt for d in table.deltas)
    if hidden:
        notes.append(f"{hidden} deltas are not visible yet; today's figures leave them out")
    if table.layout is not None and table.layout.extra:
        notes.append("today's extra blocks are not priced: today may read less than told here")
    return tuple(notes)
