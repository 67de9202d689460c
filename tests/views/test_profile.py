"""What a profile means for settings, and the statements that set one."""

from __future__ import annotations

import pytest

from parquetry.errors import QueryError, SchemaError
from parquetry.model.profile import PROFILES, Profile, profile_of
from parquetry.model.settings import Settings
from parquetry.views.parse_statement import SetProfile, parse_statement


def test_profiles_trade_deltas_per_query_against_rewriting() -> None:
    fresh, speed, cost = (PROFILES[n] for n in ("freshness", "speed", "cost"))
    assert fresh.max_query_deltas < speed.max_query_deltas < cost.max_query_deltas
    assert fresh.compaction_width < speed.compaction_width < cost.compaction_width
    assert fresh.views > speed.views > cost.views
    assert fresh.target_lag_s < cost.target_lag_s < speed.target_lag_s


def test_a_profile_changes_only_what_it_is_about() -> None:
    before = Settings(row_group_rows=77, compression="zstd")
    after = PROFILES["speed"].compiled(before)
    assert (after.row_group_rows, after.compression) == (77, "zstd")
    assert (after.max_query_deltas, after.compaction_width) == (8, 4)


def test_tables_that_are_seldom_read_may_have_more_deltas() -> None:
    bounds = [PROFILES["speed"].compiled(Settings(), reads).max_query_deltas for reads in (500, 5, 0)]
    assert bounds == [8, 16, 32]


def test_explicit_targets_go_over_the_profile() -> None:
    assert profile_of("cost", {"slots": 3}, None).slots == 3
    assert profile_of(None, {"target_lag_s": 5.0}, PROFILES["speed"]) == Profile("speed", 5.0, 8, 4, 1, 4)
    with pytest.raises(SchemaError, match="unknown profile 'fast'"):
        profile_of("fast", {}, None)
    with pytest.raises(SchemaError, match="unknown target 'lag'"):
        profile_of("cost", {"lag": 1}, None)
    with pytest.raises(SchemaError, match="at least 2"):
        profile_of("cost", {"max_query_deltas": 1}, None)


def test_statements_set_profiles() -> None:
    assert parse_statement("ALTER DATABASE SET PROFILE speed;") == SetProfile("speed", {})
    assert parse_statement("alter database set (target_lag_s = 1.5, slots = 2)") == SetProfile(
        None, {"target_lag_s": 1.5, "slots": 2}
    )
    assert parse_statement("ALTER DATABASE SET PROFILE cost (views = 3)") == SetProfile("cost", {"views": 3})
    with pytest.raises(QueryError, match="ALTER DATABASE SET PROFILE"):
        parse_statement("ALTER DATABASE SET (slots)")
