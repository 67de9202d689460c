"""What a query read is compared with the least possible: rows with rows, bytes with bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from parquetry.query.explain import Explanation


def explained(rows_scanned: int, bytes_read: int, matching: int) -> list[str]:
    settings = SimpleNamespace(row_group_rows=100)
    state = SimpleNamespace(layout=None, settings=settings)
    # 1,000 kept rows of 40 bytes, of which the query reads a quarter of the columns' bytes.
    table = SimpleNamespace(
        state=state, deltas=[SimpleNamespace(rows=5000)], bytes=40_000, rows=1000, column_share=0.25
    )
    plan: Any = SimpleNamespace(decisions=(), tables={"t": table})
    stats = {"rows_scanned": rows_scanned, "bytes_read": bytes_read, "elapsed_ms": 1.0}
    return [f"{d.decided} ({d.why})" for d in Explanation(plan, stats, matching)._compared()]


def test_both_ratios_are_told_and_each_is_of_one_unit() -> None:
    ran, bound = explained(rows_scanned=656, bytes_read=27_000, matching=7)
    assert "6.56 x the rows of the bound, 27.00 x its bytes" in ran
    assert "100 rows, about 1,000 bytes" in bound


def test_more_matching_rows_than_a_block_are_the_bound() -> None:
    ran, _ = explained(rows_scanned=400, bytes_read=4000, matching=200)
    assert "2.00 x the rows of the bound, 2.00 x its bytes" in ran
