"""What a catalog promises, whichever database it lives in."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checking
from hypothesis import strategies as st

from parquetry.catalog import LAYOUT_OF_THIS_COMMIT, Catalog, QueryRow
from parquetry.errors import CatalogError, CommitConflict, LabelConflict, LeaseLost, SchemaError
from parquetry.model.delta import cover
from parquetry.model.schema import Column
from parquetry.model.settings import Settings
from parquetry.model.state import (
    AddDelta,
    AdvanceQT,
    ChangeSchema,
    ChangeSettings,
    CreateTable,
    DropTable,
    PublishLayout,
    ReplaceDeltas,
)
from tests.catalog.building import SCHEMA, add, compact, create, cut_at, delta, ingest

one_catalog_for_all_examples = checking(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# -- opening --------------------------------------------------------------------------------------


def test_a_new_catalog_is_empty_and_can_be_opened_again(url: str) -> None:
    Catalog.create(url).close()
    catalog = Catalog.open(url)
    state = catalog.state()
    assert (state.version, state.clock, state.qt, dict(state.tables)) == (0, 0, 0, {})
    catalog.close()


def test_what_was_committed_is_there_after_reopening(catalog: Catalog, url: str) -> None:
    table = create(catalog)
    ingest(catalog, table, "a", "b")
    again = Catalog.open(url)
    assert again.state() == catalog.state()
    again.close()


def test_a_second_create_is_refused(catalog: Catalog, url: str) -> None:
    with pytest.raises(CatalogError, match="already"):
        Catalog.create(url)


def test_a_state_can_be_sent_to_another_process(catalog: Catalog) -> None:
    ingest(catalog, create(catalog), "a")
    assert pickle.loads(pickle.dumps(catalog.state())) == catalog.state()


# -- tables ---------------------------------------------------------------------------------------


def test_a_table_keeps_its_schema_and_settings(catalog: Catalog) -> None:
    catalog.commit([CreateTable("Sales", SCHEMA, Settings(max_query_deltas=3))], kind="create table")
    table = catalog.state().table("sales")
    assert (table.name, table.schema, table.settings) == ("Sales", SCHEMA, Settings(max_query_deltas=3))
    assert table.schemas == {table.schema_id: SCHEMA}


def test_table_names_are_unique_without_case(catalog: Catalog) -> None:
    create(catalog, "sales")
    with pytest.raises(SchemaError, match="exists already"):
        create(catalog, "SALES")


def test_a_table_name_is_a_plain_identifier(catalog: Catalog) -> None:
    for name in ["", "1a", "a b", "a.b", "a'b", 'a"', "a\n", "ä", "x" * 129]:
        with pytest.raises(SchemaError, match="no table name"):
            create(catalog, name)
    assert catalog.version() == 0


def test_a_dropped_table_leaves_its_name_and_older_versions_keep_it(catalog: Catalog) -> None:
    table = create(catalog)
    before = ingest(catalog, table, "a").version
    catalog.commit([DropTable(table.table_id)], kind="drop table")
    assert dict(catalog.state().tables) == {}
    assert len(catalog.state_at(before).table("sales").deltas) == 1
    again = create(catalog)
    assert again.table_id != table.table_id
    assert again.deltas == ()
    with pytest.raises(CommitConflict, match="dropped"):
        ingest(catalog, table, "b")


def test_a_schema_changes_only_on_top_of_the_current_one(catalog: Catalog) -> None:
    table = create(catalog)
    wider = SCHEMA.add_column(Column("note", "string"))
    change = ChangeSchema(table.table_id, table.schema_id, wider)
    catalog.commit([change], kind="add column")
    now = catalog.state().table("sales")
    assert now.schema == wider
    assert now.schemas == {table.schema_id: SCHEMA, now.schema_id: wider}
    with pytest.raises(CommitConflict, match="schema"):
        catalog.commit([change], kind="add column")


def test_a_delta_names_a_schema_and_a_layout_of_its_table(catalog: Catalog) -> None:
    table, other = create(catalog), create(catalog, "other")
    ours = delta(table)
    for wrong in ({"schema_id": other.schema_id}, {"schema_id": 99}, {"layout_id": 99}):
        broken = type(ours)(**{**ours.__dict__, **wrong})
        with pytest.raises(CommitConflict, match=next(iter(wrong))):
            catalog.commit([AddDelta(table.table_id, "a", "d", 1, broken)], kind="ingest")
    assert catalog.label(table.table_id, "a") is None


# -- commits, timestamps and labels ---------------------------------------------------------------


def test_each_batch_takes_the_next_timestamp(catalog: Catalog) -> None:
    table = create(catalog)
    done = [ingest(catalog, table, label) for label in "abc"]
    assert [c.t for c in done] == [1, 2, 3]
    assert [(d.t_lo, d.t_hi) for d in catalog.state().table("sales").deltas] == [(1, 1), (2, 2), (3, 3)]
    assert catalog.state().table("sales").last_t == 3
    assert [label.label for label in catalog.labels(table.table_id, up_to_t=2)] == ["a", "b"]


def test_an_empty_batch_is_remembered_by_its_label_alone(catalog: Catalog) -> None:
    table = create(catalog)
    catalog.commit([AddDelta(table.table_id, "nothing", "d", 0, None)], kind="ingest")
    now = catalog.state().table("sales")
    assert (now.deltas, now.last_t, catalog.state().clock) == ((), 1, 1)


def test_batches_of_one_commit_share_a_timestamp(catalog: Catalog) -> None:
    orders, items = create(catalog, "orders"), create(catalog, "items")
    catalog.commit([add(orders, "x"), add(items, "x")], kind="ingest")
    state = catalog.state()
    assert state.table("orders").deltas[0].t_lo == state.table("items").deltas[0].t_lo == state.clock == 1
    with pytest.raises(ValueError, match="one batch per table"):
        catalog.commit([add(orders, "y"), add(orders, "z")], kind="ingest")
    assert catalog.version() == state.version


def test_a_repeated_label_changes_nothing(catalog: Catalog) -> None:
    table = create(catalog)
    first = ingest(catalog, table, "a")
    state = catalog.state()
    second = ingest(catalog, table, "a")
    assert second.repeated
    assert not first.repeated
    assert second.label == first.label == catalog.label(table.table_id, "a")
    assert catalog.state() == state


@pytest.mark.parametrize(("digest", "rows_in"), [("other", 10), ("d", 11)])
def test_a_label_with_other_data_is_a_conflict(catalog: Catalog, digest: str, rows_in: int) -> None:
    table = create(catalog)
    version = ingest(catalog, table, "a").version
    with pytest.raises(LabelConflict, match="'sales'"):
        catalog.commit([add(table, "a", digest, rows_in=rows_in)], kind="ingest")
    assert catalog.version() == version


def test_labels_belong_to_a_table(catalog: Catalog) -> None:
    one, two = create(catalog, "one"), create(catalog, "two")
    ingest(catalog, one, "a")
    assert not ingest(catalog, two, "a").repeated


def test_a_commit_applies_all_edits_or_none(catalog: Catalog) -> None:
    table = create(catalog)
    before = catalog.state()
    with pytest.raises(CommitConflict):
        catalog.commit([add(table, "a"), ReplaceDeltas(table.table_id, ("gone",), None)], kind="both")
    assert catalog.state() == before
    assert catalog.label(table.table_id, "a") is None
    assert ingest(catalog, table, "a").t == 1


# -- compaction and layouts -----------------------------------------------------------------------


def test_compaction_spans_the_timestamps_of_what_it_replaces(catalog: Catalog) -> None:
    table = create(catalog)
    ingest(catalog, table, "a", "b", "c")
    a, b, c = catalog.state().table("sales").deltas
    catalog.commit([compact([a, b], table)], kind="compact")
    ab, last = catalog.state().table("sales").deltas
    assert (ab.t_lo, ab.t_hi, ab.level, last) == (1, 2, 1, c)
    assert cover(catalog.state().table("sales").deltas, 2) == (ab,)


def test_only_neighbours_are_compacted(catalog: Catalog) -> None:
    table = create(catalog)
    ingest(catalog, table, "a", "b", "c")
    a, b, c = catalog.state().table("sales").deltas
    with pytest.raises(CommitConflict, match="neighbours"):
        catalog.commit([compact([a, c], table)], kind="compact")
    with pytest.raises(ValueError, match="covers"):
        catalog.commit([ReplaceDeltas(table.table_id, (a.delta_id, b.delta_id), delta(table, 1, 3))], kind="compact")
    assert catalog.state().table("sales").deltas == (a, b, c)


def test_another_tables_deltas_do_not_part_neighbours(catalog: Catalog) -> None:
    table, other = create(catalog), create(catalog, "other")
    ingest(catalog, table, "a")
    ingest(catalog, other, "between")
    ingest(catalog, table, "b")
    catalog.commit([compact(catalog.state().table("sales").deltas, table)], kind="compact")
    assert [(d.t_lo, d.t_hi) for d in catalog.state().table("sales").deltas] == [(1, 3)]


def test_of_two_compactions_of_a_delta_the_second_conflicts(catalog: Catalog) -> None:
    table = create(catalog)
    ingest(catalog, table, "a", "b")
    old = catalog.state().table("sales").deltas
    catalog.commit([compact(old, table)], kind="compact")
    with pytest.raises(CommitConflict, match="replaced"):
        catalog.commit([compact(old, table)], kind="compact")


def test_deltas_may_merge_to_nothing(catalog: Catalog) -> None:
    table = create(catalog)
    ingest(catalog, table, "a", "b")
    ids = tuple(d.delta_id for d in catalog.state().table("sales").deltas)
    catalog.commit([ReplaceDeltas(table.table_id, ids, None)], kind="compact")
    assert catalog.state().table("sales").deltas == ()
    assert catalog.state().table("sales").last_t == 2


def test_a_layout_and_the_deltas_laid_out_by_it_appear_in_one_version(catalog: Catalog) -> None:
    table = create(catalog)
    ingest(catalog, table, "a", "b")
    spec = cut_at(17)
    old = catalog.state().table("sales").deltas
    rewritten = compact(old, table, layout=LAYOUT_OF_THIS_COMMIT)
    catalog.commit([PublishLayout(table.table_id, spec), rewritten], kind="relayout")
    now = catalog.state().table("sales")
    assert now.layout == spec
    assert [d.layout_id for d in now.deltas] == [now.layout_id]
    catalog.commit([PublishLayout(table.table_id, None)], kind="relayout")
    assert catalog.state().table("sales").layout is None
    assert catalog.state().table("sales").layout_id > now.layout_id


# -- queryable timestamp --------------------------------------------------------------------------


@one_catalog_for_all_examples
@given(steps=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_qt_never_goes_back(catalog: Catalog, steps: list[tuple[int, int]]) -> None:
    if not catalog.state().tables:
        ingest(catalog, create(catalog), *(f"l{i}" for i in range(40)))
    table_id = catalog.state().table("sales").table_id
    for of_table, of_database in steps:
        before = catalog.state()
        catalog.commit([AdvanceQT({table_id: of_table}, of_database)], kind="advance qt")
        after = catalog.state()
        assert after.qt == max(before.qt, of_database)
        assert after.table("sales").qt == max(before.table("sales").qt, of_table)
        assert (after.version > before.version) == (after != before)


def test_qt_never_passes_the_clock(catalog: Catalog) -> None:
    table = create(catalog)
    ingest(catalog, table, "a")
    with pytest.raises(ValueError, match="beyond the clock"):
        catalog.commit([AdvanceQT({table.table_id: 2}, 1)], kind="advance qt")


def test_a_new_table_is_complete_up_to_the_clock(catalog: Catalog) -> None:
    ingest(catalog, create(catalog), "a", "b")
    assert create(catalog, "later").qt == 2


def test_a_table_dropped_meanwhile_does_not_hinder_the_qt(catalog: Catalog) -> None:
    table, other = create(catalog), create(catalog, "other")
    ingest(catalog, table, "a")
    catalog.commit([DropTable(other.table_id)], kind="drop table")
    catalog.commit([AdvanceQT({table.table_id: 1, other.table_id: 1}, 1)], kind="advance qt")
    assert (catalog.state().qt, catalog.state().table("sales").qt) == (1, 1)


# -- leases ---------------------------------------------------------------------------------------


def test_no_delta_may_reach_across_the_qt(catalog: Catalog) -> None:
    table = create(catalog)
    for label in "abc":
        ingest(catalog, table, label)
    catalog.commit([AdvanceQT({table.table_id: 2}, 2)], kind="advance qt")
    deltas = catalog.state().table("sales").deltas
    with pytest.raises(CommitConflict, match="queryable timestamp 2"):
        catalog.commit([compact(deltas, table)], kind="compact")
    catalog.commit([compact(deltas[:2], table)], kind="compact")
    ingest(catalog, table, "d")
    catalog.commit([compact(catalog.state().table("sales").deltas[1:], table)], kind="compact")
    with pytest.raises(CommitConflict, match="queryable timestamp 3"):
        catalog.commit([AdvanceQT({table.table_id: 4}, 3)], kind="advance qt")


def test_an_attempts_lease_leaves_no_row(catalog: Catalog) -> None:
    lease = catalog.acquire("attempt:x", "me", 60)
    assert lease is not None
    assert catalog.live_resources("attempt:") == {"attempt:x"}
    catalog.release(lease)
    assert catalog.live_resources("attempt:") == set()
    again = catalog.acquire("attempt:x", "me", 60)
    assert again is not None
    assert again.token == 1


def test_a_lease_has_one_holder_and_a_growing_token(catalog: Catalog) -> None:
    first = catalog.acquire("compact sales", "one", 60)
    assert first is not None
    assert catalog.acquire("compact sales", "two", 60) is None
    assert catalog.acquire("compact other", "two", 60) is not None
    catalog.release(first)
    second = catalog.acquire("compact sales", "two", 60)
    assert second is not None
    assert second.token > first.token
    catalog.release(first)  # of a lease that is not theirs any more: the new holder keeps it
    assert catalog.renew(second, 60).expires_at >= second.expires_at


def test_a_worker_that_lost_its_lease_cannot_commit(catalog: Catalog) -> None:
    table = create(catalog)
    stale = catalog.acquire("ingest", "slow", 60)
    assert stale is not None
    catalog.commit([add(table, "a")], kind="ingest", lease=stale)
    stale = catalog.renew(stale, 0.01)
    time.sleep(0.02)
    with pytest.raises(LeaseLost):
        catalog.commit([add(table, "b")], kind="ingest", lease=stale)
    with pytest.raises(LeaseLost):
        catalog.renew(stale, 60)
    fresh = catalog.acquire("ingest", "quick", 60)
    assert fresh is not None
    with pytest.raises(LeaseLost):
        catalog.commit([add(table, "b")], kind="ingest", lease=stale)
    assert catalog.label(table.table_id, "b") is None
    catalog.commit([add(table, "b")], kind="ingest", lease=fresh)


def test_a_kept_lease_outlives_its_seconds_and_ends_with_the_block(catalog: Catalog) -> None:
    lease = catalog.acquire("work", "me", 1.5)
    assert lease is not None
    with catalog.keep(lease, 1.5) as keeper:
        time.sleep(2)
        assert not keeper.lost
        assert catalog.acquire("work", "you", 1) is None
        create_under_lease = CreateTable("t", SCHEMA, Settings())
        catalog.commit([create_under_lease], kind="create table", lease=keeper.lease)
    assert catalog.acquire("work", "you", 1) is not None


def test_a_keeper_notices_that_its_lease_is_lost(catalog: Catalog) -> None:
    lease = catalog.acquire("work", "me", 0.3)
    assert lease is not None
    with catalog.keep(lease, 0.3) as keeper:
        catalog.release(lease)
        time.sleep(0.25)
        assert keeper.lost


# -- pins and vacuum ------------------------------------------------------------------------------


def test_a_pinned_reader_still_sees_the_deltas_of_its_version(catalog: Catalog) -> None:
    table = create(catalog)
    version = ingest(catalog, table, "a", "b").version
    catalog.pin(version, "reader", 60)
    before = catalog.state()
    catalog.commit([compact(before.table("sales").deltas, table)], kind="compact")
    ingest(catalog, table, "c")
    assert catalog.state_at(version) == before
    with pytest.raises(CommitConflict, match="pinned"):
        catalog.raise_horizon(version + 1)
    with pytest.raises(CommitConflict, match="pinned"):
        catalog.forget([d.delta_id for d in before.table("sales").deltas], version + 1)
    assert catalog.state_at(version) == before


def test_garbage_is_what_no_readable_version_refers_to(catalog: Catalog) -> None:
    table = create(catalog)
    version = ingest(catalog, table, "a", "b").version
    old = catalog.state().table("sales").deltas
    removed = catalog.commit([compact(old, table)], kind="compact").version
    later = catalog.now() + 1
    assert catalog.garbage(version, later) == []
    assert catalog.garbage(removed, later - 60) == []
    assert catalog.garbage(removed, later) == list(old)
    assert {d.delta_id for d in old} < catalog.known_delta_ids()

    catalog.forget([d.delta_id for d in old], removed)
    assert catalog.garbage(removed, later) == []
    assert catalog.known_delta_ids() == {d.delta_id for d in catalog.state().table("sales").deltas}
    with pytest.raises(CatalogError, match="try again"):
        catalog.pin(version, "reader", 60)
    with pytest.raises(CatalogError, match="cannot be read"):
        catalog.state_at(version)
    catalog.pin(removed, "reader", 60)


def test_a_live_delta_is_never_forgotten(catalog: Catalog) -> None:
    version = ingest(catalog, create(catalog), "a").version
    live = catalog.known_delta_ids()
    catalog.forget(live, version)
    assert catalog.known_delta_ids() == live


def test_pins_move_expire_and_end(catalog: Catalog) -> None:
    ingest(catalog, create(catalog), "a", "b")
    assert catalog.oldest_pinned() is None
    pin = catalog.pin(1, "reader", 60)
    brief = catalog.pin(0, "brief", 1.0)
    assert catalog.oldest_pinned() == 0
    time.sleep(1.05)
    assert catalog.oldest_pinned() == 1
    pin = catalog.move_pin(pin, 3)
    assert catalog.oldest_pinned() == 3
    assert catalog.move_pin(brief, 0).version == 0  # vacuum has not passed it, so it can still be held
    catalog.unpin(brief)
    catalog.unpin(pin)
    assert catalog.oldest_pinned() is None
    catalog.raise_horizon(2)
    with pytest.raises(CatalogError, match="vacuumed"):
        catalog.move_pin(brief, 0)


# -- records --------------------------------------------------------------------------------------


def test_history_tells_what_each_commit_did(catalog: Catalog) -> None:
    table, other = create(catalog), create(catalog, "other")
    catalog.commit([add(table, "a")], kind="ingest", detail={"by": "test"})
    ingest(catalog, other, "a")
    newest, *_, oldest = catalog.history()
    assert (newest.version, oldest.version, oldest.kind) == (4, 0, "create catalog")
    ingested, created = catalog.history(table.table_id)
    assert (ingested.kind, ingested.detail, ingested.t) == ("ingest", {"by": "test"}, 1)
    assert [c.edit for c in created.changes + ingested.changes] == ["create table", "add delta"]
    assert ingested.changes[0].detail["label"] == "a"
    assert abs(ingested.at - catalog.now()) < 60
    assert len(catalog.history(limit=2)) == 2


def test_a_reader_need_not_look_at_commits_that_show_it_nothing(catalog: Catalog, url: str) -> None:
    table = create(catalog)
    reader = Catalog.open(url)
    seen = catalog.version()
    ingest(catalog, table, "a")
    ingest(catalog, table, "b")
    assert not reader.shows_more_than(seen), "new data is hidden until the QT moves"
    assert catalog.shows_more_than(seen), "who has changed something sees it"
    seen = catalog.version()
    catalog.commit([AdvanceQT({table.table_id: 2}, 0)], kind="advance qt")
    assert not reader.shows_more_than(seen), "queries go by the database's QT"
    catalog.commit([AdvanceQT({}, 2)], kind="advance qt")
    assert reader.shows_more_than(seen)
    seen = catalog.version()
    deltas = catalog.state().table("sales").deltas
    catalog.commit([compact(deltas, table)], kind="compact")
    assert not reader.shows_more_than(seen), "the deltas before it can still be read"
    catalog.commit([ChangeSettings(table.table_id, Settings(max_query_deltas=2))], kind="settings")
    assert reader.shows_more_than(seen)
    assert not reader.shows_more_than(catalog.version())
    reader.close()


def test_the_query_log_gives_back_the_newest_queries_of_a_table(catalog: Catalog) -> None:
    tables = (["salesx1", "b"], ["Sales_1"])
    rows = [
        QueryRow.of(12.0 + i, f"SELECT {i}\x00", tables[i % 2], [{"filters": [["a", 1]]}], {"qt": i, "files_read": 2})
        for i in range(6)
    ]
    catalog.log_queries(rows)
    catalog.log_queries([])
    assert [q["qt"] for q in catalog.queries(4)] == [5, 4, 3, 2]
    newest, *rest = catalog.queries(10, table="sales_1")
    assert [q["qt"] for q in rest] == [3, 1]
    assert (newest["at"], newest["tables"], newest["stats"]) == (17.0, ["sales_1"], {"qt": 5, "files_read": 2})
    assert (newest["sql"], newest["shape"]) == ("SELECT 5\ufffd", [{"filters": [["a", 1]]}])
    assert (newest["qt"], newest["rows_out"]) == (5, None)


def test_settings_change_in_a_version(catalog: Catalog) -> None:
    table = create(catalog)
    catalog.commit([ChangeSettings(table.table_id, Settings(max_query_deltas=2))], kind="settings")
    assert catalog.state().table("sales").settings.max_query_deltas == 2
    assert catalog.state_at(1).table("sales").settings == Settings()
