"""Gives a table a new layout: sample, learn, route and rewrite on Spark's executors, swap in one commit.

Readers of older versions keep the old files until vacuum; batches that arrive meanwhile keep the old layout and are
brought into the new one by compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from parquetry import failpoints
from parquetry.catalog import LAYOUT_OF_THIS_COMMIT, Catalog
from parquetry.errors import SchemaError
from parquetry.joins.reach import reach
from parquetry.layouts.cells import with_cells
from parquetry.layouts.learners.extra import choose_extra_blocks
from parquetry.layouts.learners.options import CountVectors, LearnOptions
from parquetry.layouts.nested import RunAll, Within, learn_nested, one_by_one
from parquetry.layouts.pruning.regions import regions
from parquetry.layouts.registry import learn, named
from parquetry.layouts.routing.spark_blocks import count_vectors
from parquetry.maintain.merge_deltas import merge_deltas
from parquetry.model.layout import CurveLayout, LayoutSpec, ReachingLayout, TreeLayout
from parquetry.model.layout_options import RelayoutOptions, UserOptions
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import columns_of
from parquetry.model.queryable import runs
from parquetry.model.reached import Reached, with_reached
from parquetry.model.schema import TableSchema
from parquetry.model.state import Edit, PublishLayout, ReplaceDeltas, TableState
from parquetry.model.through import is_through, steps_of
from parquetry.model.types import is_nested
from parquetry.storage.leased import REWRITE, TURN, LeasedWork, under_lease
from parquetry.storage.scan.arrow import scanned_files
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import sample_rows, stored_rows
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_USUAL_BLOCKS = 512  # a small table is cut into about so many blocks, a large one by the size of a row group
_LEAST_BLOCK_ROWS = 2_000
_SAMPLED_HERE = 64_000_000  # values that the process looks at for a sample: about as long as Spark takes to start one
_MOST_EXTRA = 64  # each extra block is at least one file in every delta

Phase = Callable[[str], None]


@dataclass(frozen=True)
class Relaid:
    table: str
    learner: str
    blocks: int
    rows: int
    bytes_before: int
    bytes_after: int
    version: int
    spec: LayoutSpec | None  # None is the plain key order
    extra_rows: int = 0  # stored a second time, in extra blocks
    applied: bool = True  # False: the advisor saw no reason to, and nothing was changed
    reason: str = ""  # the advisor's
    predicted: Mapping[str, Any] | None = None  # what the advisor expects of it, per query


def default_block_rows(table: TableState) -> int:
    return max(_LEAST_BLOCK_ROWS, min(table.settings.row_group_rows, table.rows // _USUAL_BLOCKS))


def learn_layout(
    spark: SparkSession,
    store: Store,
    table: TableState,
    learner: str,
    workload: Sequence[LoggedQuery],
    options: RelayoutOptions,
    phase: Phase,
    reached: Mapping[str, Reached] | None = None,
) -> LayoutSpec | None:
    """The learned layout; None is the plain key order, which needs no learning. It may cut on what is ``reached``."""
    if learner == "key" and options.within is None:
        if options.extra_space:
            raise SchemaError("the plain key order has no extra blocks; leave extra_space out or choose another layout")
        return None
    columns = list(dict.fromkeys(steps_of(c)[0] for c in layout_columns(table, learner, workload, options, reached)))
    if options.within is not None:
        columns = list(dict.fromkeys([*columns, ranges_of(table, options).column]))
    phase(f"sampling {', '.join(columns)}")
    sample = draw_sample(lambda: spark, store, table, columns, options)
    whole = partial(count_vectors, stored_rows(spark, store, plan_scan(table, table.deltas)))
    side_by_side = partial(_on_executors, spark)
    return learn_from_sample(table, sample, learner, workload, options, phase, whole, side_by_side, reached)


def learn_from_sample(
    table: TableState,
    sample: pa.Table,
    learner: str,
    workload: Sequence[LoggedQuery],
    options: RelayoutOptions,
    phase: Phase = lambda _: None,
    count_vectors: CountVectors | None = None,
    run_all: RunAll = one_by_one,
    reached: Mapping[str, Reached] | None = None,
) -> LayoutSpec:
    """The layout of any learner but ``key`` from a sample that may have more columns than the layout cuts on.

    ``count_vectors`` counts in the whole table what a learner would otherwise estimate from the sample; ``run_all``
    learns the ranges of a layout that has some.
    """
    columns = layout_columns(table, learner, workload, options, reached)
    within = None if options.within is None else ranges_of(table, options)
    known = [r for name, r in (reached or {}).items() if name in columns]
    sample = with_reached(sample, known).select(list(dict.fromkeys([*columns, *([within.column] if within else [])])))
    rows = table.rows
    rate = min(1.0, sample.num_rows / rows) if rows and sample.num_rows else 1.0
    how = learn_options(table, columns, rate, options)
    phase(f"learning {learner} from {sample.num_rows:,} rows and {len(workload)} queries")
    spec: LayoutSpec
    if within is None:
        how = replace(how, count_vectors=count_vectors)
        spec = with_cells(learn(learner, sample, workload, how), sample, workload, how, options.cells)
    else:
        spec = learn_nested(learner, sample, workload, how, within, options.cells, run_all)
    if known:
        return _reaching(spec, known)
    if not options.extra_space or isinstance(spec, ReachingLayout):
        return spec
    # An extra block competes with cells, so it may be as small as one.
    finer = replace(how, columns=spec.columns, block_rows=max(1, how.block_rows // max(1, options.cells)))
    budget = int(rows * options.extra_space)
    extra = choose_extra_blocks(spec, sample, workload, finer, budget, _MOST_EXTRA)
    return replace(spec, extra=tuple(e.box for e in extra))


def _reaching(spec: LayoutSpec, reached: Sequence[Reached]) -> LayoutSpec:
    """The layout with the maps that it needs to find a row's block, and no others."""
    assert isinstance(spec, TreeLayout | CurveLayout)
    if isinstance(spec, TreeLayout):
        used = {c for r in regions(spec) for box in (r.box, *r.holes) for c in box.intervals}
        spec = replace(spec, columns=tuple(c for c in spec.columns if c in used or not is_through(c)))
    kept = tuple(r for r in reached if r.name in spec.columns)
    return ReachingLayout(spec, kept) if kept else spec


def through_columns(workload: Iterable[LoggedQuery]) -> set[str]:
    """What the queries filter by that rows reach through keys."""
    return {c for q in workload for c in columns_of(q.predicate) if is_through(c)}


def _on_executors(spark: SparkSession, tasks: Sequence[Callable[[], LayoutSpec]]) -> list[LayoutSpec]:
    """Ranges are learned side by side, each from its part of the sample."""
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(lambda task: task()).collect()


def learn_options(table: TableState, columns: Sequence[str], rate: float, options: RelayoutOptions) -> LearnOptions:
    """What a learner is told: what the user said, and the table's defaults for the rest."""
    said = {f.name: getattr(options, f.name) for f in fields(UserOptions)}
    said["join"] = options.join or next((k for k in table.schema.key if k in columns), None)
    return LearnOptions(options.block_rows or default_block_rows(table), rate, tuple(columns), **said)


def relayout(
    catalog: Catalog,
    store: Store,
    spark: SparkSession,
    name: str,
    learner: str,
    workload: Sequence[LoggedQuery],
    options: RelayoutOptions,
    holder: str,
    phase: Phase = lambda _: None,
    predicted: Mapping[str, Any] | None = None,
) -> Relaid:
    """Learns and rewrites; old readers keep working, and nothing changes unless all of it succeeds.

    ``predicted`` is kept with the commit, for a later check against what queries really read.
    """
    with rewriting(catalog, store, name, holder, phase) as work:
        state = catalog.state()
        table = state.table(name)
        reached = reach(store, state, table.rows, through_columns(workload))
        spec = learn_layout(spark, store, table, learner, workload, options, phase, reached)
        after = replace(table, layout=spec, layout_id=LAYOUT_OF_THIS_COMMIT)
        edits: list[Edit] = [PublishLayout(table.table_id, spec)]
        size = extra_rows = 0
        # What is visible and what is not are rewritten apart, and so is what a view has yet to take in.
        for side in runs(state, table)[::-1]:
            phase(f"rewriting {sum(d.rows for d in side):,} rows into {after.blocks:,} blocks")
            new = merge_deltas(lambda: spark, store, after, work.new_delta(), side)
            failpoints.reach("relayout.before_commit")
            edits.append(ReplaceDeltas(table.table_id, tuple(d.delta_id for d in side), new))
            size += new.bytes if new else 0
            extra_rows += new.extra_rows if new else 0
        detail: dict[str, Any] = {"table": table.name, "learner": learner, "blocks": after.blocks}
        if predicted is not None:
            detail["predicted"] = dict(predicted)
        commit = work.commit(edits, "relayout", detail)
    return Relaid(table.name, learner, after.blocks, table.rows, table.bytes, size, commit.version, spec, extra_rows)


@contextmanager
def rewriting(catalog: Catalog, store: Store, name: str, holder: str, phase: Phase) -> Iterator[LeasedWork]:
    """The one rewrite of a table at a time. Others are waited for: compactions let it pass, earlier ones like it do
    not."""
    table = catalog.state().table(name)
    with (
        under_lease(TURN, catalog, store, table, holder, phase),
        under_lease(REWRITE, catalog, store, table, holder, phase) as work,
    ):
        assert work is not None, "it was waited for"
        yield work


def layout_columns(
    table: TableState,
    learner: str,
    workload: Sequence[LoggedQuery],
    options: RelayoutOptions,
    reached: Mapping[str, Reached] | None = None,
) -> list[str]:
    """What the layout may cut on: asked for, or filtered by the workload, be it through keys, or for learners that need
    no queries everything; on keyed tables key columns only."""
    schema = table.schema
    if options.columns:
        for c in options.columns:
            _check_cuttable(schema, c)
        return list(options.columns)
    if learner == "key":
        return []
    used = {c for q in workload for c in columns_of(q.predicate)}
    if named(learner).uses_opaque:
        used |= {c for q in workload for o in q.opaque for c in o.columns}
    allowed = [c.name for c in schema.columns if not is_nested(c.arrow) and (not schema.keyed or c.name in schema.key)]
    columns = [c for c in allowed if c in used or not named(learner).needs_queries]
    if named(learner).reaches and options.within is None and not options.extra_space:
        columns += [name for name, r in (reached or {}).items() if name in used and r.own in allowed]
    if not columns:
        filtered = ", ".join(sorted(used)) or "nothing"
        raise SchemaError(
            f"layout '{learner}' finds no column to cut '{table.name}' on: its {len(workload)} logged queries "
            f"filter on {filtered}. Run or import queries first, or name columns"
        )
    return columns


def ranges_of(table: TableState, options: RelayoutOptions) -> Within:
    """The ranges that ``within`` asks for, checked against the table."""
    assert options.within is not None
    schema = table.schema
    column = options.within.rpartition(":")[0] or options.within
    _check_cuttable(schema, column)
    return Within.parse(options.within, schema.column(column).arrow)


def _check_cuttable(schema: TableSchema, name: str) -> None:
    column = schema.column(name)
    if is_nested(column.arrow):
        raise SchemaError(f"column '{name}' has the nested type {column.type}, which cannot be cut; choose others")
    if schema.keyed and name not in schema.key:
        raise SchemaError(f"'{name}' is not in the key; a layout of an {schema.model} table cuts on its key only")


def draw_sample(
    spark: Callable[[], SparkSession],
    store: Store,
    table: TableState,
    columns: Sequence[str],
    options: RelayoutOptions,
) -> pa.Table:
    """About ``sample_rows`` of the stored rows; where few values are to be looked at, they are drawn in the process."""
    rate, scan = min(1.0, options.sample_rows / max(1, table.rows)), plan_scan(table, table.deltas)
    if not table.deltas or table.rows * len(columns) > _SAMPLED_HERE:
        return sample_rows(spark(), store, scan, columns, rate=rate, seed=options.seed)
    drawn = np.random.default_rng(options.seed)
    files = scanned_files(store, scan, table.deltas, columns)
    return pa.concat_tables(rows if rate == 1 else rows.filter(drawn.random(rows.num_rows) < rate) for rows in files)
