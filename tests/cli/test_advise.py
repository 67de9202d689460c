"""The advisor on the command line: nothing to do is an answer, not an error, and nothing changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.calling import Shell


def test_without_rows_or_queries_the_advice_is_to_keep(shell: Shell) -> None:
    told = shell("advise", "sales")
    assert told.code == 0
    assert told.out == "sales: keep; 'sales' has no rows; ingest first\n"
    document = shell.json("advise", "sales")
    assert (document["verdict"], document["winner"], document["candidates"]) == ("keep", None, [])


def test_a_rewrite_by_advice_says_why_not_and_succeeds(shell: Shell) -> None:
    version = json.loads(shell("history", "--json").out)[0]["version"]
    told = shell("relayout", "sales", "auto")
    assert told.code == 0
    assert told.out.startswith("sales: nothing was changed; ")
    document = shell.json("relayout", "sales", "auto")
    assert (document["applied"], document["version"]) == (False, version)


def test_a_table_that_was_never_rewritten_has_nothing_to_check(shell: Shell) -> None:
    told = shell("advise", "sales", "--check")
    assert (told.code, told.out.count("\n")) == (0, 1)
    assert "never rewritten" in told.out
    assert shell.json("advise", "sales", "--check")["queries"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("advise", "nowhere"), "unknown table"),
        (("advise", "sales", "--learners", "magic"), "unknown layout 'magic'"),
        (("advise", "sales", "--split", "1"), "split is the share"),
        (("advise", "sales", "--pays-back-within", "0"), "at least 1"),
        (("advise", "sales", "--workload", "missing.sql"), "cannot read the workload file"),
        (("what-if", "SELECT 1", "--layout", "paw"), "which table"),
        (("what-if", "SELECT * FROM sales", "--layout", "paw"), "no rows"),
        (("what-if", "SELEC", "--layout", "paw"), "SELEC"),
    ],
)
def test_mistakes_are_told_on_one_line(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    told = shell(*arguments)
    assert told.code == 1
    assert told.err.count("\n") == 1
    assert said in told.err


def test_a_layout_is_needed_for_what_if(shell: Shell, tmp_path: Path) -> None:
    assert shell("what-if", "SELECT * FROM sales").code == 2
