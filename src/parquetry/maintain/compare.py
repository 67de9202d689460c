"""Learns layouts from the older part of a log and prices them on the newer part, held out: no Spark, no files."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from parquetry.errors import ParquetryError, SchemaError
from parquetry.layouts.pricing.column_bytes import ColumnBytes
from parquetry.layouts.pricing.drift import SCENARIOS, vary
from parquetry.layouts.pricing.price import Asked, PricedLayout, simulate
from parquetry.layouts.pricing.priced_sample import SampledTable
from parquetry.maintain.candidates import Candidate, candidates_of
from parquetry.maintain.relayout import Phase, default_block_rows, learn_from_sample
from parquetry.maintain.verdict import (
    KEEP,
    RELAYOUT,
    Advice,
    Bound,
    LeftOut,
    Measured,
    pays_back,
    rank,
    reason_for,
)
from parquetry.model.layout import LayoutSpec, cut_columns
from parquetry.model.layout_options import RelayoutOptions
from parquetry.model.predicate import columns_of
from parquetry.model.state import TableState
from parquetry.model.through import is_through

SAMPLE_ROWS = 500_000
PAYS_BACK_WITHIN = 1_000
TIME_LIMIT_S = 300.0
_MOST_LEARNED = 1_000  # learning time grows with queries, what is learned does not
_MOST_PRICED = 200
_MOST_VARIED = 60  # per scenario
_LEAST_GAIN = 0.05  # an estimate from a sample cannot tell a smaller one from none


@dataclass(frozen=True)
class AdviseOptions:
    """What a user may say; ``layout`` holds the settings that every candidate shares."""

    learners: Sequence[str] | None = None
    split: float = 0.7  # the share of the log that is learned from
    pays_back_within: int = PAYS_BACK_WITHIN
    time_limit_s: float = TIME_LIMIT_S
    """No further candidate is begun after this time; those left out are named."""
    layout: RelayoutOptions = field(default_factory=lambda: RelayoutOptions(sample_rows=SAMPLE_ROWS))

    def __post_init__(self) -> None:
        if not 0 < self.split < 1:
            raise SchemaError(f"split is the share of the log to learn from, above 0 and below 1, not {self.split}")
        if self.pays_back_within < 1:
            raise SchemaError(f"pays_back_within is a number of queries of at least 1, not {self.pays_back_within}")


def compare(
    table: TableState,
    sampled: SampledTable,
    today_layout: PricedLayout,
    log: Sequence[Asked],
    options: AdviseOptions,
    phase: Phase = lambda _: None,
) -> Advice:
    """The advice itself, from a sample and the table's present row groups alone."""
    began = time.monotonic()
    stored = today_layout.sizes
    older, newer = _split(log, options.split)
    older, newer = _thinned(older, _MOST_LEARNED), _thinned(newer, _MOST_PRICED)
    filtered = filtered_columns(log)
    scenes = {s.name: vary(_thinned(newer, _MOST_VARIED), s, sampled) for s in SCENARIOS}
    bound = least_possible(sampled, newer, stored, _unit(table, options.layout))
    today = _measure("today", table.learner, (), today_layout, newer, scenes)
    columns = table.schema.key if table.layout is None else cut_columns(table.layout)
    today = replace(today, columns=columns, blocks=table.blocks)
    rewrite = 2 * table.bytes  # all is read once and written once
    found: list[Measured] = []
    left_out: list[LeftOut] = []
    candidates = candidates_of(options.learners)
    for n, candidate in enumerate(candidates, start=1):
        if time.monotonic() - began > options.time_limit_s:
            left_out.append(LeftOut(candidate.label, f"the time limit of {options.time_limit_s:g} s was reached"))
            continue
        phase(f"{n} of {len(candidates)}: {candidate.label}")
        try:
            started = time.perf_counter()
            spec = learn_candidate(table, sampled, candidate, older, filtered, options.layout)
            seconds = round(time.perf_counter() - started, 2)
        except ParquetryError as e:
            left_out.append(LeftOut(candidate.label, str(e)))
            continue
        same_order = spec is None and table.layout is None  # the sample lacks the neighbours that compress the key
        priced = simulate(sampled, spec, filtered, stored, measure=not same_order)
        one = _measure(candidate.label, candidate.learner, candidate.settings.items(), priced, newer, scenes)
        columns, blocks = (tuple(table.schema.key), 1) if spec is None else (cut_columns(spec), spec.blocks)
        one = replace(one, columns=columns, blocks=blocks, learn_s=seconds)
        back = pays_back(one.bytes_per_query, today.bytes_per_query, rewrite)
        found.append(replace(one, pays_back_after=back, reason=reason_for(one, today, bound)))
    ranking = rank(found)
    verdict, winner, reason = decide(ranking, today, options.pays_back_within)
    return Advice(
        table.name,
        verdict,
        reason,
        winner,
        today,
        tuple(ranking),
        tuple(left_out),
        bound,
        len(older),
        len(newer),
        table.rows,
        sampled.sample.num_rows,
        rewrite,
        round(time.monotonic() - began, 1),
    )


def learn_candidate(
    table: TableState,
    sampled: SampledTable,
    candidate: Candidate,
    log: Sequence[Asked],
    filtered: Sequence[str],
    base: RelayoutOptions,
) -> LayoutSpec | None:
    """The candidate's layout from these queries; None is the plain key order."""
    if candidate.learner == "key" and base.within is None:
        return None
    options = candidate.options(base, cuttable(table, filtered))
    workload = [q.query for q in log if q.filters]
    return learn_from_sample(table, sampled.sample, candidate.learner, workload, options, reached=sampled.reached)


def cuttable(table: TableState, columns: Sequence[str]) -> list[str]:
    """Those of its own columns that a layout may be told to cut on."""
    return [c for c in columns if not is_through(c) and (not table.schema.keyed or c in table.schema.key)]


def filtered_columns(queries: Sequence[Asked]) -> list[str]:
    return sorted({c for q in queries for c in columns_of(q.predicate)})


def least_possible(sampled: SampledTable, queries: Sequence[Asked], stored: ColumnBytes, unit: int) -> Bound:
    """Means per query of the matching rows, exactly and in row groups of ``unit`` rows.

    No row of a sample matching is no proof that none does: one row group is the least that a query reads.
    """
    exact = [float(np.count_nonzero(sampled.matching(q.query))) / sampled.rate for q in queries]
    rounded = [max(rows, min(unit, sampled.rows)) for rows in exact]
    figures = []
    for rows in (exact, rounded):
        sizes = [stored.of(q.columns, 0, n) for q, n in zip(queries, rows, strict=True)]
        figures += [_mean(queries, rows), _mean(queries, sizes)]
    return Bound(*figures)


def _split(log: Sequence[Asked], share: float) -> tuple[Sequence[Asked], Sequence[Asked]]:
    at = min(max(1, round(share * len(log))), len(log) - 1)
    return log[:at], log[at:]


def _thinned(queries: Sequence[Asked], most: int) -> Sequence[Asked]:
    """Evenly spaced queries, so that all of the period counts."""
    if len(queries) <= most:
        return queries
    return [queries[i] for i in np.linspace(0, len(queries) - 1, most).astype(int).tolist()]


def _measure(
    label: str,
    learner: str,
    settings: Collection[tuple[str, object]],
    layout: PricedLayout,
    queries: Sequence[Asked],
    scenes: dict[str, list[Asked]],
) -> Measured:
    prices = layout.price_all(queries)
    return Measured(
        label,
        learner,
        dict(settings),
        (),
        1,
        layout.groups,
        _mean(queries, [p.groups for p in prices]),
        _mean(queries, [p.rows for p in prices]),
        _mean(queries, [p.bytes for p in prices]),
        {name: _mean(varied, [p.bytes for p in layout.price_all(varied)]) for name, varied in scenes.items()},
    )


def _mean(queries: Sequence[Asked], figures: Sequence[float]) -> float:
    return float(np.average(figures, weights=[q.query.weight for q in queries]))


def _unit(table: TableState, layout: RelayoutOptions) -> int:
    """The rows of the smallest row group that a layout would make."""
    block_rows = layout.block_rows or default_block_rows(table)
    return max(table.settings.block_group_rows, block_rows // max(1, layout.cells))


def decide(ranking: Sequence[Measured], today: Measured, within: int) -> tuple[str, str | None, str]:
    """The verdict. It never names a layout that is not better than today's by the held-out measure."""
    if not ranking:
        return KEEP, None, "no layout could be learned from the older part of the log"
    best = ranking[0]
    if best.bytes_per_query >= today.bytes_per_query * (1 - _LEAST_GAIN) or best.pays_back_after is None:
        gain = f"'{best.label}' would read {_percent(best.bytes_per_query, today.bytes_per_query)} of today's bytes"
        return KEEP, None, f"no layout reads at least {_LEAST_GAIN:.0%} less than today's: the best, {gain}"
    saved = f"'{best.label}' reads {_percent(best.bytes_per_query, today.bytes_per_query)} of today's bytes per query"
    if best.pays_back_after > within:
        return KEEP, None, f"{saved}, but pays back after {best.pays_back_after:,.0f} queries, not within {within:,}"
    return RELAYOUT, best.label, f"{saved} and pays back after {best.pays_back_after:,.0f}"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "as much"
