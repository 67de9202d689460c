"""Progress without a terminal: a line only when there is something new to say."""

from __future__ import annotations

import pytest

from parquetry.cli.terminal.progress import _Lines


def test_short_work_says_nothing_and_no_line_comes_twice(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = _Lines(lambda: now[0])
    lines.start("ingest into t")
    told = []
    for second, done, total in [(0, 0, 1), (1, 0, 1), (3, 0, 1), (14, 0, 1), (30, 0, 1), (31, 1, 2), (32, 2, 2)]:
        now[0] = float(second)
        lines(done, total)
        told.append(capsys.readouterr().err)
    assert told == ["", "", "ingest into t: 0 of 1 tasks done\n", "", "", "ingest into t: 1 of 2 tasks done\n", ""]
