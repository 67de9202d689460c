"""Queries with joins against Spark itself: rows, names and types are equal with views and without."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.warehouse import Warehouse
from tests.views import joined_views as joined
from tests.views.random_views import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = 14


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Facts and dimensions that change after the views are there."""
    rng = random.Random(31)
    with parquetry.connect(tmp_path_factory.mktemp("joins") / "wh", spark=spark) as wh:
        for table in joined.DDLS:
            model = "append" if table == "sales" else "upsert"
            wh.create_table(table, joined.DDLS[table], key=joined.KEYS[table], model=model)
        for number in range(2):
            wh.ingest("sales", rows(rng, 600), f"sales {number}", tasks=1)
            for table in ("shops", "cities"):
                wh.ingest(table, joined.rows_of(rng, table), f"{table} {number}", tasks=1)
            if number == 0:
                for name, sql in joined.VIEWS.items():
                    wh.create_view(name, sql)
            wh.maintain()
        yield wh


def canonical(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(r)) for r in zip(*(c.to_pylist() for c in table.columns), strict=True))


@pytest.mark.slow
def test_joins_give_sparks_answer_from_views(filled: Warehouse) -> None:
    rng = random.Random(32)
    answered: set[str] = set()
    asked = 0
    while asked < QUERIES or answered < set(joined.VIEWS):
        sql = joined.random_join(rng)
        plan = filled.sql(sql).plan
        if plan.view is None or (asked >= QUERIES and plan.view in answered):
            continue
        asked += 1
        answered.add(plan.view)
        wanted = filled.sql(sql, executor="spark", off=["views"]).arrow()
        for executor in ("local", "spark") if asked % 3 == 0 else ("local",):
            got = filled.sql(sql, executor=executor).arrow()
            assert got.schema.names == wanted.schema.names, sql
            assert got.schema.types == wanted.schema.types, sql
            assert canonical(got) == canonical(wanted), f"{sql} by {plan.view} on {executor}: {plan.bound.sql}"
