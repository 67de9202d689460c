"""The demo's questions, and what it means that two executors give the same answer."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# Sums of floats depend on the order of the rows; everything else is compared exactly.
_FLOAT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Question:
    about: str
    sql: str


def key_in_the_middle(scale: float) -> int:
    """An order key that exists at this scale: TPC-H uses the first 8 of every 32 keys."""
    return int(3_000_000 * scale) // 32 * 32


def questions(scale: float) -> list[Question]:
    """Questions that both executors can answer."""
    key = key_in_the_middle(scale)
    return [
        Question("one order", f"SELECT o_orderdate, o_totalprice, o_orderstatus FROM orders WHERE o_orderkey = {key}"),
        Question(
            "its lines",
            f"SELECT l_linenumber, l_quantity, l_shipdate FROM lineitem WHERE l_orderkey = {key} ORDER BY l_linenumber",
        ),
        Question(
            "three orders",
            f"SELECT o_orderkey, o_totalprice FROM orders WHERE o_orderkey IN ({key}, {key + 1}, {key + 2})",
        ),
        Question("an order that is not there", "SELECT * FROM orders WHERE o_orderkey = -1"),
        Question(
            "a range of orders",
            f"SELECT count(*) AS n, sum(l_extendedprice) AS price FROM lineitem "
            f"WHERE l_orderkey BETWEEN {key} AND {key + 10000}",
        ),
        Question("one day", "SELECT day, revenue, orders FROM daily_sales WHERE day = DATE '1995-03-15'"),
        Question(
            "years",
            "SELECT year(day) AS y, sum(revenue) AS revenue, sum(orders) AS orders FROM daily_sales "
            "GROUP BY year(day) ORDER BY y",
        ),
        Question(
            "orders per priority",
            "SELECT o_orderpriority, count(*) AS n FROM orders GROUP BY o_orderpriority ORDER BY o_orderpriority",
        ),
        Question(
            "first and last date",
            "SELECT min(o_orderdate) AS first, max(o_orderdate) AS last, count(*) AS n FROM orders",
        ),
        Question(
            "best customers",
            "SELECT o_custkey, sum(o_totalprice) AS spent FROM orders GROUP BY o_custkey "
            "ORDER BY spent DESC, o_custkey LIMIT 5",
        ),
        Question(
            "late shipments",
            "SELECT l_shipmode, count(*) AS late FROM lineitem WHERE l_receiptdate > l_commitdate "
            "GROUP BY l_shipmode ORDER BY l_shipmode",
        ),
        Question(
            "TPC-H Q6",
            "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' "
            "AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
        ),
        Question(
            "TPC-H Q1",
            "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS price, "
            "avg(l_discount) AS discount, count(*) AS n FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' "
            "GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
        ),
    ]


def spark_questions() -> list[Question]:
    """Questions that only Spark takes: joins and windows."""
    return [
        Question(
            "TPC-H Q12 (join)",
            "SELECT l_shipmode, count(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 END) AS urgent, "
            "count(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey WHERE l_shipmode IN ('MAIL', 'SHIP') "
            "AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01' "
            "AND l_receiptdate < DATE '1995-01-01' GROUP BY l_shipmode ORDER BY l_shipmode",
        ),
        Question(
            "a week's revenue (window)",
            "SELECT day, sum(revenue) OVER (ORDER BY day ROWS 6 PRECEDING) AS week FROM daily_sales "
            "WHERE day >= DATE '1998-07-01' ORDER BY day",
        ),
    ]


def dashboards(scale: float) -> tuple[list[str], Question]:
    """What dashboards ask of lineitem, five groups of products over some months, never quite the same; and a question
    that is not among them, only close to some that are."""
    draw, parts = random.Random(7), max(200, int(200_000 * scale))
    charts = [(draw.uniform(0.05, 0.9), date(1992, 6, 1) + timedelta(draw.randrange(2000))) for _ in range(5)]
    *log, asked_next = [
        _slice(parts, share + draw.uniform(0, 0.004), day + timedelta(draw.randrange(15)), draw.randrange(80, 110))
        for share, day in [*charts * 12, charts[0]]
    ]
    return log, Question("some products over some months", asked_next)


def _slice(parts: int, share: float, start: date, days: int) -> str:
    first, end = int(parts * share), start + timedelta(days)
    return (
        "SELECT sum(l_extendedprice) AS revenue FROM lineitem "
        f"WHERE l_partkey BETWEEN {first} AND {first + parts // 25} AND l_shipdate BETWEEN '{start}' AND '{end}'"
    )


def same_answer(left: pa.Table, right: pa.Table) -> bool:
    """The same columns and the same rows in any order."""
    if left.column_names != right.column_names or left.num_rows != right.num_rows:
        return False
    return all(_same_row(a, b) for a, b in zip(_sorted_rows(left), _sorted_rows(right), strict=True))


def _sorted_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    # Floats last: they may differ in their last digits and must not decide the order where others can.
    return sorted(rows, key=lambda row: repr(sorted(row, key=lambda v: (isinstance(v, float), repr(v)))))


def _same_row(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return all(
        math.isclose(a, b, rel_tol=_FLOAT_TOLERANCE) or (math.isnan(a) and math.isnan(b))
        if isinstance(a, float) and isinstance(b, float)
        else a == b
        for a, b in zip(left, right, strict=True)
    )
