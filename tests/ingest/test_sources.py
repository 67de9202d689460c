"""Whatever a batch comes in as, what is stored is exactly what was given."""

from __future__ import annotations

import datetime as dt
import json
import math
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import parquetry
from parquetry.model.types import arrow_type
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC
# Every flat type, and nested values, with the values that are easily damaged on the way.
FLAT: dict[str, tuple[str, list[Any]]] = {
    "k": ("int", [1, 2, 3, -(2**31)]),
    "tiny": ("tinyint", [-128, 127, None, 0]),
    "small": ("smallint", [-32768, 32767, None, 0]),
    "big": ("bigint", [-(2**63), 2**63 - 1, None, 2**53 + 1]),
    "dec": (
        "decimal(38,10)",
        [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.1"), None, Decimal("0E-10")],
    ),
    "money": ("decimal(15,2)", [Decimal("-0.01"), Decimal("9999999999999.99"), None, Decimal("10.00")]),
    "f": ("float", [0.1, float("nan"), None, float("-inf")]),
    "x": ("double", [0.1, float("nan"), None, -5e-324]),
    "s": ("string", ["Ünïcødé 日本 🎉", "", None, 'a,"b"\nc\t\\']),
    "bin": ("binary", [b"text", b"", None, "é".encode()]),
    "day": ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1969, 12, 31)]),
    "at": (
        "timestamp",
        [
            dt.datetime(2024, 3, 31, 1, 30, 0, 123456, UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            None,
            dt.datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
        ],
    ),
    "local": (
        "timestamp_ntz",
        [dt.datetime(2024, 3, 31, 2, 30), dt.datetime(1883, 1, 1, 0, 0, 0, 1), None, dt.datetime(2000, 1, 1)],
    ),
    "b": ("boolean", [True, False, None, True]),
}
NESTED: dict[str, tuple[str, list[Any]]] = {
    "tags": ("array<string>", [["a", None, ""], [], None, ["ü"]]),
    "attrs": ("map<string,bigint>", [[("a", 1), ("b", None)], [("", 0)], None, [("z", 2**60)]]),
    "point": (
        "struct<x:double,label:string>",
        [{"x": 0.5, "label": None}, {"x": None, "label": "p"}, None, {"x": 1.0, "label": ""}],
    ),
    "deep": (
        "array<struct<n:int,d:decimal(6,2)>>",
        [[{"n": 1, "d": Decimal("1.20")}, None], [], None, [{"n": None, "d": None}]],
    ),
}
ALL = FLAT | NESTED


def rows_of(columns: dict[str, tuple[str, list[Any]]]) -> pa.Table:
    return pa.table({name: pa.array(values, arrow_type(kind)) for name, (kind, values) in columns.items()})


def ddl(columns: dict[str, tuple[str, list[Any]]]) -> str:
    return ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())


def comparable(table: pa.Table) -> list[dict[str, Any]]:
    """The rows by key; NaN equals NaN, and maps are compared without order."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            return "NaN"
        if isinstance(value, list):
            return [plain(v) for v in value]
        return value

    rows = [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row["k"])


def write_parquet(rows: pa.Table, folder: Path) -> Path:
    pq.write_table(rows, folder / "rows.parquet")
    return folder / "rows.parquet"


def write_csv(rows: pa.Table, folder: Path) -> Path:
    lines = [",".join(rows.column_names)]
    for row in rows.to_pylist():
        lines.append(",".join(as_csv(v) for v in row.values()))
    (folder / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "rows.csv"


def as_csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def write_json(rows: pa.Table, folder: Path) -> Path:
    (folder / "rows.json").write_text("".join(as_json(row) + "\n" for row in rows.to_pylist()), encoding="utf-8")
    return folder / "rows.json"


def as_json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {as_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return as_json(dict(value))
        return "[" + ", ".join(map(as_json, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        value = value.decode()
    return json.dumps(value.isoformat() if isinstance(value, dt.date) else value)


SOURCES: dict[str, tuple[dict[str, tuple[str, list[Any]]], Callable[[pa.Table, Path, Any], Any]]] = {
    "parquet": (ALL, lambda rows, folder, spark: write_parquet(rows, folder)),
    "csv": (FLAT, lambda rows, folder, spark: write_csv(rows, folder)),
    "json": (ALL, lambda rows, folder, spark: write_json(rows, folder)),
    "spark": (ALL, lambda rows, folder, spark: spark.read.parquet(str(write_parquet(rows, folder)))),
    "pandas": (FLAT, lambda rows, folder, spark: rows.to_pandas(types_mapper=pandas.ArrowDtype)),
    "polars": (FLAT, lambda rows, folder, spark: polars.from_arrow(rows)),
    "lazy polars": (FLAT, lambda rows, folder, spark: polars.LazyFrame(polars.from_arrow(rows))),
    "arrow table": (ALL, lambda rows, folder, spark: rows),
    "arrow batch": (ALL, lambda rows, folder, spark: rows.combine_chunks().to_batches()[0]),
    "arrow reader": (ALL, lambda rows, folder, spark: rows.to_reader()),
}


@pytest.fixture(scope="module")
def typed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with parquetry.connect(tmp_path_factory.mktemp("typed") / "wh", spark=spark) as made:
        yield made


@pytest.mark.parametrize("source", SOURCES)
def test_every_type_round_trips(typed: Warehouse, spark: SparkSession, tmp_path: Path, source: str) -> None:
    columns, give = SOURCES[source]
    rows = rows_of(columns)
    table = "from_" + source.replace(" ", "_")
    typed.create_table(table, ddl(columns), key=["k"])
    assert typed.ingest(table, give(rows, tmp_path, spark)).rows == rows.num_rows
    typed.maintain()
    assert comparable(typed.sql(f"SELECT * FROM {table}").arrow()) == comparable(rows)


def test_the_same_rows_are_the_same_batch_whatever_they_come_in_as(
    typed: Warehouse, spark: SparkSession, tmp_path: Path
) -> None:
    rows = rows_of(FLAT)
    typed.create_table("one_label", ddl(FLAT), key=["k"])
    assert not typed.ingest("one_label", rows, label="x").repeated
    for source in ("parquet", "csv", "json", "polars"):
        assert typed.ingest("one_label", SOURCES[source][1](rows, tmp_path, spark), label="x").repeated, source


# -- columns -----------------------------------------------------------------------------------------


def visible(wh: Warehouse, query: str) -> list[dict[str, Any]]:
    wh.maintain()
    return wh.sql(query, executor="local").rows()


def test_columns_are_matched_by_name_without_case_and_in_any_order(wh: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("S,K\nfrom csv,100\n")
    (tmp_path / "a.json").write_text('{"S": "from json", "K": 101}\n{"K": 102}\n\n')
    wh.ingest("t", tmp_path / "a.csv")
    wh.ingest("t", tmp_path / "a.json")
    wh.ingest("t", pa.table({"S": ["from arrow"], "K": pa.array([103], pa.int8())}))
    found = visible(wh, "SELECT k, s, d, day FROM t WHERE k BETWEEN 100 AND 109 ORDER BY k")
    assert [(r["k"], r["s"]) for r in found] == [
        (100, "from csv"),
        (101, "from json"),
        (102, None),
        (103, "from arrow"),
    ]
    assert all(r["d"] is None and r["day"] is None for r in found), "missing columns are null"


def test_values_that_fit_a_narrower_or_wider_type_are_taken(wh: Warehouse) -> None:
    batch = pa.table(
        {
            "k": pa.array([110], pa.int64()),
            "d": [Decimal("12.3400")],
            "x": pa.array([7], pa.int32()),
            "n": pa.array([2**63 - 1], pa.uint64()),
            "s": pa.array(["category"]).dictionary_encode(),
            "day": pa.array([None], pa.null()),
        }
    )
    wh.ingest("t", batch)
    (row,) = visible(wh, "SELECT k, d, x, n, s, day FROM t WHERE k = 110")
    assert row == {"k": 110, "d": Decimal("12.34"), "x": 7.0, "n": 2**63 - 1, "s": "category", "day": None}


def test_pandas_frames_as_people_make_them(wh: Warehouse) -> None:
    frame = pandas.DataFrame(
        {
            "k": pandas.array([120, 121], dtype="int64"),
            "s": ["a", None],
            "x": [1.5, None],
            "at": pandas.to_datetime(["2024-03-31 02:30:00.123456", None]),  # nanoseconds, no zone
            "local": pandas.to_datetime(["2024-03-31 02:30:00.123456", None]),
        },
        index=["not", "data"],
    )
    wh.ingest("t", frame)
    zoned = frame.assign(k=[122, 123], at=frame["at"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    wh.ingest("t", zoned)
    found = visible(wh, "SELECT k, s, x, at, local FROM t WHERE k BETWEEN 120 AND 129 ORDER BY k")
    at = dt.datetime(2024, 3, 31, 2, 30, 0, 123456, UTC)
    assert [r["at"] for r in found] == [at, None, at, None], "a time without a zone is taken as UTC"
    assert found[0]["local"] == at.replace(tzinfo=None)
    assert [(r["s"], r["x"]) for r in found[:2]] == [("a", 1.5), (None, None)]


def test_times_mean_the_same_in_a_session_of_another_zone(wh: Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,at\n130,2024-01-01 05:06:07\n131,2024-01-01T05:06:07.5+02:00\n")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        wh.ingest("t", tmp_path / "a.csv")
        naive = dt.datetime(2024, 1, 1, 5, 6, 7)
        wh.ingest("t", pa.table({"k": [132], "at": pa.array([naive]), "local": pa.array([naive])}))
        wh.ingest("t", spark.sql("SELECT 133 AS k, TIMESTAMP_NTZ'2024-01-01 05:06:07' AS at"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    found = {r["k"]: r for r in visible(wh, "SELECT k, at, local FROM t WHERE k BETWEEN 130 AND 139")}
    at = naive.replace(tzinfo=UTC)
    assert [found[k]["at"] for k in (130, 132, 133)] == [at, at, at]
    assert found[131]["at"] == dt.datetime(2024, 1, 1, 3, 6, 7, 500000, UTC)
    assert found[132]["local"] == naive


def test_csv_quoting(wh: Warehouse, tmp_path: Path) -> None:
    text = '\ufeffk,s\n140,"a\nb"\n141,"say ""hi"""\n142,""\n143,\n144,"x,y"\n145,  spaced  \n146,back\\slash\n'
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    wh.ingest("t", tmp_path / "a.csv")
    found = visible(wh, "SELECT k, s FROM t WHERE k BETWEEN 140 AND 149 ORDER BY k")
    assert [r["s"] for r in found] == ["a\nb", 'say "hi"', "", None, "x,y", "  spaced  ", "back\\slash"]


# -- files -------------------------------------------------------------------------------------------


def test_several_files_folders_and_patterns(wh: Warehouse, tmp_path: Path) -> None:
    folder = tmp_path / "odd [name] {1}*"
    (folder / "deep" / "er").mkdir(parents=True)
    keys = iter(range(200, 300))
    for place in ("a.parquet", "b c.parquet", "deep/x[1].parquet", "deep/er/y.parquet"):
        pq.write_table(pa.table({"k": pa.array([next(keys)], pa.int32())}), folder / place)
    (folder / "_SUCCESS").write_text("")
    (folder / ".part.tmp").write_text("half")

    def taken(source: Any) -> list[int]:
        rows = wh.ingest("t", source).rows
        return list(range(rows))

    assert len(taken(folder)) == 4
    assert len(taken(folder / "deep" / "x[1].parquet")) == 1
    assert len(taken([folder / "a.parquet", folder / "deep"])) == 3
    simple = tmp_path / "simple"
    (simple / "day=1").mkdir(parents=True)
    for name in ("p1.parquet", "p2.parquet", "q1.parquet"):
        pq.write_table(pa.table({"k": pa.array([next(keys)], pa.int32())}), simple / "day=1" / name)
    assert len(taken(str(simple / "day=1" / "p*.parquet"))) == 2
    assert len(taken(str(simple / "day=*"))) == 3


def test_parquet_files_may_have_different_columns(wh: Warehouse, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": pa.array([300], pa.int32()), "s": ["a"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": [1.5], "k": pa.array([301], pa.int32())}), tmp_path / "2.parquet")
    wh.ingest("t", tmp_path)
    found = visible(wh, "SELECT k, s, x FROM t WHERE k BETWEEN 300 AND 309 ORDER BY k")
    assert [(r["s"], r["x"]) for r in found] == [("a", None), (None, 1.5)]


@pytest.mark.parametrize("name", ["rows.csv", "rows.json", "rows.parquet"])
def test_a_batch_without_rows_is_remembered_by_its_label(wh: Warehouse, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"k": pa.array([], pa.int32())}), path)
    else:
        path.write_text("k,s\n" if name.endswith("csv") else "")
    first = wh.ingest("t", path, label=f"empty {name}")
    assert (first.rows, first.repeated) == (0, False)
    assert wh.ingest("t", path, label=f"empty {name}").repeated


def test_compressed_json(wh: Warehouse, tmp_path: Path) -> None:
    import gzip

    with gzip.open(tmp_path / "a.json.gz", "wt") as f:
        f.write('{"k": 310, "s": "zipped"}\n')
    wh.ingest("t", tmp_path / "a.json.gz")
    assert visible(wh, "SELECT s FROM t WHERE k = 310") == [{"s": "zipped"}]


# -- several at once ---------------------------------------------------------------------------------


def test_ingests_from_many_threads_all_arrive_once(wh: Warehouse) -> None:
    wh.create_table("shared", "k int, who int", key=["k"], model="upsert")
    done: list[Any] = []

    def work(who: int) -> None:
        keys = pa.array(range(who * 10, who * 10 + 10), pa.int32())
        own = pa.table({"k": keys, "who": pa.array([who] * 10, pa.int32())})
        done.append(wh.ingest("shared", own, label=f"of {who}"))
        same = pa.table({"k": pa.array([1000], pa.int32()), "who": pa.array([0], pa.int32())})
        done.append(wh.ingest("shared", same, label="of all"))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(done) == 8
    assert sum(not d.repeated for d in done if d.label == "of all") == 1
    assert len({d.t for d in done}) == 5
    found = visible(wh, "SELECT k, who FROM shared ORDER BY k")
    assert [(r["k"], r["who"]) for r in found] == [(k, k // 10) for k in range(40)] + [(1000, 0)]
    assert wh.verify() == []
    wh.vacuum(grace_s=0)
    deltas = [d for t in wh.catalog.state().tables.values() for d in t.deltas]
    assert {p for p, *_ in wh.store.list()} == {f.path for d in deltas for f in (*d.files, d.index)}


def test_a_warehouse_in_a_folder_with_an_odd_name(spark: SparkSession, tmp_path: Path) -> None:
    with parquetry.connect(tmp_path / "odd [name] {1}* ü'\"", spark=spark) as odd:
        odd.create_table("t", "k int, v int", key=["k"], model="upsert", settings={"max_query_deltas": 2})
        for v in range(3):
            odd.ingest("t", pa.table({"k": pa.array([v, v + 1], pa.int32()), "v": pa.array([v, v], pa.int32())}))
            for executor in ("local", "spark"):
                odd.maintain()
                found = odd.sql("SELECT k, v FROM t ORDER BY k", executor=executor).rows()
                assert [(r["k"], r["v"]) for r in found] == [(k, k) for k in range(v + 1)] + [(v + 1, v)]
        assert odd.verify() == []


def test_rows_as_dicts(wh: Warehouse) -> None:
    wh.create_table("d", "k int, s string, n decimal(9,2), m map<string,int>, a array<int>", key=["k"])
    rows = [{"k": 1, "s": "x", "m": {"a": 1}}, {"k": 2, "N": Decimal("1.5"), "a": [1, None]}, {"k": 3, "s": None}]
    assert wh.ingest("d", rows).rows == 3
    wh.ingest("d", tuple(rows[:1]))
    wh.maintain()
    assert wh.sql("SELECT k, s, n, m, a FROM d WHERE k > 1 ORDER BY k").rows() == [
        {"k": 2, "s": None, "n": Decimal("1.50"), "m": None, "a": [1, None]},
        {"k": 3, "s": None, "n": None, "m": None, "a": None},
    ]
    assert wh.sql("SELECT count(*) AS n FROM d").rows() == [{"n": 4}]
