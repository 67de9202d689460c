"""Prices of single queries without writing: under a layout not yet made, and after the fact against what was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from parquetry.catalog import Catalog
from parquetry.errors import QueryError
from parquetry.joins.reach import reach
from parquetry.layouts.pricing.column_bytes import stored_column_bytes
from parquetry.layouts.pricing.price import Asked, Price, simulate
from parquetry.maintain.advise import sample_for, stored_layout
from parquetry.maintain.candidates import Candidate
from parquetry.maintain.compare import SAMPLE_ROWS, cuttable, filtered_columns
from parquetry.maintain.relayout import Phase, learn_from_sample, through_columns
from parquetry.model.layout_options import RelayoutOptions
from parquetry.model.state import State, TableState
from parquetry.query.demands import Ran, ran_since
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class WhatIf:
    """One query today and under another layout; ``matching_rows`` is the least that any layout reads."""

    table: str
    learner: str
    learned_from: int
    blocks: int
    today: Price
    then: Price
    groups_today: int
    groups_then: int
    matching_rows: float
    today_learner: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def what_if(
    spark: Callable[[], SparkSession],
    store: Store,
    state: State,
    name: str,
    asked: Asked,
    log: Sequence[Asked],
    learner: str,
    options: RelayoutOptions,
    phase: Phase = lambda _: None,
) -> WhatIf:
    """The price of one query under a layout learned from the log, which need not hold this query."""
    table = state.table(name)
    if not table.rows:
        raise QueryError(f"'{table.name}' has no rows, so there is nothing to price; ingest first")
    candidate = Candidate(learner)
    usable = [q for q in log if q.filters]
    stored = stored_column_bytes(store, table.deltas)
    filtered = filtered_columns([*usable, asked])
    wanted = candidate.options(options, cuttable(table, filtered))
    phase(f"sampling {table.name}")
    reached = reach(store, state, table.rows, through_columns(q.query for q in (*usable, asked)))
    sampled = sample_for(spark, store, table, [*usable, asked], stored, wanted, reached)
    spec = None
    if learner != "key" or wanted.within is not None:
        queries = [q.query for q in usable]
        spec = learn_from_sample(table, sampled.sample, learner, queries, wanted, phase, reached=reached)
    then = simulate(sampled, spec, filtered, stored, measure=spec is not None or table.layout is not None)
    now = stored_layout(store, state, table, stored)
    return WhatIf(
        table.name,
        learner,
        len(usable),
        1 if spec is None else spec.blocks,
        now.price(asked),
        then.price(asked),
        now.groups,
        then.groups,
        float(np.count_nonzero(sampled.matching(asked.query))) / sampled.rate,
        table.learner,
    )


@dataclass(frozen=True)
class Compared:
    """Queries of one executor: means per query, and how far single predictions lay off."""

    executor: str
    queries: int
    predicted_bytes: float
    real_bytes: float
    median_error: float
    p90_error: float
    per_query: tuple[tuple[float, int], ...] = ()  # predicted and real bytes of each, oldest first


@dataclass(frozen=True)
class Checked:
    """Whether a rewrite kept its promise. ``promised`` is what the advisor had predicted for it, if it chose it."""

    table: str
    learner: str
    version: int
    queries: int
    compared: tuple[Compared, ...]
    promised: Mapping[str, Any]
    deltas_in_layout: int
    deltas: int
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def last_rewrite(catalog: Catalog, table: TableState) -> tuple[int, float, Mapping[str, Any]] | None:
    """Version, time and detail of the commit that gave the table its present layout."""
    for record in catalog.history(table.table_id, 100_000):
        if record.kind == "relayout":
            return record.version, record.at, record.detail
    return None


def check(
    catalog: Catalog,
    store: Store,
    spark: Callable[[], SparkSession],
    name: str,
    queries: int,
    phase: Phase = lambda _: None,
) -> Checked:
    """Compares what the newest ``queries`` read since the last rewrite with what the price model says of each.

    The model sees the layout and a sample, not the index of the rewritten table: it predicts as the advisor does. Only
    the sizes of columns that are too wide to be sampled are looked up in the files.
    """
    table = catalog.state().table(name)
    learner = table.learner
    rewrite = last_rewrite(catalog, table)
    inside = sum(d.layout_id == table.layout_id for d in table.deltas)
    version, _, detail = rewrite or (0, 0.0, {})
    empty = Checked(table.name, learner, version, 0, (), detail.get("predicted", {}), inside, len(table.deltas))
    if rewrite is None:
        return replace(empty, reason=f"'{table.name}' was never rewritten in a new layout; there is nothing to check")
    ran = ran_since(catalog, table.name, rewrite[1], queries)
    if not ran:
        return replace(empty, reason=f"no query has read '{table.name}' alone since it was rewritten")
    asked = [r.asked for r in ran]
    spec = table.layout
    stored = stored_column_bytes(store, table.deltas)
    phase(f"sampling {table.name}")
    cut_on = RelayoutOptions(sample_rows=SAMPLE_ROWS, columns=None if spec is None else list(spec.columns))
    sampled = sample_for(spark, store, table, asked, stored, cut_on)
    model = simulate(sampled, spec, filtered_columns(asked), stored, measure=spec is not None)
    prices = [p.bytes for p in model.price_all(asked)]
    compared = [_compare(e, ran, prices) for e in sorted({r.executor for r in ran})]
    return replace(empty, queries=len(ran), compared=tuple(compared))


def _compare(executor: str, ran: Sequence[Ran], prices: Sequence[float]) -> Compared:
    mine = [(p, r.bytes_read) for p, r in zip(prices, ran, strict=True) if r.executor == executor]
    predicted, real = (np.array(side, np.float64) for side in zip(*mine, strict=True))
    errors = relative_errors(predicted, real)
    return Compared(
        executor,
        len(mine),
        float(predicted.mean()),
        float(real.mean()),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        tuple((round(p, 1), r) for p, r in mine),
    )


def relative_errors(predicted: Any, real: Any) -> Any:
    """How far each prediction lies off, as a share of what was read; a query that reads nothing is right or wrong."""
    return np.where(real > 0, np.abs(predicted - real) / np.maximum(real, 1), (predicted > 0).astype(np.float64))
