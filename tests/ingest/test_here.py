"""A small batch is written without Spark, and nothing tells from what is stored which way it was."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.catalog.definitions import schema_of
from parquetry.errors import LabelConflict, ParquetryError
from parquetry.ingest.conform import conform
from parquetry.ingest.here import fitted_here
from parquetry.ingest.sources import as_frame, taken_in
from parquetry.model.types import arrow_type
from parquetry.storage.index_reader import open_index
from parquetry.storage.row_group_numbers import ROW_GROUP
from parquetry.warehouse import Warehouse
from tests.ingest.test_sources import FLAT, as_csv, as_json, ddl, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_SPARK = {"in_process_bytes": 0}
MODELS: dict[str, dict[str, Any]] = {
    "append": {"model": "append"},
    "upsert": {"model": "upsert"},
    "aggregate": {"model": "aggregate", "values": {"v": "sum", "x": "max", "s": "replace"}},
}


@pytest.fixture(scope="module")
def wh(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with parquetry.connect(tmp_path_factory.mktemp("here") / "wh", spark=spark) as made:
        yield made


def many_values(count: int, seed: int) -> pa.Table:
    """Rows of every flat type, drawn from the values that are easily damaged, texts of all lengths."""
    draw = random.Random(seed)
    columns = {}
    for name, (_, values) in FLAT.items():
        columns[name] = [draw.choice(values) for _ in range(count)]
    columns["k"] = draw.sample(range(-(2**31), 2**31), count)
    columns["s"] = ["".join(draw.choices("aäß€𝄞 09", k=draw.randrange(90))) for _ in range(count)]
    columns["bin"] = [draw.randbytes(draw.randrange(70)) for _ in range(count)]
    columns["big"] = [draw.getrandbits(63) - 2**62 if draw.random() < 0.9 else None for _ in range(count)]
    return rows_of({name: (FLAT[name][0], values) for name, values in columns.items()})


@pytest.mark.parametrize("seed", range(3))
def test_every_row_has_the_digest_that_spark_gives_it(spark: SparkSession, seed: int) -> None:
    rows = many_values(500, seed)
    schema = schema_of(rows.schema, ["k"], "upsert", None, None)
    here = fitted_here(taken_in(rows, schema, "t"), schema, "t", 1 << 30)
    there = conform(as_frame(spark, rows, schema, "t"), schema, "t").toArrow()
    assert here is not None
    assert here.column("__digest").to_pylist() == there.column("__digest").to_pylist()


def test_all_masks_of_a_wide_table_are_hashed(spark: SparkSession) -> None:
    draw = random.Random(5)
    names = [f"c{i}" for i in range(130)]
    rows = pa.table(
        {"k": list(range(40)), **{n: pa.array([draw.choice([None, 1]) for _ in range(40)], pa.int32()) for n in names}}
    )
    schema = schema_of(rows.schema, ["k"], "append", None, None)
    here = fitted_here(rows, schema, "t", 1 << 30)
    there = conform(as_frame(spark, rows, schema, "t"), schema, "t").toArrow()
    assert here is not None
    assert here.column("__digest").to_pylist() == there.column("__digest").to_pylist()


def batch(number: int, rows: int = 700) -> pa.Table:
    draw = random.Random(number)
    return pa.table(
        {
            "k": pa.array([draw.randrange(500) for _ in range(rows)], pa.int32()),
            "v": [draw.randrange(10**6) for _ in range(rows)],
            "x": [draw.choice([0.0, -0.0, float("nan"), 1.5, None]) for _ in range(rows)],
            "s": [draw.choice(["a", "ü", "", None]) for _ in range(rows)],
        }
    )


def stored(wh: Warehouse, table: str) -> list[Any]:
    """Of every delta: its rows file by file, and all that its index says of them."""
    state = wh.catalog.state().table(table)
    found = []
    for delta in state.deltas:
        groups = open_index(wh.store, delta.index).row_groups()
        known = [n for n in groups.batch.schema.names if "crc" not in n and "bytes" not in n and n != "footer_at"]
        rows = [pq.read_table(wh.store.url(f.path)).drop_columns([ROW_GROUP]).to_pylist() for f in delta.files]
        found.append((delta.level, delta.rows, repr(rows), repr(groups.batch.select(known).to_pylist())))
    return found


@pytest.mark.parametrize(
    ("model", "laid"), [("append", False), ("append", True), ("upsert", True), ("aggregate", False)]
)
def test_what_is_stored_does_not_tell_who_wrote_it(wh: Warehouse, model: str, laid: bool) -> None:
    names = [f"{model}_{laid}_{way}" for way in ("here", "spark")]
    for name, settings in zip(names, ({}, ON_SPARK), strict=True):
        small = {"row_group_rows": 128, "compaction_width": 2, "block_group_rows": 32}
        columns = "k int, v bigint, x double, s string"
        wh.create_table(name, columns, key=["k"], settings=small | settings, **MODELS[model])
        wh.ingest(name, batch(0), label="0")
        wh.maintain()
        if laid:
            wh.relayout(name, "kdtree", options=RelayoutOptions(columns=["k"], block_rows=100))
    for number in range(1, 4):
        for name in names:
            wh.ingest(name, batch(number), label=str(number))
    if model != "append":  # where rows of one key have no order between them
        assert stored(wh, names[0]) == stored(wh, names[1])
    wh.maintain()
    here, there = (wh.sql(f"SELECT * FROM {n}").rows() for n in names)
    assert sorted(map(repr, here)) == sorted(map(repr, there))
    if model != "append":
        assert stored(wh, names[0]) == stored(wh, names[1])
    for name, other in zip(names, ("spark", "auto"), strict=True):
        for number in (0, 3):
            assert wh.ingest(name, batch(number), label=str(number), executor=other).repeated
        with pytest.raises(LabelConflict):
            wh.ingest(name, batch(9), label="1", executor=other)
    assert wh.verify() == []


@pytest.mark.parametrize("model", ["append", "upsert"])
@pytest.mark.parametrize("type_", ["double", "float", "string", "binary", "decimal(20,2)", "timestamp", "boolean"])
def test_keys_of_every_type_are_in_sparks_order(wh: Warehouse, model: str, type_: str) -> None:
    values: dict[str, list[Any]] = {
        "double": [0.0, float("nan"), -0.0, float("inf"), -5.0, float("-inf"), 5e-324],
        "string": ["b", "", "ü", "a\0", "a", "𝄞", "z" * 70],
        "binary": [b"\xff", b"", b"a", b"\0"],
        "decimal(20,2)": [Decimal("-1.25"), Decimal("0.00"), Decimal("99999999999999999.99")],
        "timestamp": [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
        "boolean": [True, False, True],
    }
    rows = pa.table({"k": pa.array(values.get(type_) or values["double"], arrow_type(type_))})
    rows = pa.concat_tables([rows, rows.slice(1)])
    names = [f"key_{model}_{type_.partition('(')[0]}_{way}" for way in ("here", "spark")]
    for name, settings in zip(names, ({}, ON_SPARK), strict=True):
        wh.create_table(name, f"k {type_}", key=["k"], model=model, settings={"row_group_rows": 2, **settings})
        for _ in range(2):
            wh.ingest(name, rows)
    assert [s[1:] for s in stored(wh, names[0])] == [s[1:] for s in stored(wh, names[1])]
    wh.maintain()
    asked = [wh.sql(f"SELECT * FROM {n} ORDER BY k", executor="local").rows() for n in names]
    assert repr(asked[0]) == repr(asked[1])


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_files_are_read_as_spark_reads_them(wh: Warehouse, tmp_path: Path, kind: str) -> None:
    rows = many_values(300, 7).drop_columns(["bin"])
    if kind == "csv":  # which has no way to write what is no number
        text = ",".join(rows.column_names) + "\n"
        text += "".join(",".join(map(as_csv, row.values())) + "\n" for row in rows.to_pylist())
        (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    elif kind == "json":
        (tmp_path / "rows.json").write_text("".join(as_json(r) + "\n" for r in rows.to_pylist()), encoding="utf-8")
    else:
        pq.write_table(rows, tmp_path / "rows.parquet")
    wh.create_table(f"from_{kind}", ddl({n: FLAT[n] for n in rows.column_names}), key=["k"])
    file = tmp_path / f"rows.{kind}"
    assert not wh.ingest(f"from_{kind}", file, label="x").repeated
    assert wh.ingest(f"from_{kind}", file, label="x", executor="spark").repeated
    assert wh.ingest(f"from_{kind}", rows, label="x").repeated


PLAIN = {
    "quotes": 'k,s\n1,"a ""b"", c"\n2,\n3,""\n4,"two\nlines"\n',
    "ends of Windows": "k,s\r\n1,x\r\n2,\r\n",
    "no end": "k,s\n1,x",
    "a mark first": "\ufeffk,s\n1,x\n",
    "spaces": "k,s\n1, x \n",
}
ODD = {
    "a plus": "k,s\n+1,x\n",
    "spaces around a number": "k,s\n 1 ,x\n",
    "quotes inside": 'k,s\n1,a"b"\n',
    "an empty line": "k,s\n1,x\n\n2,y\n",
}


@pytest.mark.parametrize("text", [*PLAIN, *ODD])
def test_texts_mean_the_same_either_way(wh: Warehouse, tmp_path: Path, text: str) -> None:
    name = text.replace(" ", "_")
    (tmp_path / "a.csv").write_text({**PLAIN, **ODD}[text], encoding="utf-8", newline="")
    wh.create_table(name, "k int, s string", key=["k"])
    wh.create_table(f"{name}_spark", "k int, s string", key=["k"])
    wh.ingest(name, tmp_path / "a.csv")
    wh.ingest(f"{name}_spark", tmp_path / "a.csv", executor="spark")
    wh.maintain()
    asked = "SELECT * FROM {} ORDER BY k"
    assert wh.sql(asked.format(name)).rows() == wh.sql(asked.format(f"{name}_spark")).rows()


@pytest.mark.parametrize("text", PLAIN)
def test_plain_texts_need_no_spark(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(PLAIN[text], encoding="utf-8", newline="")
    with no_spark(tmp_path / "wh") as wh:
        wh.create_table("t", "k int, s string", key=["k"])
        assert wh.ingest("t", tmp_path / "a.csv").rows


def no_spark(folder: Path) -> Warehouse:
    """A warehouse that fails where it asks for Spark."""

    class Never:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"Spark was asked for {name}")

    return parquetry.connect(folder, spark=Never())  # type: ignore[arg-type]


def test_batches_compaction_and_plain_views_need_no_spark(spark: SparkSession, tmp_path: Path) -> None:
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        for model, how in MODELS.items():
            small = {"compaction_width": 2, "max_query_deltas": 2}
            wh.create_table(model, "k int, v bigint, x double, s string", key=["k"], settings=small, **how)
        wh.create_view("totals", "SELECT s, sum(v) AS v, count(*) AS n FROM append GROUP BY s")
    with no_spark(tmp_path / "wh") as wh:
        for number in range(5):
            for model in MODELS:
                wh.ingest(model, batch(number))
            kinds = {type(stage).__name__ for stage in wh.maintain()}
        assert kinds == {"Advance", "Compact", "Refresh"}
        assert wh.sql("SELECT sum(n) AS n FROM totals", executor="local").rows() == [{"n": 3500}]
        with pytest.raises(ParquetryError, match="Spark was asked for"):
            wh.ingest("append", batch(9), executor="spark")
        with pytest.raises(ParquetryError, match="unknown executor 'local'"):
            wh.ingest("append", batch(9), executor="local")
        assert wh.sql("SELECT count(*) AS n FROM append", executor="local").rows() == [{"n": 3500}]


def test_the_border_between_both_ways_is_a_setting(spark: SparkSession, tmp_path: Path) -> None:
    rows = batch(1)
    with no_spark(tmp_path / "wh") as wh:
        wh.create_table("t", "k int, v bigint, x double, s string", key=["k"])
        wh.change_settings("t", in_process_bytes=rows.nbytes)
        assert wh.ingest("t", rows).rows == 700
        wh.change_settings("t", in_process_bytes=rows.nbytes - 1)
        with pytest.raises(ParquetryError, match="Spark was asked for"):
            wh.ingest("t", rows)
        assert len(wh.deltas("t")) == 1
