"""``relayout auto``: asks the advisor, and rewrites only if that pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parquetry.catalog import Catalog
from parquetry.layouts.pricing.price import Asked
from parquetry.maintain.advise import advise, winning_options
from parquetry.maintain.compare import SAMPLE_ROWS, AdviseOptions
from parquetry.maintain.relayout import Phase, Relaid, relayout
from parquetry.maintain.verdict import Advice
from parquetry.model.layout_options import RelayoutOptions
from parquetry.model.state import State
from parquetry.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def relayout_auto(
    catalog: Catalog,
    store: Store,
    spark: Callable[[], SparkSession],
    name: str,
    log: Sequence[Asked],
    options: RelayoutOptions,
    pays_back_within: int,
    holder: str,
    phase: Phase = lambda _: None,
) -> Relaid:
    """The advised layout, learned again from the whole ``log``; or the table as it is, with the reason."""
    state = catalog.state()
    shared = replace(options, sample_rows=min(options.sample_rows, SAMPLE_ROWS))
    wanted = AdviseOptions(pays_back_within=pays_back_within, layout=shared)
    advice = advise(spark, store, state, name, log, wanted, phase)
    if advice.winner is None:
        return _kept(state, name, advice)
    winner = winning_options(advice, state.table(name), log, options)
    queries = [q.query for q in log if q.filters]
    done = relayout(
        catalog, store, spark(), name, winner.learner, queries, winner.options, holder, phase, winner.predicted
    )
    return replace(done, reason=advice.reason, predicted=winner.predicted)


def _kept(state: State, name: str, advice: Advice) -> Relaid:
    """The outcome of a rewrite that the advisor advises against: the table as it is."""
    table = state.table(name)
    return Relaid(
        table.name,
        table.learner,
        table.blocks,
        table.rows,
        table.bytes,
        table.bytes,
        state.version,
        table.layout,
        sum(d.extra_rows for d in table.deltas),
        applied=False,
        reason=advice.reason,
    )
