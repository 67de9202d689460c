"""TPC-H as one wide table, and eight of its queries as conditions on it: the data of papers 002 and 003."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

from benchmarks._data import CACHE, tpch
from parquetry.model.predicate import And, OneOf, Or, Predicate, Range

COLUMNS = (
    "l_quantity",
    "l_extendedprice",
    "l_discount",
    "l_shipdate",
    "l_commitdate",
    "l_receiptdate",
    "l_returnflag",
    "l_shipmode",
    "l_shipinstruct",
    "o_orderdate",
    "c_mktsegment",
    "r_name",
    "p_brand",
    "p_type",
    "p_size",
    "p_container",
)
_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
_TYPES = (
    ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"),
    ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"),
    ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER"),
)
_DAY = timedelta(days=1)


def denormalised(scale: float = 1) -> Path:
    """lineitem with what its order, customer, region and part say, as one Parquet file in lineitem's order."""
    path = CACHE / "denormalised" / f"sf{scale:g}.parquet"
    if not path.exists():
        import duckdb

        path.parent.mkdir(parents=True, exist_ok=True)
        for table in ("lineitem", "orders", "customer", "part", "nation", "region"):
            duckdb.sql(f"CREATE OR REPLACE VIEW {table} AS FROM read_parquet('{tpch(table, scale)}')")
        unfinished = path.with_suffix(".tmp")
        duckdb.sql(
            f"""COPY (
                SELECT l_orderkey, l_linenumber, {", ".join(COLUMNS)}
                FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
                  JOIN nation ON c_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
                  JOIN part ON l_partkey = p_partkey
                ORDER BY l_orderkey, l_linenumber
            ) TO '{unfinished}' (FORMAT parquet)"""
        )
        unfinished.rename(path)
    return path


def _q3(rng: random.Random) -> Predicate:
    day = date(1995, 3, 1) + rng.randrange(31) * _DAY
    segment = OneOf("c_mktsegment", frozenset({rng.choice(_SEGMENTS)}))
    return And((segment, Range("o_orderdate", None, day, False, True), Range("l_shipdate", day, None, True)))


def _q5(rng: random.Random) -> Predicate:
    return And((_region(rng), _year("o_orderdate", rng.randint(1993, 1997))))


def _q6(rng: random.Random) -> Predicate:
    middle = Decimal(rng.randint(2, 9)) / 100
    discount = Range("l_discount", middle - Decimal("0.01"), middle + Decimal("0.01"))
    quantity = Range("l_quantity", None, Decimal(rng.randint(24, 25)), False, True)
    return And((_year("l_shipdate", rng.randint(1993, 1997)), discount, quantity))


def _q8(rng: random.Random) -> Predicate:
    kind = OneOf("p_type", frozenset({" ".join(rng.choice(words) for words in _TYPES)}))
    return And((_region(rng), Range("o_orderdate", date(1995, 1, 1), date(1996, 12, 31)), kind))


def _q10(rng: random.Random) -> Predicate:
    month = rng.randrange(24) + 1
    start = _month(1993, month)
    until = _month(1993, month + 3)
    return And((Range("o_orderdate", start, until, False, True), OneOf("l_returnflag", frozenset({"R"}))))


def _q12(rng: random.Random) -> Predicate:
    modes = OneOf("l_shipmode", frozenset(rng.sample(_MODES, 2)))
    return And((modes, _year("l_receiptdate", rng.randint(1993, 1997))))  # dates compared to dates: any row may match


def _q14(rng: random.Random) -> Predicate:
    month = rng.randrange(60)
    return Range("l_shipdate", _month(1993, 1 + month), _month(1993, 2 + month), False, True)


def _q19(rng: random.Random) -> Predicate:
    parts = []
    for kind, sizes, low in (("SM", 5, (1, 10)), ("MED", 10, (10, 20)), ("LG", 15, (20, 30))):
        packs = ("CASE", "BOX", "PACK", "PKG") if kind != "MED" else ("BAG", "BOX", "PKG", "PACK")
        quantity = rng.randint(*low)
        parts.append(
            And(
                (
                    OneOf("p_brand", frozenset({f"Brand#{rng.randint(1, 5)}{rng.randint(1, 5)}"})),
                    OneOf("p_container", frozenset(f"{kind} {pack}" for pack in packs)),
                    Range("l_quantity", Decimal(quantity), Decimal(quantity + 10)),
                    Range("p_size", 1, sizes),
                )
            )
        )
    modes = OneOf("l_shipmode", frozenset({"AIR", "REG AIR"}))
    return And((Or(tuple(parts)), modes, OneOf("l_shipinstruct", frozenset({"DELIVER IN PERSON"}))))


TEMPLATES: dict[str, Callable[[random.Random], Predicate]] = {
    "q3": _q3,
    "q5": _q5,
    "q6": _q6,
    "q8": _q8,
    "q10": _q10,
    "q12": _q12,
    "q14": _q14,
    "q19": _q19,
}


def templates(each: int, seed: int) -> dict[str, list[Predicate]]:
    """``each`` queries of every template, with parameters as TPC-H draws them."""
    rng = random.Random(seed)
    return {name: [make(rng) for _ in range(each)] for name, make in TEMPLATES.items()}


def _region(rng: random.Random) -> OneOf:
    return OneOf("r_name", frozenset({rng.choice(_REGIONS)}))


def _year(column: str, year: int) -> Range:
    return Range(column, date(year, 1, 1), date(year + 1, 1, 1), False, True)


def _month(year: int, month: int) -> date:
    return date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)
