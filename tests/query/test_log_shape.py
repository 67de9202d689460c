"""What the log keeps of a query is the same whether it ran here or was imported."""

from __future__ import annotations

from pathlib import Path

import pytest

import parquetry
from tests.cli.calling import Shell

QUERIES = (
    "SELECT count(*) AS n FROM t WHERE k < 5 AND k + v > 3",
    "SELECT k FROM t WHERE k < v",
    "SELECT k FROM t",
)


def test_what_was_not_understood_is_kept_of_every_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with parquetry.connect(tmp_path / "wh") as wh:
        wh.create_table("t", "k int, s string, v bigint", key=["k"])
        for sql in QUERIES:
            wh.sql(sql, executor="local").arrow()
        ran = [r["shape"] for r in wh.queries(10)]
        (tmp_path / "log.sql").write_text("\n".join(QUERIES))
        wh.import_workload(tmp_path / "log.sql")
        imported = [r["shape"] for r in wh.queries(3)]
    assert ran == imported
    assert [len(s["opaque"]) for (s,) in reversed(ran)] == [1, 1, 0]
    told = Shell(capsys, tmp_path / "wh").json("workload", "show")
    assert [bool(s["opaque"]) for q in told for s in q["shape"]] == [False, True, True] * 2
