"""Napa's three clients (NA-E4) and its I/O model (NA-E2), on the real picker and profiles but without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parquetry.maintain.pick import Advance, Compact, Refresh, Stage, pick_next
from parquetry.model.delta import Delta, StoredFile, cover
from parquetry.model.profile import PROFILES, Profile
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import State, TableState
from parquetry.model.view import ViewColumn, ViewSource, ViewSpec, ViewState

CLIENTS = {"A": ("speed", 4), "B": ("cost", 2), "C": ("freshness", 1)}  # profile, batches per step (Figure 10)
STEP_S = 30.0
BATCH_ROWS = 1_000
_REDUCTION = 10  # a view's delta has so many times fewer rows than its table's
_ROWS_PER_SLOT = 40_000  # what one slot reads in a step
_SCHEMA = TableSchema((Column("k", "int"),), ("k",))


@dataclass
class Client:
    """One database under a profile; every count is of rows."""

    profile: Profile
    state: State
    ingested: int = 0
    written: int = 0
    rate: int = 1

    @classmethod
    def of(cls, name: str) -> Client:
        chosen, rate = CLIENTS[name]
        profile = PROFILES[chosen]
        settings = profile.compiled(Settings())
        tables = {"t": TableState(1, "t", _SCHEMA, 1, (), 0, settings)}
        for i in range(profile.views):
            spec = ViewSpec("", (ViewSource(1, "t"),), (ViewColumn("k", "int", "group", "k"),), "", "merge")
            view = TableState(2 + i, f"v{i}", _SCHEMA, 1, (), 0, settings, view=ViewState(spec, 0))
            tables[view.name] = view
        return cls(profile, State(1, 0, 0, tables), rate=rate)

    def step(self, times: dict[int, int], now: int) -> None:
        """Ingests what comes in, then maintains within the slots' budget, if the target lag asks for it."""
        for _ in range(self.rate):
            t = self.state.clock + 1
            times[t] = now
            self._add("t", _delta(1, t, t, BATCH_ROWS))
            self.state = replace(self.state, clock=t)
            self.ingested += BATCH_ROWS
            self.written += BATCH_ROWS
        oldest = times.get(self.state.qt + 1, now)
        if (now - oldest) * STEP_S < self.profile.target_lag_s / 2:
            return
        budget = self.profile.slots * _ROWS_PER_SLOT
        while budget > 0:
            stage = pick_next(self.state)
            if stage is None:
                return
            budget -= self._perform(stage)

    def _perform(self, stage: Stage) -> int:
        """Applies a stage; gives the rows it read."""
        if isinstance(stage, Advance):
            tables = {n: replace(self.state.tables[n], qt=qt) for _, n, qt in stage.tables}
            self.state = replace(self.state, qt=stage.database, tables=tables)
            return 0
        read = sum(d.rows for d in stage.deltas)
        lo, hi = min(d.t_lo for d in stage.deltas), max(d.t_hi for d in stage.deltas)
        table = self.state.tables[stage.table]
        if isinstance(stage, Refresh):
            assert table.view is not None
            made = _delta(table.table_id, lo, hi, max(1, read // _REDUCTION))
            self._replace(replace(table, view=replace(table.view, built=hi)))
            self._add(stage.table, made)
        else:
            assert isinstance(stage, Compact)
            gone = {d.delta_id for d in stage.deltas}
            made = _delta(table.table_id, lo, hi, read)
            self._replace(replace(table, deltas=tuple(d for d in table.deltas if d.delta_id not in gone)))
            self._add(stage.table, made)
        self.written += made.rows
        return read

    def _add(self, name: str, delta: Delta) -> None:
        table = self.state.tables[name]
        self._replace(replace(table, deltas=tuple(sorted([*table.deltas, delta], key=lambda d: d.t_lo))))

    def _replace(self, table: TableState) -> None:
        self.state = replace(self.state, tables={**self.state.tables, table.name: table})

    def deltas_read(self) -> int:
        return len(cover(self.state.tables["t"].deltas, self.state.qt))


def _delta(table_id: int, lo: int, hi: int, rows: int) -> Delta:
    return Delta(f"{table_id}:{lo}-{hi}", table_id, lo, hi, 0, rows, rows * 40, 1, 0, StoredFile("i", 1, ""), ())


def three_clients(steps: int) -> list[dict[str, Any]]:
    """Ingestion, delay, deltas per query and rows written per row ingested of each client over so many steps."""
    found = []
    for name in CLIENTS:
        client = Client.of(name)
        times: dict[int, int] = {0: 0}
        delays, deltas = [], []
        for now in range(steps):
            client.step(times, now)
            delays.append((now - times.get(client.state.qt, 0)) * STEP_S)
            deltas.append(client.deltas_read())
        half = steps // 2  # the first half fills up
        found.append(
            {
                "client": name,
                "profile": client.profile.name,
                "rows ingested": client.ingested,
                "mean delay s": float(np.mean(delays[half:])),
                "p99 deltas per query": float(np.percentile(deltas[half:], 99)),
                "rows written per row": client.written / client.ingested,
            }
        )
    return found


def io_latency(
    deltas: Sequence[int], lazily: bool, *, subqueries: int, columns: int, queries: int, seed: int
) -> dict[int, tuple[float, float]]:
    """The p50 and p99 of a query that waits for the slowest of its I/Os: one per subquery, delta and column.

    Merged ``lazily`` a subquery has one delta, so there is one per subquery and column (NA-54). One I/O is lognormal,
    and one in 2,000 of them is from a Pareto tail (1.2).
    """
    found = {}
    for d in deltas:
        rng = np.random.default_rng(seed)
        size = (queries, subqueries * (1 if lazily else d) * columns)
        times = rng.lognormal(1.0, 0.5, size)
        times = np.where(rng.random(size) < 5e-4, times * (1 + rng.pareto(1.2, size)) * 5, times)
        slowest = times.max(axis=1)
        found[d] = float(np.percentile(slowest, 50)), float(np.percentile(slowest, 99))
    return found
