"""Gives some ranges of a nested layout a new layout and rewrites only the files that hold rows of them.

Every delta in the table's layout is replaced by one that lists its untouched files again and new files for the others,
all in one commit. A file that holds rows of a neighbouring range too is rewritten with it. Deltas of older layouts
stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from parquetry import failpoints
from parquetry.catalog import LAYOUT_OF_THIS_COMMIT, Catalog
from parquetry.errors import SchemaError
from parquetry.layouts.nested import asked_of, learn_part, rows_by_range
from parquetry.layouts.write_rows import fits_here, rewriting_tasks, write_rows
from parquetry.maintain.relayout import Phase, Relaid, layout_columns, learn_options, rewriting
from parquetry.model.box import Interval
from parquetry.model.delta import Delta
from parquetry.model.layout import NestedLayout, block_rows
from parquetry.model.layout_options import RelayoutOptions
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.state import Edit, PublishLayout, ReplaceDeltas, TableState
from parquetry.storage.delta_writer import DeltaJob
from parquetry.storage.kept import keep_files
from parquetry.storage.scan.arrow import scanned_rows
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import sample_rows, stored_rows
from parquetry.storage.snapshot_index import open_snapshot
from parquetry.storage.spark_text import literal, quote
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Chosen:
    """Parts ``first`` to ``last`` of a nested layout: neighbours, so that their blocks are one run of numbers."""

    spec: NestedLayout
    first: int
    last: int

    @property
    def blocks(self) -> tuple[int, int]:
        starts = self.spec.first_blocks
        return starts[self.first], starts[self.last] + self.spec.parts[self.last].blocks - 1

    def renumbered(self, after: NestedLayout, block: int) -> int:
        """The number that a block of another part has in the new layout."""
        part = int(np.searchsorted(self.spec.first_blocks, block, "right")) - 1
        return block - self.spec.first_blocks[part] + after.first_blocks[part]


def choose_ranges(table: TableState, text: str) -> Chosen:
    """The parts that ``FROM..TO`` touches, both ends included; either may be left out."""
    spec = table.layout
    if not isinstance(spec, NestedLayout):
        raise SchemaError(f"'{table.name}' is not laid out in ranges; relayout it with 'within' first")
    if spec.extra:
        raise SchemaError(f"'{table.name}' has extra blocks, which belong to all ranges; relayout the whole table")
    low, dots, high = text.partition("..")
    if not dots:
        raise SchemaError(f"'{text}' is no range; write FROM..TO, either end may be left out")
    arrow = table.schema.column(spec.column).arrow
    wanted = Interval(_value(low, arrow, text), _value(high, arrow, text), nulls=not low)
    met = [i for i, own in enumerate(spec.ranges) if not own.intersect(wanted).empty]
    if not met:
        raise SchemaError(f"'{text}' ends before it begins")
    return Chosen(spec, met[0], met[-1])


def _value(text: str, arrow: pa.DataType, whole: str) -> Any:
    if not text.strip():
        return None
    zoned = pa.types.is_timestamp(arrow) and arrow.tz is not None
    for kind in (arrow, pa.timestamp("us")) if zoned else (arrow,):
        try:
            value = pa.scalar(text.strip()).cast(kind).as_py()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        return value if kind is arrow else value.replace(tzinfo=UTC)  # a time without a zone is taken as UTC
    raise SchemaError(f"'{text}' in '{whole}' is no value of type {arrow}")


def relayout_ranges(
    catalog: Catalog,
    store: Store,
    spark: SparkSession,
    name: str,
    learner: str,
    workload: Sequence[LoggedQuery],
    options: RelayoutOptions,
    holder: str,
    phase: Phase = lambda _: None,
) -> Relaid:
    """Learns the ranges that ``options.range`` names again and rewrites their files; all other files stay."""
    assert options.range is not None
    if options.within is not None or options.extra_space:
        raise SchemaError("the ranges are there already: leave 'within' and 'extra_space' out")
    with rewriting(catalog, store, name, holder, phase) as work:
        table = catalog.state().table(name)
        chosen = choose_ranges(table, options.range)
        deltas = [d for d in table.deltas if d.layout_id == table.layout_id]
        spec = _learn(spark, store, table, deltas, chosen, learner, workload, options, phase)
        after = replace(table, layout=spec, layout_id=LAYOUT_OF_THIS_COMMIT)
        edits: list[Edit] = [PublishLayout(table.table_id, spec)]
        rows = before = size = 0
        for delta in deltas:
            touched = _touched(store, table, delta, chosen)
            old = sum(delta.files[i].rows for i in touched)
            phase(f"rewriting {old:,} of {delta.rows:,} rows in {len(touched)} of {len(delta.files)} files")
            new = _rewrite(spark, store, after, delta, touched, chosen, spec, work.new_delta())
            failpoints.reach("relayout.before_commit")
            edits.append(ReplaceDeltas(table.table_id, (delta.delta_id,), new))
            rows, before = rows + old, before + sum(delta.files[i].bytes for i in touched)
            size += sum(f.bytes for f in new.files if f not in delta.files)
        detail = {"table": table.name, "learner": learner, "range": options.range, "blocks": spec.blocks}
        commit = work.commit(edits, "relayout", detail)
    return Relaid(table.name, learner, spec.blocks, rows, before, size, commit.version, spec)


def _learn(
    spark: SparkSession,
    store: Store,
    table: TableState,
    deltas: Sequence[Delta],
    chosen: Chosen,
    learner: str,
    workload: Sequence[LoggedQuery],
    options: RelayoutOptions,
    phase: Phase,
) -> NestedLayout:
    spec = chosen.spec
    wanted = replace(options, block_rows=options.block_rows or block_rows(spec))
    columns = layout_columns(table, learner, workload, wanted)
    rows = sum(int(_rows_reaching(store, table, d, chosen)) for d in deltas)
    rate = min(1.0, options.sample_rows / max(1, rows))
    sampled = list(dict.fromkeys([*columns, spec.column]))
    phase(f"sampling {', '.join(sampled)}")
    inside = _inside(quote(spec.column), chosen)
    scan = plan_scan(table, deltas)
    sample = sample_rows(spark, store, scan, sampled, rate=rate, where=inside, seed=options.seed)
    how = learn_options(table, columns, rate, wanted)
    phase(f"learning {learner} from {sample.num_rows:,} rows and {len(workload)} queries")
    parts = list(spec.parts)
    by_range = rows_by_range(spec.boundaries, sample.column(spec.column))
    for i in range(chosen.first, chosen.last + 1):
        queries = asked_of(workload, spec.column, spec.ranges[i])
        parts[i] = learn_part(learner, sample.take(by_range[i]), queries, how, options.cells)
    return replace(spec, parts=tuple(parts))


def _inside(column: str, chosen: Chosen) -> str:
    lo, hi = chosen.spec.ranges[chosen.first].lo, chosen.spec.ranges[chosen.last].hi
    parts = [f"{column} >= {literal(lo)}"] if lo is not None else []
    parts += [f"{column} < {literal(hi)}"] if hi is not None else []
    both = " AND ".join(parts) or "TRUE"
    return f"({both}) OR {column} IS NULL" if lo is None else both


def _reaching(store: Store, table: TableState, delta: Delta, chosen: Chosen) -> Any:
    """Which row groups of a delta hold blocks of the chosen ranges."""
    low, high = chosen.blocks
    first, last = open_snapshot(store, [delta], table.schema).block_span
    return (first <= high) & (last >= low)


def _rows_reaching(store: Store, table: TableState, delta: Delta, chosen: Chosen) -> int:
    rows = open_snapshot(store, [delta], table.schema).rows
    return int(rows[_reaching(store, table, delta, chosen)].sum())


def _touched(store: Store, table: TableState, delta: Delta, chosen: Chosen) -> list[int]:
    """The ordinals of the delta's files with such row groups: neighbours in the run, as the blocks are.

    All of them if the table got columns since: a delta's files have one schema.
    """
    if delta.schema_id != table.schema_id:
        return list(range(len(delta.files)))
    index = open_snapshot(store, [delta], table.schema)
    return np.unique(index.path_of[_reaching(store, table, delta, chosen)]).tolist()  # type: ignore[no-any-return]


def _rewrite(
    spark: SparkSession,
    store: Store,
    table: TableState,
    delta: Delta,
    touched: Sequence[int],
    chosen: Chosen,
    spec: NestedLayout,
    delta_id: str,
) -> Delta:
    others = set(range(len(delta.files))) - set(touched)
    scan, here = plan_scan(table, [delta], files={delta.files[i].path for i in touched}), fits_here(table, [delta])
    job = DeltaJob(
        table,
        delta_id,
        1 if here else rewriting_tasks(spark, sum(delta.files[i].bytes for i in touched)),
        level=delta.level,
        times=(delta.t_lo, delta.t_hi),
        expected_rows=sum(delta.files[i].rows for i in touched),
        kept=tuple(keep_files(store, delta, table.schema, others, lambda block: chosen.renumbered(spec, block))),
    )
    rows = scanned_rows(store, scan, [delta]) if here else stored_rows(spark, store, scan)
    written = write_rows(rows, store, job).delta
    assert written is not None, "a delta has rows"
    return written
