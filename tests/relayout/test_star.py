"""A fact table is laid out by what is asked of its dimensions, and stays right whatever becomes of these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import parquetry
from parquetry.model.layout import ReachingLayout
from parquetry.query.rules import RULE_NAMES as RULES
from parquetry.warehouse import Warehouse

pytestmark = pytest.mark.spark
DAYS, SHOPS, CITIES, ROWS = 60, 300, 30, 60_000
SETTINGS = {"row_group_rows": 10_000, "block_group_rows": 100}


def dashboard(city: int, week: int) -> str:
    return f"""SELECT name, count(*) AS n, sum(v) AS v FROM sales JOIN shops ON sales.shop = shops.shop
        JOIN cities ON shops.city = cities.city JOIN days ON sales.day = days.day
        WHERE cities.city = {city} AND week = {week} GROUP BY name"""


def rows_of_a_day(rng: np.random.Generator, ids: range) -> pa.Table:
    n = len(ids)
    shops, days = rng.integers(0, SHOPS, n), rng.integers(0, DAYS, n)
    return pa.table({"id": ids, "day": days, "shop": shops, "v": rng.integers(0, 99, n)})


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    rng = np.random.default_rng(0)
    folder: Path = tmp_path_factory.mktemp("star")
    with parquetry.connect(folder / "wh") as wh:
        wh.create_table("sales", "id int, day int, shop int, v int", key=["id"], settings=SETTINGS)
        wh.create_table("shops", "shop int, city int", key=["shop"], model="upsert")
        wh.create_table("cities", "city int, name string", key=["city"])
        wh.create_table("days", "day int, week int", key=["day"])
        wh.ingest("sales", rows_of_a_day(rng, range(ROWS)))
        wh.ingest("shops", pa.table({"shop": range(SHOPS), "city": rng.permutation(SHOPS) % CITIES}))
        wh.ingest("cities", pa.table({"city": range(CITIES), "name": [f"city {i}" for i in range(CITIES)]}))
        wh.ingest("days", pa.table({"day": range(DAYS), "week": [d // 7 for d in range(DAYS)]}))
        wh.maintain()
        for city, week in zip(rng.integers(0, CITIES, 60).tolist(), rng.integers(0, 8, 60).tolist(), strict=True):
            wh.sql(dashboard(city, week), executor="local").rows()
        yield wh


def test_facts_laid_out_by_filters_on_dimensions_stay_right(wh: Warehouse) -> None:
    asked = [dashboard(city, week) for city, week in ((3, 1), (17, 4), (29, 7))]
    before = [wh.sql(q, executor="local") for q in asked]
    what = wh.what_if(asked[0], "qdtree", table="sales")
    done = wh.relayout("sales", "auto")
    assert done.applied, done.reason
    assert isinstance(done.spec, ReachingLayout), wh.layout("sales")
    assert any(c.startswith("shop→shops.") for c in wh.layout("sales")["columns"])
    assert what.then.bytes < what.today.bytes / 3
    assert wh.draw_layout("sales").startswith("<svg")
    after = [wh.sql(q, executor="local") for q in asked]
    assert [r.rows() for r in after] == [r.rows() for r in before]
    scanned = [sum(r.plan.tables["sales"].rows for r in results) for results in (before, after)]
    assert scanned[1] < scanned[0] / 3
    assert all("prune_join" in r.stats["skipped_by"] for r in after)
    # New facts, shops that move to another city, and a new one: the layout knows nothing of them.
    rng = np.random.default_rng(1)
    wh.ingest("sales", rows_of_a_day(rng, range(ROWS, ROWS + 5000)))
    wh.ingest("sales", pa.table({"id": [ROWS + 5000], "day": [8], "shop": [SHOPS], "v": [1]}))
    wh.ingest("shops", pa.table({"shop": [*range(0, SHOPS, 3), SHOPS], "city": [3] * (SHOPS // 3 + 1)}))
    wh.maintain()
    for q in asked:
        found = wh.sql(q, executor="local").rows()
        assert found == wh.sql(q, executor="local", off=RULES).rows() == wh.sql(q, executor="spark").rows()
    assert wh.verify() == []
