"""Bad input: code 1, one line that says what to do, a document for programs; no JVM and no change."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest

from parquetry.cli import main
from tests.cli.calling import Shell

NO_WAREHOUSE = [
    ["tables"],
    ["deltas", "sales"],
    ["blocks", "sales"],
    ["freshness"],
    ["history"],
    ["queries"],
    ["verify"],
    ["vacuum"],
    ["retention"],
    ["maintain"],
    ["sql", "SELECT 1"],
    ["explain", "SELECT 1"],
    ["ingest", "sales", "x.parquet"],
    ["create-table", "t", "--schema", "a int", "--key", "a"],
    ["drop-table", "sales"],
    ["add-column", "sales", "b", "int"],
    ["set", "sales"],
]

BAD_INPUT = [
    (["explain", "SELECT reflect('java.lang.Math', 'abs', -3) AS a FROM sales"], "cannot call reflect", "QueryError"),
    (["sql", "SELECT * FROM text.`/etc/hostname`"], "unknown table", "UnknownTable"),
    (["deltas", "sels"], "unknown table 'sels'", "UnknownTable"),
    (["retention", "histry_s=5"], "unknown retention setting", "SchemaError"),
    (["retention", "labels_s=5"], "at least 86400", "SchemaError"),
    (["blocks", "sels"], "unknown table", "UnknownTable"),
    (["history", "sels"], "unknown table", "UnknownTable"),
    (["queries", "sels"], "unknown table", "UnknownTable"),
    (["workload", "show", "sels"], "unknown table", "UnknownTable"),
    (["relayout", "sels", "paw"], "unknown table", "UnknownTable"),
    (["relayout", "sales", "paw", "--workload", "none.sql"], "cannot read the workload file", "QueryError"),
    (["drop-table", "sels"], "unknown table", "UnknownTable"),
    (["set", "sels"], "unknown table", "UnknownTable"),
    (["ingest", "sels", "x.parquet"], "unknown table", "UnknownTable"),
    (["sql", "SELECT * FROM sels"], "unknown table", "UnknownTable"),
    (["sql", "SELECT prize FROM sales"], "unknown column 'prize'", "UnknownColumn"),
    (["explain", "SELECT prize FROM sales"], "unknown column 'prize'", "UnknownColumn"),
    (["sql", "SELECT FROM WHERE"], "", "QueryError"),
    (["sql", ""], "", "QueryError"),
    (["sql", "DROP TABLE sales"], "", "QueryError"),
    (["sql", "SELECT 1 AS a FROM sales", "--off", "magic"], "unknown rule 'magic'", "QueryError"),
    (["sql", "SELECT 1 AS a FROM sales", "--executor", "gpu"], "unknown executor 'gpu'", "QueryError"),
    (["sql", "SELECT soundex(day) AS s FROM sales", "--executor", "local"], "Use executor", "QueryError"),
    (["set", "sales", "speed=9"], "unknown setting 'speed'", "SchemaError"),
    (["set", "sales", "file_bytes=many"], "whole number", "SchemaError"),
    (["set", "sales", "compression=zip"], "unknown compression", "SchemaError"),
    (["add-column", "sales", "note", "strng"], "strng", "SchemaError"),
    (["create-table", "t", "--schema", "a int,, b", "--key", "a"], "schema", "SchemaError"),
    (["create-table", "t", "--schema", "a int", "--key", "b"], "unknown column 'b'", "UnknownColumn"),
    (["create-table", "t", "--schema", "a int", "--key", ","], "needs a key", "SchemaError"),
    (["create-table", "t", "--schema", "a int", "--key", "a", "--model", "heap"], "unknown model", "SchemaError"),
    (["create-table", "t", "--schema", "a int, v int", "--key", "a", "--model", "aggregate"], "merge", "SchemaError"),
    (["create-table", "t", "--schema", "a int", "--key", "a", "--set", "x=1"], "unknown setting 'x'", "SchemaError"),
    (
        ["create-table", "t", "--schema", "a int, b strng", "--key", "a"],
        "column 'b': unknown type 'strng'",
        "SchemaError",
    ),
    (["profile", "--set", "target_lag_s=soon"], "number of seconds", "SchemaError"),
    (["profile", "--set", "slots=many"], "whole number", "SchemaError"),
    (["add-column", "sales", "", "int"], "needs a name", "SchemaError"),
    (["create-table", "t", "--like", "none.parquet", "--key", "a"], "no such file", "SchemaError"),
]


@pytest.mark.parametrize("arguments", NO_WAREHOUSE, ids=lambda a: a[0])
def test_a_missing_warehouse_is_said_by_every_verb(arguments: list[str], nowhere: Shell) -> None:
    answer = nowhere(*arguments)
    assert answer.code == 1
    assert answer.out == ""
    assert "parquetry init" in answer.err
    assert answer.err.count("\n") == 1
    assert not nowhere.warehouse.exists()


@pytest.mark.parametrize(
    ("arguments", "told", "kind"), BAD_INPUT, ids=lambda a: " ".join(a) if isinstance(a, list) else ""
)
def test_bad_input_is_one_line_and_changes_nothing(arguments: list[str], told: str, kind: str, shell: Shell) -> None:
    before = shell.json("tables"), shell.json("history")
    answer = shell(*arguments)
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith("parquetry: ")
    assert told in answer.err
    assert answer.err.count("\n") == 1
    in_json = shell(*arguments, "--json")
    assert (in_json.code, in_json.document["kind"]) == (1, kind)
    assert told in in_json.document["error"]
    assert (shell.json("tables"), shell.json("history")) == before


def test_a_table_that_exists_already(shell: Shell) -> None:
    answer = shell("create-table", "sales", "--schema", "a int", "--key", "a")
    assert answer.code == 1
    assert "sales" in answer.err


@pytest.mark.parametrize("missing", ["parquetry.json", "catalog.db", "data"])
def test_a_half_deleted_warehouse(missing: str, shell: Shell) -> None:
    there = shell.warehouse / missing
    there.rename(there.with_name("elsewhere"))
    for verb in (["tables"], ["init"]):
        answer = shell(*verb)
        assert answer.code == 1
        assert "damaged" in answer.err
        assert answer.err.count("\n") == 1


def test_a_damaged_catalog(shell: Shell) -> None:
    for file in shell.warehouse.glob("catalog.db*"):
        file.write_bytes(b"this is no database, and long enough to be taken for one" * 100)
    answer = shell("tables")
    assert answer.code == 1
    assert answer.err.count("\n") == 1


def test_an_unreachable_catalog(nowhere: Shell) -> None:
    answer = nowhere("init", "--catalog", "postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert answer.code == 1
    assert answer.err.startswith("parquetry: ")
    assert answer.err.count("\n") == 1
    assert nowhere("tables").code == 1


def test_a_locked_catalog_is_told_in_one_line_or_waited_for(shell: Shell) -> None:
    with sqlite3.connect(shell.warehouse / "catalog.db") as other:
        other.execute("SELECT 1")
        assert shell("tables").code == 0


def test_init_refuses_a_folder_with_other_things(nowhere: Shell) -> None:
    nowhere.warehouse.mkdir()
    (nowhere.warehouse / "notes.txt").write_text("mine")
    answer = nowhere("init")
    assert answer.code == 1
    assert "not empty" in answer.err
    assert [p.name for p in nowhere.warehouse.iterdir()] == ["notes.txt"]


def test_init_twice_keeps_the_warehouse_and_refuses_another_catalog(shell: Shell) -> None:
    assert shell.json("init") == {"warehouse": str(shell.warehouse), "created": False}
    assert [t["table"] for t in shell.json("tables")] == ["sales"]
    assert shell("init", "--catalog", "sqlite:///elsewhere.db").code == 1


def test_the_demo_leaves_a_foreign_folder_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert main(["demo", "--folder", str(tmp_path)]) == 1
    assert "another --folder" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()


def test_the_demo_refuses_an_address_before_it_makes_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--folder", "s3://bucket/demo"]) == 1
    said = capsys.readouterr()
    assert "only folders of this machine" in said.err
    assert said.out == ""


def test_the_demo_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["demo", "--folder", str(tmp_path / "demo")]) == 1
    assert "pip install" in capsys.readouterr().err


def test_who_is_trusted_may_plan_what_others_may_not(shell: Shell) -> None:
    sql = "SELECT reflect('java.lang.Math', 'abs', -3) AS a FROM sales"
    assert shell("explain", sql).code == 1
    assert shell("explain", sql, "--trusted").code == 0
