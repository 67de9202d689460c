"""The command's frame: help, version, exit codes, and errors on one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from parquetry.cli import main
from parquetry.cli.app import app
from tests.cli.calling import Shell

SOURCE = Path(__file__).parents[2] / "src"
VERBS = (
    "init",
    "advise",
    "what-if",
    "create-table",
    "drop-table",
    "add-column",
    "set",
    "ingest",
    "maintain",
    "sql",
    "explain",
    "tables",
    "deltas",
    "blocks",
    "freshness",
    "history",
    "queries",
    "verify",
    "vacuum",
    "rules",
    "workload",
    "relayout",
    "layout",
    "create-view",
    "drop-view",
    "views",
    "suggest-views",
    "profile",
    "demo",
)


def run_apart(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_verbs_are_those_that_scripts_rely_on() -> None:
    assert sorted(typer.main.get_command(app).commands) == sorted(VERBS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_takes_json(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    groups = {"workload": "show", "layout": "draw"}
    words = [verb, groups[verb]] if verb in groups else [verb]
    assert main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: parquetry {' '.join(words)}")
    assert "--json" in out


def test_no_arguments_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "create-table" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("parquetry 0.")


@pytest.mark.parametrize("arguments", [["--help"], ["sql", "--help"], ["demo", "--help"]], ids=" ".join)
def test_help_loads_nothing_but_the_parser(arguments: list[str]) -> None:
    heavy = ("pyspark", "duckdb", "pandas", "pyarrow", "numpy", "sqlalchemy", "sqlglot")
    done = run_apart(
        f"import sys; from parquetry.cli import main; code = main({arguments!r}); "
        f"print(*[m for m in {heavy!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    assert done.returncode == 0
    assert done.stderr.split() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-verb"],
        ["tables", "--no-such-option"],
        ["sql"],
        ["ingest", "sales"],
        ["create-table", "t", "--schema", "a int"],
        ["create-table", "t", "--key", "a"],
        ["create-table", "t", "--key", "a", "--schema", "a int", "--like", "x.parquet"],
        ["create-table", "t", "--key", "a", "--schema", "a int", "--set", "compression"],
        ["create-table", "t", "--key", "a", "--schema", "a int, v bigint", "--value", "v"],
        ["vacuum", "--grace", "soon"],
        ["maintain", "--explain", "--watch"],
        ["ingest", "sales", "x.csv", "--tasks", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_code_2_and_one_line(arguments: list[str], nowhere: Shell) -> None:
    answer = nowhere(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("parquetry: ")
    assert answer.err.count("\n") == 1
    assert "--help'" in answer.err


def test_wrong_usage_with_json_is_a_document_too(nowhere: Shell) -> None:
    answer = nowhere("tables", "--no-such-option", "--json")
    assert answer.code == 2
    assert answer.document["kind"] == "Usage"


def test_an_interrupt_is_code_130(nowhere: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("parquetry.warehouse.connect", interrupted)
    answer = nowhere("tables")
    assert answer.code == 130
    assert answer.err == "parquetry: interrupted\n"


def test_the_environment_names_the_warehouse(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PARQUETRY_WAREHOUSE", str(shell.warehouse))
    assert main(["tables"]) == 0
    assert "sales" in capsys.readouterr().out
