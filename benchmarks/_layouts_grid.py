"""One cell of the layout benchmark: every layout learned from the log, priced on queries that came later, and the
advisor's choice among them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks._layouts_data import Dataset
from benchmarks._layouts_workloads import epochs
from parquetry import RelayoutOptions
from parquetry.errors import ParquetryError
from parquetry.layouts.pricing.column_bytes import ColumnBytes
from parquetry.layouts.pricing.price import Asked, PricedLayout, simulate
from parquetry.layouts.pricing.priced_sample import SampledTable
from parquetry.maintain.candidates import candidates_of
from parquetry.maintain.compare import AdviseOptions, compare, filtered_columns, learn_candidate, least_possible
from parquetry.query.demands import asked_of

_NO_LIMIT = 10**9


@dataclass(frozen=True, eq=False)
class Bench:
    """A table, whole and as the sample that learners and advisor see."""

    data: Dataset
    whole: SampledTable
    sample: SampledTable
    count: int
    seed: int

    @property
    def layout(self) -> RelayoutOptions:
        return RelayoutOptions(block_rows=self.data.block_rows)


def measure(bench: Bench, workload: str, note: Callable[[str], None]) -> dict[str, Any]:
    """Bytes per later query of each layout, over the least possible, and what the advisor chose."""
    data, state = bench.data, bench.data.state()
    schemas = {data.name: data.schema}
    asked = [
        [q for sql in epoch for q in asked_of(sql, data.name, schemas)]
        for epoch in epochs(data.name, workload, bench.count, bench.seed)
    ]
    log, future = [*asked[0], *asked[1]], asked[2]
    filtered = filtered_columns([*log, *future])
    key_order = simulate(bench.whole, None, filtered, ColumnBytes({}))
    unit = max(data.settings.block_group_rows, data.block_rows // bench.layout.cells)
    bound = least_possible(bench.whole, future, key_order.sizes, unit)
    matching = [int(bench.whole.matching(q.query).sum()) for q in future]
    options = AdviseOptions(split=0.5, pays_back_within=_NO_LIMIT, time_limit_s=_NO_LIMIT, layout=bench.layout)
    started = time.perf_counter()
    advice = compare(state, bench.sample, key_order, log, options)
    advise_s = time.perf_counter() - started
    costs: dict[str, dict[str, float]] = {}
    left_out: dict[str, str] = {}
    for candidate in candidates_of(None):
        started = time.perf_counter()
        try:
            spec = learn_candidate(state, bench.sample, candidate, log, filtered, bench.layout)
        except ParquetryError as e:
            left_out[candidate.label] = str(e)
            continue
        seconds = time.perf_counter() - started
        layout = key_order if spec is None else simulate(bench.whole, spec, filtered, key_order.sizes)
        costs[candidate.label] = {**_cost(layout, future, matching), "build_s": seconds}
    chosen = advice.winner or "key"
    best = min(costs, key=lambda label: costs[label]["bytes"])
    found = {
        "data": data.name,
        "workload": workload,
        "matching_rows": bound.rows,
        "bound_bytes": bound.rounded_bytes,
        "costs": costs,
        "left_out": left_out,
        "best": best,
        "chosen": chosen,
        "regret": costs[chosen]["bytes"] / max(costs[best]["bytes"], 1e-9),
        "verdict": advice.verdict,
        "held_out": {c.label: c.bytes_per_query for c in advice.candidates},
        "held_out_today": advice.today.bytes_per_query if advice.today else 0.0,
        "advise_s": advise_s,
    }
    shown = " ".join(f"{k} {v['bytes'] / bound.rounded_bytes:.2f}" for k, v in costs.items())
    note(f"{data.name}, {workload}: chose {chosen}, best {best}, regret {found['regret']:.3f}; {shown}")
    return found


def _cost(layout: PricedLayout, queries: list[Asked], matching: list[int]) -> dict[str, float]:
    """Means per query. No layout may read fewer rows than match: then pruning would have lost some."""
    prices = layout.price_all(queries)
    for price, least, q in zip(prices, matching, queries, strict=True):
        assert price.rows >= least, f"{price.rows} rows read, {least} match: {q}"
    return {
        "bytes": sum(p.bytes for p in prices) / len(prices),
        "rows": sum(p.rows for p in prices) / len(prices),
        "groups": sum(p.groups for p in prices) / len(prices),
    }
