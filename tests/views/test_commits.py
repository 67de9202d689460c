"""What the catalog refuses, so that a view is never wrong at a published QT, whoever commits when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

import parquetry
from parquetry.catalog import Catalog, migrations
from parquetry.catalog import tables as sql
from parquetry.errors import CommitConflict, QueryError, SchemaError
from parquetry.maintain.pick import pick_advance
from parquetry.model.profile import PROFILES
from parquetry.model.state import AddViewDelta, AdvanceQT, ReplaceDeltas
from parquetry.warehouse import Warehouse
from tests.views import without_spark
from tests.views.random_views import DDL, rows

VIEW = "SELECT c, count(*) AS n, sum(v) AS s FROM t GROUP BY c"


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[Warehouse]:
    """A table with two visible batches, a view that has them, and a third batch that is hidden."""
    rng = random.Random(1)
    with parquetry.connect(tmp_path / "wh") as opened:
        opened.create_table("t", DDL, key=["k", "day"])
        for n in range(2):
            without_spark.ingest(opened, "t", rows(rng, 50), f"batch {n}")
        without_spark.publish(opened)
        without_spark.create_view(opened, "v", VIEW)
        without_spark.publish(opened)
        without_spark.ingest(opened, "t", rows(rng, 50), "batch 2")
        yield opened


def qt_of(wh: Warehouse) -> int:
    return wh.catalog.state().qt


def test_the_qt_does_not_pass_a_view_that_has_caught_up(wh: Warehouse) -> None:
    picked = pick_advance(wh.catalog.state())
    assert picked is None or picked.database == 2, "the view lacks the third batch"
    with pytest.raises(CommitConflict, match="pass view 'v'"):
        wh.catalog.commit([AdvanceQT({}, 3)], kind="advance")
    assert qt_of(wh) == 2


def test_a_view_that_is_filling_lets_the_qt_pass(wh: Warehouse) -> None:
    wh.drop_view("v")
    without_spark.create_view(wh, "w", VIEW)
    wh.catalog.commit([AdvanceQT({}, 3)], kind="advance")
    assert qt_of(wh) == 3
    with pytest.raises(QueryError, match="still being filled"):
        wh.sql("SELECT * FROM w")


def test_two_refreshes_of_one_step_make_one_delta(wh: Warehouse) -> None:
    view = wh.catalog.state().table("v")
    edit = AddViewDelta(view.table_id, 2, 3, None)
    wh.catalog.commit([edit], kind="refresh view")
    with pytest.raises(CommitConflict, match="refreshed by another commit"):
        wh.catalog.commit([edit], kind="refresh view")


def test_no_merge_reaches_across_what_a_view_has_taken_in(wh: Warehouse) -> None:
    """A merge across the published QT is refused anyway; this one is refused for the filling view alone."""
    without_spark.create_view(wh, "w", VIEW)
    w, t = (wh.catalog.state().table(n) for n in ("w", "t"))
    wh.catalog.commit([AddViewDelta(w.table_id, 0, 1, None)], kind="refresh view")
    merged = replace(without_spark.write(wh, t, rows(random.Random(2), 5), (1, 2)), t_lo=1, t_hi=2)
    with pytest.raises(CommitConflict, match="up to which 'w' is built"):
        wh.catalog.commit([ReplaceDeltas(t.table_id, tuple(d.delta_id for d in t.deltas[:2]), merged)], kind="compact")
    wh.catalog.commit([AddViewDelta(w.table_id, 1, 2, None)], kind="refresh view")
    wh.catalog.commit([ReplaceDeltas(t.table_id, tuple(d.delta_id for d in t.deltas[:2]), merged)], kind="compact")


def test_tables_below_views_and_the_views_themselves_are_protected(wh: Warehouse) -> None:
    with pytest.raises(SchemaError, match="view 'v' reads 't'"):
        wh.drop_table("t")
    with pytest.raises(SchemaError, match="is a view"):
        wh.add_column("v", "x", "int")
    with pytest.raises(SchemaError, match="is a table, not a view"):
        wh.drop_view("t")


def test_freshness_says_what_blocks_and_that_nobody_works_on_it(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    told = wh.freshness()
    assert (told["qt"], told["clock"]) == (2, 3)
    assert told["blocked_by"].startswith("refresh v: [3, 3] of t")
    view = next(t for t in told["tables"] if t["table"] == "v")
    assert (view["kind"], view["qt"], view["gates"], view["progress"]) == ("view", 2, True, "new")
    now = wh.catalog.now()
    monkeypatch.setattr(Catalog, "now", lambda self: now + 61)
    assert next(t for t in wh.freshness()["tables"] if t["table"] == "v")["progress"] == "stalled"
    lease = wh.catalog.acquire(f"refresh:{wh.catalog.state().table('v').table_id}", "someone", 30)
    assert lease is not None
    assert next(t for t in wh.freshness()["tables"] if t["table"] == "v")["progress"] == "slow"


def test_waiting_for_a_batch_ends_when_it_is_visible_or_says_what_it_waits_for(wh: Warehouse) -> None:
    assert wh.wait(2) == 2
    with pytest.raises(QueryError, match="waits for: refresh v"):
        wh.wait(3, timeout_s=0.1)


def test_a_profile_is_compiled_into_all_settings_and_new_tables(wh: Warehouse) -> None:
    wh.sql("ALTER DATABASE SET PROFILE cost")
    state = wh.catalog.state()
    assert state.profile == PROFILES["cost"]
    assert {t.settings.compaction_width for t in state.tables.values()} == {24}
    wh.create_table("later", DDL, key=["k"], settings={"row_group_rows": 9})
    later = wh.catalog.state().table("later").settings
    assert (later.max_query_deltas, later.row_group_rows) == (32, 9)
    assert wh.freshness()["target_lag_s"] == 60.0
    reopened = parquetry.connect(wh.folder)
    assert reopened.catalog.state().profile == PROFILES["cost"]
    reopened.close()


def test_a_catalog_without_views_is_brought_up_to_date(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    catalog = Catalog.create(url)
    with catalog._db.write() as conn:
        for table in (sql.views, sql.built):
            table.drop(conn)
        conn.exec_driver_sql("ALTER TABLE parquetry_clock DROP COLUMN visible")
        conn.exec_driver_sql("ALTER TABLE parquetry_labels DROP COLUMN at")
        conn.exec_driver_sql("ALTER TABLE parquetry_pins DROP COLUMN since")
        conn.exec_driver_sql("CREATE INDEX ix_parquetry_queryable_table_id ON parquetry_queryable (table_id)")
        conn.execute(sql.meta.update().where(sql.meta.c.name == "format").values(value=1))
    catalog.close()
    opened = Catalog.open(url)
    assert opened.state().tables == {}
    with opened._db.read() as conn:
        assert migrations.stored_format(conn) == migrations.newest_format()
        assert sa.inspect(conn).has_table("parquetry_views")
        indexes = {i["name"] for t in ("queryable", "labels") for i in sa.inspect(conn).get_indexes(f"parquetry_{t}")}
        assert "ix_parquetry_queryable_table_id" not in indexes
        assert "since" in {c["name"] for c in sa.inspect(conn).get_columns("parquetry_pins")}
    assert (opened.shows_more_than(-1), opened.shows_more_than(0)) == (True, False)
    opened.close()
