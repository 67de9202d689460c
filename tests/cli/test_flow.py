"""The whole way on small data: init, create, ingest every format, maintain, ask, inspect, verify, vacuum."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquetry.catalog import Catalog
from parquetry.cli import main
from tests.cli.calling import Shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).parents[2] / "src"
STATS = {
    "executor",
    "qt",
    "view",
    "replica",
    "deltas",
    "blocks_total",
    "blocks_read",
    "skipped_by",
    "files_read",
    "rows_scanned",
    "rows_out",
    "bytes_read",
    "splits",
    "elapsed_ms",
    "plan_ms",
}
CSV = "id,day,price\n1,2026-01-01,1.10\n2,2026-01-02,2.20\n"
JSON = '{"id":3,"day":"2026-01-03","price":3.30}\n{"id":4,"day":"2026-01-04","price":null}\n'


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.json").write_text(JSON)
    days = pa.array(["2026-01-05", "2026-01-06"]).cast(pa.date32())
    prices = pa.array(["5.50", "6.60"]).cast(pa.decimal128(9, 2))
    pq.write_table(pa.table({"id": pa.array([5, 6], pa.int64()), "day": days, "price": prices}), tmp_path / "c.parquet")
    return {p.suffix[1:]: str(p) for p in tmp_path.iterdir() if p.is_file()}


def test_from_init_to_vacuum(spark: SparkSession, shell: Shell, files: dict[str, str]) -> None:
    first = shell.json("ingest", "sales", files["csv"], "--label", "one", "--tasks", "1")
    assert (first["rows"], first["t"], first["repeated"]) == (2, 1, False)
    again = shell.json("ingest", "sales", files["csv"], "--label", "one")
    assert (again["t"], again["repeated"]) == (1, True)
    other = shell("ingest", "sales", files["parquet"], "--label", "one")
    assert other.code == 1
    assert "'one'" in other.err
    shell.json("ingest", "sales", files["json"], "--label", "two")
    shell.json("ingest", "sales", files["parquet"], "--label", "three")

    # Committed, and hidden until the QT moves.
    assert shell.json("sql", "SELECT count(*) AS n FROM sales")["rows"] == [[0]]
    hidden = shell.json("freshness")
    assert (hidden["qt"], hidden["clock"], hidden["tables"][0]["hidden_rows"]) == (0, 3, 6)
    planned = shell.json("maintain", "--explain")["stages"]
    assert shell.json("freshness")["qt"] == 0
    done = shell.json("maintain")
    assert (done["stages"], done["qt_before"], done["qt"]) == (planned, 0, 3)
    assert shell("maintain").out == "nothing to do, QT 3\n"

    query = "SELECT id, day, price FROM sales ORDER BY id"
    answers = [shell.json("sql", query, "--executor", executor) for executor in ("local", "spark")]
    for answer in answers:
        assert answer["columns"] == ["id", "day", "price"]
        assert answer["types"] == ["bigint", "date", "decimal(9,2)"]
        assert answer["rows"][0] == [1, "2026-01-01", "1.10"]
        assert answer["rows"][3] == [4, "2026-01-04", None]
        assert set(answer["stats"]) >= STATS
    assert answers[0]["rows"] == answers[1]["rows"]
    assert [a["stats"]["executor"] for a in answers] == ["local", "spark"]

    assert [d["visible"] for d in shell.json("deltas", "sales")] == [True] * 3
    assert shell.json("blocks", "sales", "--limit", "2")["total"] == 3
    assert shell.json("verify") == {"ok": True, "problems": []}
    assert [h["kind"] for h in shell.json("history", "sales")].count("ingest") == 3
    logged = shell.json("queries", "sales", "--limit", "2")
    assert [q["sql"] for q in logged] == [query, query]

    # Fewer deltas allowed than there are: compaction is due, and what it replaces is garbage.
    shell.json("set", "sales", "max_query_deltas=2")
    assert [s["stage"] for s in shell.json("maintain")["stages"]] == ["compact"]
    assert sorted(d["rows"] for d in shell.json("deltas", "sales")) == [2, 4]
    assert shell.json("vacuum", "--grace", "1h")["deltas"] == 0
    catalog = Catalog.open(f"sqlite:///{shell.warehouse / 'catalog.db'}")
    pin = catalog.pin(catalog.version() - 1, "host:17", 60)
    assert "more has to stay: process 17 on host reads version" in shell("vacuum", "--grace", "0").out
    catalog.unpin(pin)
    catalog.close()
    assert shell.json("vacuum", "--grace", "0", "--dry-run")["deltas"] == 2
    assert shell.json("vacuum", "--grace", "0")["deltas"] == 2
    assert shell.json("vacuum", "--grace", "0")["deltas"] == 0
    assert shell.json("sql", query)["rows"] == answers[0]["rows"]
    assert shell.json("verify", "--quick")["ok"]


def test_human_output_says_what_happened(spark: SparkSession, shell: Shell, files: dict[str, str]) -> None:
    assert shell("ingest", "sales", files["csv"], "--label", "one").out.startswith("2 rows into 'sales' at timestamp 1")
    assert "nothing changed" in shell("ingest", "sales", files["csv"], "--label", "one").out
    assert "waits for" in shell("freshness").out
    assert "QT 0 -> 1" in shell("maintain").out
    told = shell("sql", "SELECT price FROM sales WHERE id = 2").out
    assert "2.20" in told
    assert "1 row in" in told
    for verb in ("tables", "history", "queries"):
        assert "sales" in shell(verb).out
    assert "[1, 1]" in shell("deltas", "sales").out
    assert "id 1 … 2" in shell("blocks", "sales").out
    assert "row groups in" in shell("explain", "SELECT price FROM sales WHERE id = 2").out


def test_a_batch_that_does_not_fit_leaves_nothing(spark: SparkSession, shell: Shell, tmp_path: Path) -> None:
    bad = {
        "empty.parquet": b"",
        "short.parquet": b"PAR1 and then nothing",
        "null.csv": b"id,day,price\n,2026-01-01,1.00\n",
        "big.csv": b"id,day,price\n1,2026-01-01,99999999999.00\n",
        "word.csv": b"id,day,price\none,2026-01-01,1.00\n",
        "unknown.csv": b"id,colour\n1,red\n",
        "broken.json": b'{"id": 1, "day": \n',
        "data.txt": b"what is this",
    }
    before = shell.json("history")
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        answer = shell("ingest", "sales", str(tmp_path / name))
        lines = [line for line in answer.err.splitlines() if line.startswith("parquetry: ")]
        assert (answer.code, len(lines)) == (1, 1), f"{name}: {answer}"
        assert "Traceback" not in answer.err, name
    assert shell("ingest", "sales", str(tmp_path / "none.parquet")).code == 1
    assert shell.json("history") == before
    assert shell.json("vacuum", "--grace", "0")["orphans"] == 0


def test_a_damaged_file_is_found_by_verify(spark: SparkSession, shell: Shell, files: dict[str, str]) -> None:
    shell.json("ingest", "sales", files["parquet"])
    (data,) = shell.warehouse.glob("data/*/*/*.parquet")
    content = bytearray(data.read_bytes())
    content[10] ^= 255
    data.write_bytes(content)
    assert shell("verify", "--quick").code == 0
    answer = shell("verify", "--json")
    assert answer.code == 1
    assert [p["table"] for p in answer.document["problems"]] == ["sales"]
    data.unlink()
    assert shell("verify", "--quick").code == 1


def test_columns_models_and_settings_by_command(spark: SparkSession, nowhere: Shell, tmp_path: Path) -> None:
    shell = nowhere
    shell.json("init")
    shell.json(
        "create-table", "daily", "--schema", "day date, n bigint, top double", "--key", "day", "--model", "aggregate",
        "--value", "n=sum", "--value", "top=max", "--set", "compression=zstd",
    )  # fmt: skip
    (tmp_path / "a.csv").write_text("day,n,top\n2026-01-01,1,1.5\n2026-01-01,2,NaN\n")
    (tmp_path / "b.csv").write_text("day,n,top\n2026-01-01,4,2.5\n")
    for name in ("a", "b"):
        shell.json("ingest", "daily", str(tmp_path / f"{name}.csv"))
    shell.json("add-column", "daily", "seen", "bigint", "--merge", "sum")
    shell.json("maintain")
    for executor in ("local", "spark"):
        assert shell.json("sql", "SELECT * FROM daily", "--executor", executor)["rows"] == [
            ["2026-01-01", 7, "NaN", None]
        ]
    assert shell.json("set", "daily", "max_query_deltas=3")["settings"]["max_query_deltas"] == 3
    assert shell.json("drop-table", "daily") == {"table": "daily", "dropped": True}
    assert shell.json("tables") == []


def test_sql_reads_standard_input(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT count(*) AS n FROM sales")))
    assert shell.json("sql", "-")["rows"] == [[0]]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_cleanly_on_a_signal(how: signal.Signals, shell: Shell) -> None:
    program = "import sys; from parquetry.cli import main; sys.exit(main(sys.argv[1:]))"
    watching = subprocess.Popen(
        [
            sys.executable,
            "-c",
            program,
            "-w",
            str(shell.warehouse),
            "maintain",
            "--watch",
            "--json",
            "--interval",
            "0.1",
            "--background",
        ],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stderr is not None
    assert watching.stderr.readline().startswith("watching")
    assert os.sched_getscheduler(watching.pid) == os.sched_getscheduler(0), "only Spark steps back"
    watching.send_signal(how)
    out, err = watching.communicate(timeout=20)
    assert watching.returncode == 0, err
    assert "Traceback" not in err
    assert all(json.loads(line)["stage"] for line in out.splitlines())


@pytest.mark.slow
def test_the_demo_runs_and_leaves_a_warehouse(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "made-by-parquetry-demo").touch()  # what an earlier demo left goes
    assert main(["demo", "--scale", "0.001", "--folder", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["same_answers"]
    assert len(told["queries"]) >= 12
    assert all(q["local"] for q in told["queries"][:12])
    assert [(m["qt_before"], m["qt"]) for m in told["maintained"]] == [(0, 9), (9, 9), (9, 12)]
    assert all(v["view"]["view"] == "by_day" and v["table"]["view"] is None for v in told["views"])
    assert len(told["views"]) == 2
    assert told["relayout"]["applied"], "the same question was asked before and after"
    assert main(["-w", str(folder), "verify"]) == 0
