"""The log keeps what joins said of each table, so that its layout can be learned from filters on others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

import parquetry
from parquetry.catalog import tables
from parquetry.joins.reach import reach
from parquetry.model.predicate import Nothing, columns_of, text_of
from parquetry.query.demands import asked_queries, logged_workload
from parquetry.warehouse import Warehouse
from tests.views.without_spark import ingest, publish

JOINS = "FROM sales JOIN shops ON sales.shop = shops.shop JOIN cities ON shops.city = cities.city"
COUNTRY = "shop→shops.city→cities.country"


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[Warehouse]:
    rng = np.random.default_rng(0)
    with parquetry.connect(tmp_path / "wh") as wh:
        wh.create_table("sales", "id int, shop int, v int", key=["id"], settings={"row_group_rows": 500})
        wh.create_table("shops", "shop int, city int, size int", key=["shop"])
        wh.create_table("cities", "city int, country string", key=["city"])
        shops = rng.integers(0, 1000, 5000)
        ingest(wh, "sales", pa.table({"id": range(5000), "shop": shops, "v": range(5000)}), "s")
        ingest(
            wh, "shops", pa.table({"shop": range(1000), "city": rng.permutation(1000) % 50, "size": [1] * 1000}), "p"
        )
        ingest(wh, "cities", pa.table({"city": range(50), "country": [f"c{i % 5}" for i in range(50)]}), "c")
        publish(wh)
        yield wh


def told(wh: Warehouse, table: str = "sales") -> list[str]:
    return [text_of(a.predicate) for a in asked_queries(wh._logged(), table, 100)]


def test_a_filter_two_joins_away_is_told_of_the_facts(wh: Warehouse) -> None:
    wh.sql(f"SELECT sum(v) AS v {JOINS} WHERE country = 'c3' AND v < 4000", executor="local").rows()
    (facts,) = told(wh)
    assert facts.startswith("v <= 3999 AND shop IN (")
    assert facts.endswith(f"… 194 more) AND {COUNTRY} = c3")
    (shops,) = told(wh, "shops")
    assert "city→cities.country = c3" in shops
    assert [columns_of(q.predicate) for q in logged_workload(wh._logged(), "sales", 10)] == [{"v", "shop", COUNTRY}]


def test_what_the_name_stands_for_is_read_from_the_tables(wh: Warehouse) -> None:
    found = reach(
        wh.store, wh.catalog.state(), 5000, [COUNTRY, "shop→shops.gone", "shop→gone.x", "v→sales.shop→shops.size"]
    )
    assert list(found) == [COUNTRY, "v→sales.shop→shops.size"]
    expected = wh.sql("SELECT shop, country FROM shops JOIN cities ON shops.city = cities.city ORDER BY shop").arrow()
    assert found[COUNTRY].keys.to_pylist() == expected["shop"].to_pylist()
    assert found[COUNTRY].values.to_pylist() == expected["country"].to_pylist()


@pytest.mark.parametrize(
    ("how", "values"),
    [
        ({"model": "upsert"}, [1, 8, 3, 4]),
        ({"model": "upsert", "sequence": "at"}, [1, 2, 3, 4]),  # what came last is older
        ({"model": "aggregate", "values": {"v": "sum", "at": "max"}}, [1, 10, 3, 4]),
        ({"model": "append"}, [1, 8, 3, 4]),
    ],
)
def test_rows_of_equal_keys_become_one_as_for_a_query(wh: Warehouse, how: dict[str, Any], values: list[int]) -> None:
    wh.create_table("d", "k int, v bigint, at int", key=["k"], **how)
    ingest(wh, "d", pa.table({"k": [1, 2, 3], "v": [1, 2, 3], "at": [5, 5, 5]}), "d0")
    ingest(wh, "d", pa.table({"k": [2, 4], "v": [8, 4], "at": [4, 5]}), "d1")
    (found,) = reach(wh.store, wh.catalog.state(), 5000, ["shop→d.v"]).values()
    assert found.keys.to_pylist() == [1, 2, 3, 4]
    assert found.values.to_pylist() == values


def test_many_values_are_kept_as_ranges(wh: Warehouse) -> None:
    wh.sql(f"SELECT sum(v) AS v {JOINS} WHERE country <> 'c0'", executor="local").rows()
    many = ", ".join(f"'c{i}'" for i in range(3000))
    wh.sql(f"SELECT sum(v) AS v {JOINS} WHERE country IN ({many})", executor="local").rows()
    wh._logged()
    for row in wh.catalog.queries(10):
        assert 100 < len(json.dumps(row["shape"][0]["induced"])) < 10_000
    few, *_ = told(wh)
    assert "OR shop >=" in few


def test_an_empty_side_is_told(wh: Warehouse) -> None:
    wh.sql(f"SELECT sum(v) AS v {JOINS} WHERE country = 'nowhere'", executor="local").rows()
    (asked,) = asked_queries(wh._logged(), "sales", 10)
    assert asked.predicate == Nothing()
    assert not asked.filters


def test_logs_of_before_are_read_as_they_were(wh: Warehouse) -> None:
    wh.sql(f"SELECT sum(v) AS v {JOINS} WHERE country = 'c3' AND v < 4000", executor="local").rows()
    wh._logged()
    for shape in ("NULL", "'[]'", '\'[{"table": "sales", "columns": ["v"]}]\''):
        with wh.catalog._db.write() as conn:
            conn.execute(sa.text(f"UPDATE {tables.queries.name} SET shape = {shape}"))
        assert told(wh) == ["v <= 3999"]


def test_columns_that_are_gone_are_forgotten(wh: Warehouse) -> None:
    wh.sql(f"SELECT sum(v) AS v {JOINS} WHERE country = 'c3'", executor="local").rows()
    wh._logged()
    (row,) = wh.catalog.queries(1)
    changed = json.dumps(row["shape"]).replace('"shop', '"moved')
    with wh.catalog._db.write() as conn:
        conn.execute(sa.text(f"UPDATE {tables.queries.name} SET shape = :s"), {"s": changed})
    assert told(wh) == ["anything"]
