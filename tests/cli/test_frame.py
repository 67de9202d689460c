"""The command's frame: help, version, exit codes, and errors on one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
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
    "retention",
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
        ["retention", "history_s"],
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


def failing_with(error: Exception) -> object:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [KeyError("format"), RecursionError(), OverflowError("a\nb"), RuntimeError("x" * 10_000), OSError(5, "I/O")],
)
def test_an_unexpected_error_is_one_line_and_its_details_are_in_the_file_it_names(
    error: Exception, nowhere: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("parquetry.warehouse.connect", failing_with(error))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answer = nowhere("sql", "SELECT 1", "--json")
    assert answer.code == 1
    assert answer.err.startswith(f"parquetry: unexpected error ({type(error).__name__}")
    assert answer.err.count("\n") == 1
    assert len(answer.err) < 1000
    assert answer.document["kind"] == "Unexpected"
    (file,) = tmp_path.glob("parquetry-error-*.txt")
    assert str(file) in answer.err
    assert file.stat().st_mode & 0o077 == 0
    told = file.read_text()
    assert "Traceback" in told
    assert "SELECT 1" in told


def test_details_hold_no_password_and_a_full_disk_takes_nothing_away(
    nowhere: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("parquetry.warehouse.connect", failing_with(ValueError("postgresql://me:secret@host/db")))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answer = nowhere("init", "--catalog", "postgresql://me:secret@host/db")
    assert "secret" not in answer.err
    (file,) = tmp_path.glob("parquetry-error-*.txt")
    assert "secret" not in file.read_text()
    monkeypatch.setattr(tempfile, "mkstemp", failing_with(OSError(28, "No space left on device")))
    answer = nowhere("tables", "--json")
    assert answer.code == 1
    assert "No space left" in answer.document["error"]


def test_a_reader_that_goes_away_ends_the_command_quietly(shell: Shell) -> None:
    done = subprocess.run(
        f"{sys.executable} -c 'import sys; from parquetry.cli import main; sys.exit(main())' "
        f"-w '{shell.warehouse}' tables --json | true",
        shell=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


def test_what_the_terminal_cannot_print_is_written_as_codes(shell: Shell) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from parquetry.cli import main; sys.exit(main())",
         "-w", str(shell.warehouse), "sql", "SELECT 'ü→' AS x FROM sales", "--executor", "gpu→", "--json"],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"].startswith("unknown executor 'gpu→'")
