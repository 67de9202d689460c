"""Every batch that cannot be taken gets one line that names column, row and value, and leaves the warehouse alone."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquetry.errors import (
    DataError,
    LabelConflict,
    ParquetryError,
    QueryError,
    SchemaError,
    UnknownColumn,
    UnknownTable,
)
from parquetry.ingest.plain_text import never_spells
from parquetry.ingest.sources import _from_rows, check_source
from parquetry.ingest.text import misspelt
from parquetry.model.schema import Column, TableSchema
from parquetry.warehouse import Warehouse
from tests.ingest.refusing import one_line, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = pa.array([1], pa.int32())
# Small batches are refused in the process. Of the same cases these are refused on Spark as well, each rule once.
ON_SPARK_TOO = {
    "unknown column",
    "no key column",
    "null key",
    "int overflow",
    "decimal scale",
    "string into int",
    "too few fields",
    "no number",
    "double overflow",
    "zone dropped",
    "broken line",
    "unknown field",
}


def ways(request: pytest.FixtureRequest) -> list[str]:
    return ["auto", "spark"] if request.node.callspec.id in ON_SPARK_TOO else ["auto"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        pytest.param({"k": ONE, "zzz": [1]}, ["column 'zzz'", "columns: k, s"], id="unknown column"),
        pytest.param({"k": ["a"]}, ["column 'k' is string", "has int", "cast"], id="string into int"),
        pytest.param({"k": [1.0]}, ["column 'k' is double"], id="double into int"),
        pytest.param({"k": ONE, "day": ["2024-01-01"]}, ["column 'day' is string"], id="string into date"),
        pytest.param({"k": ONE, "b": [1]}, ["column 'b' is bigint"], id="number into boolean"),
        pytest.param({"k": ONE, "s": [[1]]}, ["column 's' is array<bigint>"], id="array into string"),
        pytest.param({"s": ["a"]}, ["no column 'k'"], id="no key column"),
        pytest.param(
            {"k": pa.array([1, None, 3], pa.int32()), "s": ["a", "b", "c"]},
            ["null in key column 'k'", '"s":"b"'],
            id="null key",
        ),
        pytest.param({"k": [1, 1 << 40]}, ["1099511627776", "'k' of type int", "row {"], id="int overflow"),
        pytest.param({"k": [-(1 << 31) - 1]}, ["-2147483649"], id="int underflow"),
        pytest.param({"k": ONE, "d": [Decimal("12345.00")]}, ["12345.00", "decimal(6,2)"], id="decimal overflow"),
        pytest.param({"k": ONE, "d": [Decimal("1.234")]}, ["1.234", "decimal(6,2)"], id="decimal scale"),
        pytest.param(
            {"k": ONE, "d": [Decimal("12345678901234567890.123456789012345678")]}, ["decimal(6,2)"], id="wide decimal"
        ),
        pytest.param({"k": ONE, "d": [100_000]}, ["100000", "decimal(6,2)"], id="whole number into decimal"),
        pytest.param({"k": ONE, "x": [(1 << 53) + 1]}, ["9007199254740993", "double"], id="whole number into double"),
        pytest.param({"k": ONE, "n": [Decimal("1.5")]}, ["1.5", "bigint"], id="decimal into whole number"),
        pytest.param(
            {"k": ONE, "n": pa.array([1 << 63], pa.uint64())}, ["9223372036854775808"], id="unsigned overflow"
        ),
        pytest.param(
            {"k": ONE, "local": pa.array([0], pa.timestamp("us", "UTC"))}, ["'local' is timestamp "], id="zone dropped"
        ),
        pytest.param(
            {"k": ONE, "at": pa.array([1], pa.timestamp("ns", "UTC"))}, ["'at'", "nanoseconds"], id="nanoseconds"
        ),
    ],
)
def test_frames(wh: Warehouse, columns: dict[str, Any], words: list[str], request: pytest.FixtureRequest) -> None:
    for executor in ways(request):
        refused(wh, lambda: wh.ingest("t", pa.table(columns), executor=executor), DataError, *words)  # noqa: B023


def test_a_required_column_is_required(wh: Warehouse) -> None:
    k = pa.array([1], pa.int16())
    refused(wh, lambda: wh.ingest("strict", pa.table({"k": k})), DataError, "no column 'must'")
    null = pa.table({"k": k, "must": pa.array([None], pa.int64())})
    refused(wh, lambda: wh.ingest("strict", null), DataError, "null in required column 'must'", '"k":1')


def test_a_float_that_would_become_infinite_is_refused(wh: Warehouse) -> None:
    big = pa.table({"k": pa.array([1], pa.int16()), "must": [1], "f": [1e300]})
    refused(wh, lambda: wh.ingest("strict", big), DataError, "300", "'f' of type float")


def test_columns_that_differ_in_case_only_are_refused(wh: Warehouse) -> None:
    twice = pa.table([ONE, ONE], names=["k", "K"])
    refused(wh, lambda: wh.ingest("t", twice), DataError, "two columns 'k'")


def test_other_objects_are_refused(wh: Warehouse, tmp_path: Path) -> None:
    refused(wh, lambda: wh.ingest("t", {"k": [1]}), DataError, "dict", "Arrow")
    refused(wh, lambda: wh.ingest("t", []), DataError, "no path")
    refused(wh, lambda: wh.ingest("t", pandas.DataFrame({"k": [1, "a"]})), DataError, "mixed types")
    times = polars.DataFrame({"k": [1], "at": [datetime.time(1, 2)]})
    refused(wh, lambda: wh.ingest("t", times), SchemaError, "time", "cast")


def test_unknown_tables_and_columns(wh: Warehouse) -> None:
    refused(wh, lambda: wh.ingest("nowhere", "x.csv"), UnknownTable, "'nowhere'", "tables: strict, t")
    refused(wh, lambda: wh.sql("SELECT * FROM nowhere").rows(), UnknownTable, "'nowhere'")
    refused(wh, lambda: wh.sql("SELECT zzz FROM t").rows(), UnknownColumn, "'zzz'", "columns: k")
    refused(wh, lambda: wh.table("nowhere"), UnknownTable, "'nowhere'")


@pytest.mark.parametrize("query", ["selec 1", "SELECT FROM WHERE", "SELECT (1", "", "SELECT 'a", "SELECT 1; SELECT 2"])
def test_sql_that_does_not_parse(wh: Warehouse, query: str) -> None:
    refused(wh, lambda: wh.sql(query).rows(), QueryError)


@pytest.mark.parametrize("query", ["DROP TABLE t", "INSERT INTO t VALUES (1)", "DELETE FROM t"])
def test_sql_that_changes_data_is_refused(wh: Warehouse, query: str) -> None:
    refused(wh, lambda: wh.sql(query).rows(), QueryError)


def test_a_label_with_other_data_is_refused(wh: Warehouse) -> None:
    other = pa.table({"k": pa.array([1, 2], pa.int32()), "s": ["one", "TWO"]})
    refused(wh, lambda: wh.ingest("t", other, label="first"), LabelConflict, "'first'", "new label")
    more = pa.table({"k": pa.array([1, 2, 2], pa.int32()), "s": ["one", "two", "two"]})
    refused(wh, lambda: wh.ingest("t", more, label="first"), LabelConflict, "'first'")
    same = pa.table({"s": ["two", "one"], "k": pa.array([2, 1], pa.int32())})
    assert wh.ingest("t", same, label="first").repeated


# -- CSV ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("k,s\n1,a\n2\n3,c\n", ["2 fields are expected", "row 2 of bad.csv"], id="too few fields"),
        pytest.param("k,s\n1,a\n2,b,c\n3,c\n", ["row 2,b,c of bad.csv"], id="too many fields"),
        pytest.param("k,s\n1,a\nx,b\n", ["value 'x'", "'k' of type int", '"s":"b"', "of bad.csv"], id="no number"),
        pytest.param("k,s\n1,a\n1.5,b\n", ["value '1.5'"], id="fraction into int"),
        pytest.param("k,s\n99999999999,b\n", ["value '99999999999'"], id="int overflow"),
        pytest.param("k,s\n,b\n", ["null in key column 'k'"], id="empty key"),
        pytest.param("k,d\n1,1.234\n", ["value '1.234'", "decimal(6,2)"], id="decimal scale"),
        pytest.param("k,d\n1,12345\n", ["value '12345'"], id="decimal overflow"),
        pytest.param("k,x\n1,1e400\n", ["value '1e400'"], id="double overflow"),
        pytest.param("k,b\n1,maybe\n", ["value 'maybe'", "boolean"], id="no boolean"),
        pytest.param("k,day\n1,2024-13-01\n", ["value '2024-13-01'", "date"], id="no such day"),
        pytest.param("k,day\n1,2024-01-01 10:00\n", ["2024-01-01 10:00"], id="time into date"),
        pytest.param("k,at\n1,2024-01-01T00:00:00.1234567Z\n", ["timestamp"], id="too many digits of a second"),
        pytest.param("k,local\n1,2024-01-01T00:00:00+01:00\n", ["timestamp_ntz"], id="zone dropped"),
        pytest.param("k,zz\n1,a\n", ["column 'zz'", "bad.csv", "columns: k"], id="unknown column"),
        pytest.param("k,s,S\n1,a,b\n", ["'s' appears twice"], id="column twice"),
        pytest.param("", ["is empty", "column names"], id="empty file"),
        pytest.param('k,s\n1,"abc\n2,d\n', ["never closed"], id="quote never closed"),
        pytest.param(b"k,s\n1,\xff\xfe\n", ["not UTF-8"], id="not UTF-8"),
    ],
)
def test_csv(
    wh: Warehouse, tmp_path: Path, text: str | bytes, words: list[str], request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for executor in ways(request):
        refused(wh, lambda: wh.ingest("t", path, executor=executor), DataError, *words)  # noqa: B023


def test_csv_cannot_hold_nested_columns(wh: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("k,must,tags\n1,1,[]\n")
    refused(wh, lambda: wh.ingest("strict", tmp_path / "bad.csv"), DataError, "'tags'", "JSON or Parquet")


def test_csv_files_of_one_batch_have_the_same_header(wh: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("k,s\n1,a\n")
    (tmp_path / "2.csv").write_text("s,k\na,1\n")
    refused(wh, lambda: wh.ingest("t", tmp_path), DataError, "2.csv", "another header")


# -- JSON --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param('{"k":1}\n{"k":2,\n', ["no JSON", 'row {"k":2, of bad.json'], id="broken line"),
        pytest.param('{"k":1}\n{"k":2} {"k":3}\n', ["no JSON", '{"k":2} {"k":3}'], id="two objects on a line"),
        pytest.param('{"k":1}\n{"k":2,"zz":1}\n', ["unknown field 'zz'", "columns: k", "bad.json"], id="unknown field"),
        pytest.param('{"k":"x"}\n', ["value 'x'", "'k' of type int"], id="no number"),
        pytest.param('{"k":99999999999}\n', ["value '99999999999'"], id="int overflow"),
        pytest.param('{"k":1.5}\n', ["value '1.5'"], id="fraction into int"),
        pytest.param('{"k":1,"d":1.2345}\n', ["value '1.2345'"], id="decimal scale"),
        pytest.param('{"s":"a"}\n', ["null in key column 'k'"], id="no key"),
        pytest.param('[{"k":1}]\n', ["one JSON object"], id="array"),
        pytest.param('{\n "k": 1\n}\n', ["no JSON"], id="object over several lines"),
        pytest.param(b'{"k":1,"s":"\xff"}\n', ["not UTF-8"], id="not UTF-8"),
    ],
)
def test_json(
    wh: Warehouse, tmp_path: Path, text: str | bytes, words: list[str], request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for executor in ways(request):
        refused(wh, lambda: wh.ingest("t", path, executor=executor), DataError, *words)  # noqa: B023


def test_json_with_a_broken_nested_value(wh: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"k":1,"must":1,"tags":{"a":1}}\n')
    refused(wh, lambda: wh.ingest("strict", tmp_path / "bad.json"), DataError, "broken row")


# -- files -------------------------------------------------------------------------------------------


def test_parquet_that_is_empty_truncated_or_something_else(wh: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    path.write_bytes(b"")
    refused(wh, lambda: wh.ingest("t", path), DataError, "bad.parquet is empty", "write it again")
    pq.write_table(pa.table({"k": pa.array(range(5000), pa.int32())}), path)
    whole = path.read_bytes()
    for cut in (3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        refused(wh, lambda: wh.ingest("t", path), DataError, "bad.parquet is truncated or not Parquet")
    path.write_text("k,s\n1,a\n")
    refused(wh, lambda: wh.ingest("t", path), DataError, "not Parquet")


def test_parquet_whose_pages_are_damaged(wh: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"k": pa.array(range(5000), pa.int32())}), path)
    damaged = bytearray(path.read_bytes())
    damaged[4:60] = b"\xff" * 56  # the head of the first page
    path.write_bytes(damaged)
    refused(wh, lambda: wh.ingest("t", path), DataError, "bad.parquet", "nothing was written")


def test_one_bad_file_among_good_ones(wh: Warehouse, tmp_path: Path) -> None:
    good = pa.table({"k": pa.array(range(10), pa.int32())})
    for name in ("1", "2", "3"):
        pq.write_table(good, tmp_path / f"{name}.parquet")
    (tmp_path / "2.parquet").write_bytes((tmp_path / "2.parquet").read_bytes()[:-20])
    refused(wh, lambda: wh.ingest("t", tmp_path), DataError, "2.parquet")


def test_files_that_do_not_agree_on_a_type(wh: Warehouse, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ONE, "s": ["a"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"k": ONE, "s": [1]}), tmp_path / "2.parquet")
    refused(wh, lambda: wh.ingest("t", tmp_path), DataError, "s: STRING", "s: BIGINT", "agree")


def test_parquet_with_nanoseconds(wh: Warehouse, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ONE, "local": pa.array([1], pa.timestamp("ns"))}), tmp_path / "ns.parquet")
    refused(wh, lambda: wh.ingest("t", tmp_path / "ns.parquet"), DataError, "NANOS")


def test_paths_that_lead_nowhere(wh: Warehouse, tmp_path: Path) -> None:
    refused(wh, lambda: wh.ingest("t", tmp_path / "no.parquet"), DataError, "no such file", "no.parquet")
    refused(wh, lambda: wh.ingest("t", str(tmp_path / "*.csv")), DataError, "no files")
    refused(wh, lambda: wh.ingest("t", tmp_path), DataError, "no files")
    (tmp_path / "a.txt").write_text("k\n1\n")
    refused(wh, lambda: wh.ingest("t", tmp_path / "a.txt"), DataError, "cannot tell the format")
    (tmp_path / "a.csv").write_text("k\n1\n")
    (tmp_path / "a.json").write_text('{"k":1}\n')
    refused(wh, lambda: wh.ingest("t", [tmp_path / "a.csv", tmp_path / "a.json"]), DataError, "one format")


def test_a_frame_that_fails_by_itself(wh: Warehouse, spark: SparkSession) -> None:
    frame = spark.range(5).selectExpr("CAST(id AS INT) AS k", "CAST(raise_error('out of ink') AS STRING) AS s")
    refused(wh, lambda: wh.ingest("t", frame), ParquetryError, "out of ink", "nothing was committed")


# -- tables ------------------------------------------------------------------------------------------


def test_tables_that_cannot_work(wh: Warehouse) -> None:
    refused(wh, lambda: wh.create_table("t", "k int", key=["k"]), SchemaError, "'t' exists already")
    refused(wh, lambda: wh.create_table("T", "k int", key=["k"]), SchemaError, "exists already")
    refused(wh, lambda: wh.create_table("a b", "k int", key=["k"]), SchemaError, "no table name")
    refused(wh, lambda: wh.create_table("u", "k int", key=["z"]), UnknownColumn, "'z'")
    refused(wh, lambda: wh.create_table("u", "k int"), SchemaError, "needs a key")
    refused(wh, lambda: wh.create_table("u", "k whatever", key=["k"]), SchemaError)
    refused(wh, lambda: wh.create_table("u", "k int, K int", key=["k"]), SchemaError, "twice")
    refused(wh, lambda: wh.add_column("t", "s", "int"), SchemaError, "twice")
    refused(wh, lambda: wh.change_settings("t", colour=1), SchemaError, "'colour'")
    refused(wh, lambda: wh.drop_table("nowhere"), UnknownTable, "'nowhere'")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([], ["nothing to ingest"]),
        ([1, 2], ["cannot ingest a list of int", "give paths"]),
        ([{"k": 1}, "x.csv"], ["cannot ingest a list of dict"]),
        ({"k": [1]}, ["cannot ingest a dict", "list of rows"]),
        (None, ["cannot ingest a NoneType"]),
        (b"x.csv", ["cannot ingest a bytes"]),
        (7, ["cannot ingest a int"]),
        (({"k": i} for i in range(3)), ["cannot ingest a generator"]),
        (pandas.Series([1]), ["cannot ingest a Series"]),
        (polars.Series([1]), ["cannot ingest a Series"]),
        (pa.array([1]), ["cannot ingest a"]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_source_is_refused_before_spark_starts(source: Any, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        check_source(source, "t")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("rows", [[{"k": 1}, {"k": "x"}], [{"k": 2**70}], [{"k": object()}], [{1: 2}]])
def test_rows_whose_values_do_not_fit_together(rows: list[dict[Any, Any]]) -> None:
    with pytest.raises(DataError) as caught:
        _from_rows(rows, TableSchema((Column("k", "int"),), ("k",)), "t")
    one_line(caught.value, DataError, "a row has the name 1" if 1 in rows[0] else "column 'k'")


SPELLED = {
    "int": "0|-5|+7| 8 |1.5|1e3|x|0x1F|2147483647|2147483648|-2147483649|1_000|- 1|--1|٣|1.|.|00012||é",
    "tinyint": "127|128|-128|-129|t",
    "decimal(6,2)": "1|1.5|1.234|1.2300|12345|01234.50|.5|5.|.|+1.25|1e2|x|-9999.99|10000| 1 |1,5|1_0",
    "double": "1|1e5|1e400|-1e400|NaN|inf|-Infinity|+Inf|1d|1f|0x1p3|1e|.5|5.|maybe|1,5| 2 |1e-400|nan|--1",
    "float": "1|1e38|1e39|-1e39|3.4028235e38|3.5e38|x",
    "boolean": "true|FALSE|t|f|yes|No|1|0|y|n|maybe|2|on|off| true |tru",
    "date": "2024-01-01|2024-1-1|2024-13-01|2023-02-29|2024-01-01 10:00|12024-01-01|24-01-01|today|2024-01| 2024-01-01 "
    "|0000-01-01|2024-00-10|1000-01-01|2024-01-01T00:00:00",
    "timestamp": "2024-01-01|2024-01-01 10:00|2024-01-01T10:00:00Z|2024-01-01T00:00:00.1234567Z|2024-01-01 25:00|now"
    "|2024-01-01T00:00:00+01:00|2024-01-01T00:00:00 Europe/Berlin|2024-01-01T00:00:00.1234560|x|2024-02-30 00:00:00",
    "timestamp_ntz": "2024-01-01|2024-01-01T10:00:00|2024-01-01T00:00:00Z|2024-01-01T00:00:00+01:00|x",
}


def test_what_is_refused_as_misspelt_in_the_process_is_so_on_spark(spark: SparkSession) -> None:
    for type_, texts in SPELLED.items():
        column = Column("c", type_)
        spelled = texts.split("|")
        frame = spark.createDataFrame([(t,) for t in spelled], "t string").selectExpr(misspelt("t", column))
        there = [bool(row[0]) for row in frame.collect()]
        here = [never_spells(t, column.arrow) for t in spelled]
        assert not [t for t, h, s in zip(spelled, here, there, strict=True) if h and not s], type_
        told = sum(h for h, s in zip(here, there, strict=True) if s)
        assert told >= 0.6 * sum(there), (type_, [t for t, h, s in zip(spelled, here, there, strict=True) if s > h])
