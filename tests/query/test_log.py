"""The query log is written beside the queries, and a catalog that is lost loses only log rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parquetry.catalog import Catalog
from parquetry.errors import CatalogError
from parquetry.query import log
from parquetry.query.planning.plan import Plan

STATS = {"executor": "local", "qt": 1, "elapsed_ms": 1.0, "plan_ms": 0.5, "rows_out": 1, "bytes_read": 9}


def asked(sql: str) -> Plan:
    bound = SimpleNamespace(sql=sql, refs=())
    return cast(Plan, SimpleNamespace(asked=None, bound=bound, tables={"t": None}, induced=()))


def log_to(write: Callable[[Sequence[Any]], None]) -> log.QueryLog:
    return log.QueryLog(cast(Catalog, SimpleNamespace(log_queries=write)))


def test_no_query_waits_for_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_FLUSH_ROWS", 1)
    written: list[str] = []
    go = threading.Event()

    def slowly(rows: Sequence[Any]) -> None:
        assert go.wait(10)
        written.extend(r.sql for r in rows)

    kept = log_to(slowly)
    for i in range(5):
        kept.add(asked(f"q{i}"), STATS)  # would hang here if it waited
    assert written == []
    go.set()
    kept.flush()
    assert written == [f"q{i}" for i in range(5)], "a flush waits for what is being written, too"
    kept.close()


def test_few_rows_are_written_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_FLUSH_S", 0.01)
    written: list[Any] = []
    kept = log_to(written.extend)
    kept.add(asked("q"), STATS)
    end = time.monotonic() + 10
    while not written and time.monotonic() < end:
        time.sleep(0.01)
    assert [r.sql for r in written] == ["q"]
    kept.close()


def test_a_lost_catalog_loses_only_log_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_FLUSH_ROWS", 1)

    def fail(rows: Sequence[Any]) -> None:
        raise CatalogError("gone")

    kept = log_to(fail)
    for _ in range(3):
        kept.add(asked("q"), STATS)
    kept.close()


def test_half_a_character_does_not_end_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_FLUSH_S", 0.01)
    catalog = Catalog.create(f"sqlite:///{tmp_path / 'catalog.db'}")
    kept = log.QueryLog(catalog)
    kept.add(asked("SELECT '\ud800'"), {**STATS, "said": "\udfff"})
    kept.flush()
    kept.add(asked("SELECT 2"), STATS)
    kept.flush()
    assert [q["sql"] for q in catalog.queries(10)] == ["SELECT 2", "SELECT '\ufffd'"]
    kept.close()
    catalog.close()


def test_the_writer_outlives_whatever_a_row_does_and_rows_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_FLUSH_S", 0.01)
    monkeypatch.setattr(log, "_MOST_WAITING", 3)
    written: list[str] = []
    fail = [True]

    def write(rows: Sequence[Any]) -> None:
        if fail[0]:
            raise UnicodeEncodeError("utf-8", "x", 0, 1, "no")
        written.extend(r.sql for r in rows)

    kept = log_to(write)
    for i in range(10):
        kept.add(asked(f"q{i}"), STATS)
    assert len(kept._waiting) <= 3
    time.sleep(0.1)
    fail[0] = False
    kept.add(asked("later"), STATS)
    end = time.monotonic() + 10
    while "later" not in written and time.monotonic() < end:
        time.sleep(0.01)
    assert "later" in written
    kept.close()
