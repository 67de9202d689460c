"""The data and queries of the WARP paper: TPC-H joined into one wide table, and eight of its templates over it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks._data import CACHE, tpch
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import type_name
from parquetry.query.demands import asked_of

TABLE = "denormalised"
TEMPLATES = ("q3", "q5", "q6", "q8", "q10", "q12", "q14", "q19")
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
TYPES = [
    f"{a} {b} {c}"
    for a in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for b in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for c in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
]
_SELECT = """
SELECT l_orderkey, l_linenumber, CAST(l_quantity AS INTEGER) AS l_quantity, l_extendedprice, l_discount, l_tax,
       l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode,
       o_orderdate, o_orderpriority, o_shippriority, c_mktsegment, c_nationkey, n_name, r_name, s_nationkey,
       p_partkey, p_type, p_brand, p_container, p_size
FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
     JOIN nation ON c_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
     JOIN part ON l_partkey = p_partkey JOIN supplier ON l_suppkey = s_suppkey
"""


def denormalised(scale: float = 1) -> Path:
    """The path of the wide table as one Parquet file, made on first use. Its row order is that of arrival: by order."""
    import duckdb

    path = CACHE / "tpch" / f"sf{scale:g}" / "denormalised.parquet"
    if not path.exists():
        with duckdb.connect() as con:
            con.execute("SET enable_progress_bar = false")
            con.execute(f"SET memory_limit = '4GB'; SET temp_directory = '{path.parent}'")  # joins and the sort spill
            for name in ("lineitem", "orders", "customer", "nation", "region", "part", "supplier"):
                con.execute(f"CREATE VIEW {name} AS FROM '{tpch(name, scale)}'")
            made = path.with_suffix(".tmp")
            con.execute(f"COPY ({_SELECT} ORDER BY l_orderkey, l_linenumber) TO '{made}' (FORMAT parquet)")
            made.rename(path)
    return path


def schema_of(path: Path) -> TableSchema:
    fields = pq.read_schema(path)
    columns = tuple(Column(f.name, type_name(f.type)) for f in fields)
    return TableSchema(columns, ("l_orderkey", "l_linenumber"), "append")


def queries(template: str, count: int, rng: np.random.Generator) -> list[str]:
    """Instances of a template with the substitution parameters of TPC-H's own generator."""
    return [
        f"SELECT count(*) AS n, sum(l_extendedprice) AS total FROM {TABLE} WHERE {_where(template, rng)}"
        for _ in range(count)
    ]


def _where(template: str, rng: np.random.Generator) -> str:
    def pick(values: tuple[str, ...] | list[str]) -> str:
        return str(values[int(rng.integers(len(values)))])

    year = int(rng.integers(1993, 1998))
    whole_year = f">= DATE '{year}-01-01' AND {{0}} < DATE '{year + 1}-01-01'"
    match template:
        case "q3":
            day = f"DATE '1995-03-{int(rng.integers(1, 32)):02d}'"
            return f"c_mktsegment = '{pick(SEGMENTS)}' AND o_orderdate < {day} AND l_shipdate > {day}"
        case "q5":
            dates = f"o_orderdate {whole_year.format('o_orderdate')}"
            return f"c_nationkey = s_nationkey AND r_name = '{pick(REGIONS)}' AND {dates}"
        case "q6":
            discount = int(rng.integers(2, 10))
            near = f"l_discount BETWEEN 0.{discount - 1:02d} AND {(discount + 1) / 100:.2f}"
            dates = f"l_shipdate {whole_year.format('l_shipdate')}"
            return f"{dates} AND {near} AND l_quantity < {int(rng.integers(24, 26))}"
        case "q8":
            dates = "o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'"
            return f"r_name = '{pick(REGIONS)}' AND {dates} AND p_type = '{pick(TYPES)}'"
        case "q10":
            first = int(rng.integers(1, 25))  # 1993-02 to 1995-01
            dates = f"o_orderdate >= {_month(1993, first)} AND o_orderdate < {_month(1993, first + 3)}"
            return f"{dates} AND l_returnflag = 'R'"
        case "q12":
            a, b = (MODES[i] for i in rng.choice(len(MODES), 2, replace=False))
            dates = f"l_receiptdate {whole_year.format('l_receiptdate')}"
            order = "l_commitdate < l_receiptdate AND l_shipdate < l_commitdate"
            return f"l_shipmode IN ('{a}', '{b}') AND {order} AND {dates}"
        case "q14":
            first = int(rng.integers(60))
            return f"l_shipdate >= {_month(1993, first)} AND l_shipdate < {_month(1993, first + 1)}"
    parts = [
        (("SM CASE", "SM BOX", "SM PACK", "SM PKG"), rng.integers(1, 11), 5),
        (("MED BAG", "MED BOX", "MED PKG", "MED PACK"), rng.integers(10, 21), 10),
        (("LG CASE", "LG BOX", "LG PACK", "LG PKG"), rng.integers(20, 31), 15),
    ]
    return " OR ".join(
        f"(p_brand = 'Brand#{int(rng.integers(1, 6))}{int(rng.integers(1, 6))}' AND p_container IN {containers}"
        f" AND l_quantity >= {int(q)} AND l_quantity <= {int(q)} + 10 AND p_size BETWEEN 1 AND {size}"
        " AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON')"
        for containers, q, size in parts
    )


def _month(year: int, months: int) -> str:
    return f"DATE '{date(year + months // 12, months % 12 + 1, 1)}'"


def logged(sqls: list[str], schema: TableSchema) -> list[LoggedQuery]:
    """The queries as the log would have them."""
    return [a.query for sql in sqls for a in asked_of(sql, TABLE, {TABLE: schema}) if a.filters]
