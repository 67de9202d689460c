"""A query over only those rows that satisfy its references' predicates answers as over all rows, in Spark itself."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from parquetry.query.planning.bind import bind
from tests.query.test_bind import TABLES, cases
from tests.workload.conditions import satisfies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MORE = [
    "SELECT o.ok, c.name FROM orders o LEFT JOIN customers c ON o.ck = c.ck AND c.nation IS NULL WHERE o.ok < 5",
    "SELECT o.ok, i.line FROM orders o LEFT JOIN items i ON o.ok = i.ok JOIN customers c ON c.ck = o.ck AND i.line = 1",
    "SELECT * FROM customers c RIGHT JOIN orders o ON c.ck = o.ck LEFT JOIN items i ON i.ok = o.ok WHERE c.ck = 2",
    "SELECT c.ck FROM customers c FULL JOIN orders o USING (ck) JOIN items i ON i.ok = o.ok WHERE i.ok = 3",
    "SELECT c.ck FROM customers c LEFT ANTI JOIN orders o ON c.ck = o.ck WHERE c.ck IN (1, 2, 3)",
    "SELECT * FROM (SELECT ok FROM customers LEFT JOIN orders USING (ck)) s JOIN items i ON i.ok = s.ok WHERE s.ok < 4",
    "SELECT * FROM (SELECT c.ck, o.ok FROM customers c LEFT JOIN orders o ON c.ck = o.ck) s WHERE ok IS NULL OR ok = 1",
    "SELECT ck, count(*) FROM orders WHERE NOT (ck = 2) GROUP BY ck HAVING ck <> 3 OR ck IS NULL",
    "SELECT * FROM customers WHERE ck NOT IN (SELECT ck FROM orders WHERE ck = 2 AND ok > 3)",
    "SELECT o.ok, (SELECT max(line) FROM items i WHERE i.ok = o.ok AND i.line < 3) AS m FROM orders o WHERE o.ok > 2",
    "SELECT a.ok FROM orders a LEFT JOIN customers b ON a.ck = b.ck WHERE coalesce(b.nation, 1) = 1",
    "SELECT a.ok, b.ck FROM orders a CROSS JOIN customers b WHERE a.ck = b.ck AND b.ck = 1",
    "SELECT ok FROM orders INTERSECT SELECT ok FROM items WHERE ok > 2",
    "SELECT * FROM (SELECT ok FROM orders EXCEPT ALL SELECT ok FROM items) WHERE ok = 3",
    "SELECT ok FROM orders o WHERE NOT EXISTS (SELECT 1 FROM items i WHERE i.ok = o.ok AND i.line = 1)",
]
_UNSTABLE = ("TABLESAMPLE", "LIMIT", "sys.deltas", "row_number")
QUERIES = [q for q, _ in cases() if not any(word in q for word in _UNSTABLE)] + _MORE


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    rng = random.Random(5)

    def few(low: int, high: int) -> int | None:
        return None if rng.random() < 0.15 else rng.randint(low, high)

    def day() -> date:
        return date(2019, 12, 25) + timedelta(days=rng.randint(0, 20))

    def money() -> Decimal:
        return Decimal(rng.randint(0, 900)).scaleb(-2)

    orders = [
        {"ok": few(0, 9), "ck": few(0, 9), "total": money(), "day": day(), "note": rng.choice("ab"), "tags": ["x", "y"]}
        for _ in range(40)
    ]
    items = [
        {
            "ok": few(0, 9),
            "line": few(0, 3),
            "price": money(),
            "ship": day(),
            "mode": rng.choice(["AIR", "SEA"]),
            "info": {"a": 1, "b": "x"},
        }
        for _ in range(60)
    ]
    customers = [{"ck": few(0, 9), "name": f"c{i}", "nation": few(1, 7)} for i in range(20)]
    return {"orders": orders, "items": items, "customers": customers}


@pytest.mark.spark
@pytest.mark.parametrize("sql", QUERIES)
def test_rows_outside_the_predicates_do_not_change_the_answer(
    sql: str, spark: SparkSession, rows: dict[str, list[dict[str, Any]]]
) -> None:
    refs = bind(sql, TABLES).refs
    kept = {
        name: [r for r in all_rows if any(satisfies(ref.predicate, r) for ref in refs if ref.table == name)]
        for name, all_rows in rows.items()
    }
    assert _answer(spark, sql, kept) == _answer(spark, sql, rows)


def _answer(spark: SparkSession, sql: str, rows: dict[str, list[dict[str, Any]]]) -> Counter[str]:
    frames: dict[str, DataFrame] = {}
    for name, some in rows.items():
        schema = pa.schema([pa.field(c.name, c.arrow) for c in TABLES[name].columns])
        frames[name] = spark.createDataFrame(pa.Table.from_pylist(some, schema))
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    try:
        return Counter(repr(r) for r in spark.sql(sql).collect())
    finally:
        for name in frames:
            spark.catalog.dropTempView(name)
