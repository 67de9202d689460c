"""A relaid table answers as before, skips more, and later batches follow its layout."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.errors import ParquetryError, SchemaError
from parquetry.layouts.registry import LEARNERS
from parquetry.query.rules import RULE_NAMES as RULES
from tests.templates import Templates

ROWS = 4000
SMALL = {"block_group_rows": 50, "row_group_rows": 1000, "descriptor_boxes": 3}


def batch(seed: int, rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(seed)
    price = [None if x < 0.05 else Decimal(int(x * 100_000)).scaleb(-2) for x in rng.random(rows)]
    return pa.table(
        {
            "a": pa.array(rng.integers(0, 1000, rows), pa.int32()),
            "b": pa.array(rng.integers(0, 300, rows), pa.int64()),
            "s": pa.array([f"s{n:03}" for n in rng.integers(0, 200, rows)]),
            "d": pa.array(rng.integers(8000, 9000, rows).astype(np.int32)).cast(pa.date32()),
            "price": pa.array(price, pa.decimal128(12, 2)),
            "x": pa.array(np.where(rng.random(rows) < 0.05, np.nan, rng.normal(size=rows))),
            "v": pa.array(rng.integers(-50, 50, rows), pa.int64()),
        }
    )


def queries(seed: int, count: int) -> list[str]:
    rnd = random.Random(seed)
    found = []
    for _ in range(count):
        a, b, s = rnd.randrange(950), rnd.randrange(280), rnd.randrange(190)
        where = rnd.choice(
            [
                f"a BETWEEN {a} AND {a + 60} AND b BETWEEN {b} AND {b + 30}",
                f"a >= {a} AND a < {a + 40}",
                f"s BETWEEN 's{s:03}' AND 's{s + 9:03}' AND a < {a}",
                f"(a = {a} OR b IN ({b}, {b + 1})) AND s > 's{s:03}'",
            ]
        )
        found.append(f"SELECT count(*) AS n, sum(v) AS v, min(b) AS b FROM t WHERE {where}")
    return found


@pytest.fixture(params=["append", "upsert", "aggregate"])
def wh(request: pytest.FixtureRequest, tmp_path: Path, templates: Templates) -> Any:
    values = dict.fromkeys(("d", "price", "x"), "max") | {"v": "sum"} if request.param == "aggregate" else None

    def fill(wh: parquetry.Warehouse) -> None:
        wh.create_table("t", batch(0).schema, key=["a", "b", "s"], model=request.param, values=values, settings=SMALL)
        for seed in (1, 2):
            wh.ingest("t", batch(seed), tasks=1)
        wh.maintain()

    with templates.copied(f"relayout-{request.param}", tmp_path / "wh", fill) as wh:
        yield wh


def answers(wh: parquetry.Warehouse, **how: Any) -> list[Any]:
    extra = ["SELECT a, b, s, d, price, x, v FROM t ORDER BY 1, 2, 3, 4, 5, 7, 6"]
    return [str(wh.sql(q, **how).rows()) for q in [*queries(7, 12), *extra]]


def test_every_learner_keeps_every_row_and_every_answer(wh: parquetry.Warehouse) -> None:
    before = answers(wh, executor="local")
    for q in queries(5, 20):
        wh.sql(q).arrow()
    options = RelayoutOptions(block_rows=400, delta=0.01, cells=2)
    for learner in ["paw", "qdtree", "kdtree", "zorder", "hilbert", "key"]:
        done = wh.relayout("t", learner, options=options)
        assert done.blocks == (1 if learner == "key" else wh.layout("t")["blocks"])
        assert answers(wh, executor="local") == before
        assert answers(wh, executor="local", off=[r for r in RULES if r.startswith("prune")]) == before
        assert wh.verify() == []
    assert set(LEARNERS) >= {"paw", "qdtree", "kdtree", "zorder", "hilbert", "key"}


def test_later_batches_and_compaction_follow_the_layout(wh: parquetry.Warehouse) -> None:
    wh.relayout("t", "kdtree", options=RelayoutOptions(block_rows=300, columns=["a", "s"], cells=1))
    layout = wh.catalog.state().table("t").layout_id
    plain = wh.sql("SELECT count(*) AS n, sum(v) AS v FROM t WHERE a < 50 AND s < 's020'")
    assert plain.stats["blocks_read"] < plain.stats["blocks_total"]
    reader = wh.sql("SELECT count(*) AS n FROM t")  # fixed before the next batch
    for seed in (3, 4, 5):
        wh.ingest("t", batch(seed, 500), tasks=2)
    assert {d.layout_id for d in wh.catalog.state().table("t").deltas} == {layout}
    expected = reader.rows()
    wh.change_settings("t", compaction_width=2)
    wh.maintain()
    table = wh.catalog.state().table("t")
    assert {d.layout_id for d in table.deltas} == {layout}
    assert wh.verify() == []
    if table.schema.model == "append":
        assert wh.sql("SELECT count(*) AS n FROM t").rows() == [{"n": 2 * ROWS + 1500}]
        assert expected == [{"n": 2 * ROWS}]
    off = [r for r in RULES if r.startswith("prune")]
    assert answers(wh, executor="local") == answers(wh, executor="local", off=off)


def test_both_executors_agree_on_a_learned_layout(wh: parquetry.Warehouse) -> None:
    for q in queries(5, 20):
        wh.sql(q).arrow()
    wh.relayout("t", "paw", options=RelayoutOptions(block_rows=300, delta=0.02))
    for q in queries(8, 3):
        assert wh.sql(q, executor="spark").rows() == wh.sql(q, executor="local").rows()


def test_a_picture_and_an_explanation(wh: parquetry.Warehouse) -> None:
    for q in queries(5, 20):
        wh.sql(q).arrow()
    wh.relayout("t", "paw", options=RelayoutOptions(block_rows=300, delta=0.02))
    picture = wh.draw_layout("t", ["a", "b"])
    assert picture.startswith("<svg")
    assert picture.count("<rect") > 20
    told = wh.explain("SELECT count(*) AS n FROM t WHERE a < 30 AND v > 5 AND upper(s) = 'S001'", analyze=True)
    steps = {d.rule for d in told.decisions}
    assert {"bind", "filter", "skips", "local", "read", "ran"} <= steps
    assert any(name.startswith("prune_") for name in steps)
    assert any("upper" in d.decided.lower() for d in told.decisions if d.rule == "filter")


def test_bad_requests_change_nothing(wh: parquetry.Warehouse) -> None:
    version = wh.catalog.version()
    with pytest.raises(SchemaError, match="finds no column to cut"):
        wh.relayout("t", "paw")
    with pytest.raises(ParquetryError, match="unknown layout"):
        wh.relayout("t", "magic", options=RelayoutOptions(columns=["a"]))
    with pytest.raises(ParquetryError, match="unknown column"):
        wh.relayout("t", "kdtree", options=RelayoutOptions(columns=["nope"]))
    if wh.catalog.state().table("t").schema.keyed:
        with pytest.raises(SchemaError, match="not in the key"):
            wh.relayout("t", "kdtree", options=RelayoutOptions(columns=["v"]))
    with pytest.raises(SchemaError, match="plain key order"):
        wh.draw_layout("t")
    assert wh.catalog.version() == version


def test_a_block_larger_than_the_table_is_one_block(wh: parquetry.Warehouse) -> None:
    done = wh.relayout("t", "kdtree", options=RelayoutOptions(block_rows=10**9, columns=["a"]))
    assert done.blocks == 1
    assert wh.verify() == []


def test_a_workload_file_reports_broken_lines_and_uses_the_rest(wh: parquetry.Warehouse, tmp_path: Path) -> None:
    file = tmp_path / "queries.sql"
    file.write_text(
        "SELECT * FROM t WHERE a < 5\nSELEC nonsense\n-- a comment\n"
        "SELECT * FROM nowhere\nSELECT b FROM t WHERE b = 3\n"
        "SELECT count() FROM t\nSELECT MAP(DISTINCT a) FROM t\nSELECT 1 FROM t GROUP BY 1e309\n"
    )
    done = wh.import_workload(file)
    assert done.queries == 4
    assert [r.line for r in done.rejected] == [2, 4, 7]
    logged = [q["sql"] for q in wh.queries(4, "t")]
    assert logged[2:] == ["SELECT b FROM t WHERE b = 3", "SELECT * FROM t WHERE a < 5"]
    assert wh.relayout("t", "paw", options=RelayoutOptions(block_rows=500, delta=0.01)).blocks > 1


def test_a_column_may_have_any_name(tmp_path: Path, spark: Any) -> None:
    odd = ["tick`s", "a.b", "x y"]
    with parquetry.connect(tmp_path / "wh", spark=spark) as wh:
        wh.create_table("t", "`tick``s` int, `a.b` int, `x y` int", key=[odd[0]], settings=SMALL)
        wh.ingest("t", pa.table({c: pa.array(range(i, 300 + i), pa.int32()) for i, c in enumerate(odd)}))
        wh.maintain()
        query = "SELECT count(*) AS n FROM t WHERE `tick``s` < 30 AND `a.b` > 10 AND `x y` < 1000"
        before = wh.sql(query).rows()
        for learner in ("kdtree", "hilbert", "robust"):
            options = RelayoutOptions(block_rows=50, columns=odd)
            assert wh.relayout("t", learner, options=options).blocks > 1
            for executor in ("local", "spark"):
                assert wh.sql(query, executor=executor).rows() == before
        ET.fromstring(wh.draw_layout("t", odd[:2]))
