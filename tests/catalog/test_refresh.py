"""A cached state that is refreshed equals one read from scratch, and the refresh reads few rows (NA-49)."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from parquetry.catalog import Catalog
from parquetry.catalog.apply_edits import Applying
from parquetry.catalog.loading import refresh_state
from parquetry.model.schema import Column
from parquetry.model.settings import Settings
from parquetry.model.state import (
    AddDelta,
    AdvanceQT,
    ChangeSchema,
    ChangeSettings,
    CreateTable,
    DropTable,
    Edit,
    PublishLayout,
    State,
    TableState,
)
from tests.catalog.building import SCHEMA, add, compact, create, cut_at, ingest


def random_edits(state: State, rng: random.Random) -> list[Edit]:
    """Edits that are valid on ``state``."""
    tables = list(state.tables.values())
    choice = rng.random()
    if len(tables) < 2 or (len(tables) < 5 and choice < 0.05):
        return [CreateTable(f"t{state.version}", SCHEMA, Settings())]
    table = rng.choice(tables)
    if choice < 0.5:
        return [add(t, f"label {state.version}") for t in rng.sample(tables, rng.choice([1, 1, 2]))]
    if choice < 0.55:
        return [AddDelta(table.table_id, f"empty {state.version}", "d", 0, None)]
    if choice < 0.75 and table.deltas:
        start = rng.randrange(len(table.deltas))
        visible = table.deltas[start].t_hi <= state.qt  # a merge may not reach across the QT
        run = table.deltas[start : start + rng.randint(1, 4)]
        return [compact(tuple(d for d in run if (d.t_hi <= state.qt) == visible), table)]
    if choice < 0.8:
        return [PublishLayout(table.table_id, cut_at(state.version) if rng.random() < 0.8 else None)]
    if choice < 0.85:
        wider = table.schema.add_column(Column(f"c{state.version}", "string"))
        return [ChangeSchema(table.table_id, table.schema_id, wider)]
    if choice < 0.88:
        return [ChangeSettings(table.table_id, Settings(max_query_deltas=rng.randint(2, 9)))]
    if choice < 0.9:
        return [DropTable(table.table_id)]
    ends = [t for t in range(state.clock + 1) if not any(d.t_lo <= t < d.t_hi for x in tables for d in x.deltas)]
    return [AdvanceQT({t.table_id: rng.randint(0, state.clock) for t in tables}, rng.choice(ends))]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_refreshed_state_equals_one_read_from_scratch(catalog: Catalog, url: str, seed: int) -> None:
    rng = random.Random(seed)
    lagging = Catalog.open(url)  # refreshes now and then, so over several versions at once
    seen: dict[int, State] = {}
    for _ in range(60):
        catalog.commit(random_edits(catalog.state(), rng), kind="random")
        state = catalog.state()
        seen[state.version] = state
        with catalog._db.read() as conn:
            assert refresh_state(conn, None) == state
        if rng.random() < 0.1:
            assert lagging.state() == state
        if rng.random() < 0.1:
            horizon = rng.randint(max(0, state.version - 10), state.version)
            dead = catalog.garbage(horizon, catalog.now() + 1)
            catalog.forget([d.delta_id for d in dead], horizon)
            seen = {v: s for v, s in seen.items() if v >= horizon}
        readable = rng.choice(sorted(seen))
        assert catalog.state_at(readable) == seen[readable]
    assert lagging.state() == catalog.state()
    lagging.close()


def ingest_at_once(catalog: Catalog, table: TableState, count: int) -> None:
    """As many versions as ``count`` commits would make, in one transaction because that is quicker."""
    state = catalog.state()
    with catalog._db.write() as conn:
        for i in range(count):
            applying = Applying(conn, state.version + 1 + i, state.clock + i, time.time())
            applying.apply([add(table, f"label {i}")])
            catalog._write_version(applying, "ingest", None)


def test_with_a_thousand_deltas_a_refresh_reads_only_what_changed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(catalog, "other")
    ingest_at_once(catalog, create(catalog), 1000)
    table = catalog.state().table("sales")
    assert len(table.deltas) == 1000

    assert catalog.state() is catalog.state()  # nothing is read or built again

    catalog.commit([compact(table.deltas[10:14], table)], kind="compact")
    ingest(catalog, table, "new")

    rows: list[Any] = []
    read_all = sa.CursorResult.all

    def counted(result: sa.CursorResult[Any]) -> Sequence[Any]:
        read = read_all(result)
        rows.extend(read)
        return read

    statements: list[tuple[str, Any]] = []
    monkeypatch.setattr(sa.CursorResult, "all", counted)
    listen = (catalog._db.engine, "before_cursor_execute", lambda *a: statements.append((a[2], a[3])))
    sa.event.listen(*listen)
    state = catalog.state()
    sa.event.remove(*listen)
    assert len(state.table("sales").deltas) == 998
    assert 0 < len(rows) < 20
    if catalog._db.sqlite:
        with catalog._db.engine.connect() as conn:
            for statement, parameters in statements:
                if statement.startswith("SELECT"):
                    plan = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
                    for step in (row[-1] for row in plan):
                        assert not step.startswith("SCAN parquetry_") or "clock" in step, statement
                        assert "(removed_version=?)" not in step, statement  # that is every live row
