"""Star queries with parameters, after the shapes of TPC-H and TPC-DS queries that filter dimensions and sum up facts.

``draw`` gives different parameters for every query of a template, so what is asked later was never asked before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    "BRAZIL",
    "CANADA",
    "CHINA",
    "EGYPT",
    "FRANCE",
    "GERMANY",
    "INDIA",
    "IRAN",
    "JAPAN",
    "KENYA",
    "PERU",
    "RUSSIA",
)
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
_KINDS = ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
_FINISHES = ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
_METALS = ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
TYPES = tuple(" ".join(words) for words in itertools.product(_KINDS, _FINISHES, _METALS))
BRANDS = tuple(f"Brand#{a}{b}" for a in range(1, 6) for b in range(1, 6))
YEARS = range(1993, 1998)
SOLD = range(1998, 2003)  # years of TPC-DS sales
EDUCATION = ("Primary", "Secondary", "College", "2 yr Degree", "4 yr Degree", "Advanced Degree", "Unknown")
_REVENUE = "sum(l_extendedprice * (1 - l_discount)) AS revenue"


@dataclass(frozen=True)
class Template:
    """A query text for one choice of parameters, and all choices there are."""

    name: str
    text: Callable[..., str]
    choices: Callable[[], Iterable[tuple[Any, ...]]]

    def draw(self, count: int, seed: int) -> list[str]:
        """Texts with parameters that are all different."""
        rng = random.Random(f"{self.name} {seed}")
        return [self.text(*chosen) for chosen in rng.sample(list(self.choices()), count)]


def _pending(segment: str, day: int) -> str:
    return f"""SELECT l_orderkey, {_REVENUE}, o_orderdate, o_shippriority
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = '{segment}'
        AND o_orderdate < DATE '1995-03-{day:02}' AND l_shipdate > DATE '1995-03-{day:02}'
        GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10"""


def _within_region(region: str, year: int) -> str:
    return f"""SELECT n_name, {_REVENUE}
        FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
        JOIN supplier ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey
        JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
        WHERE r_name = '{region}' AND o_orderdate >= DATE '{year}-01-01' AND o_orderdate < DATE '{year + 1}-01-01'
        GROUP BY n_name ORDER BY revenue DESC"""


def _between_nations(one: str, other: str, year: int) -> str:
    return f"""SELECT s.n_name AS supplier, c.n_name AS customer, year(l_shipdate) AS shipped, {_REVENUE}
        FROM lineitem JOIN supplier ON l_suppkey = s_suppkey JOIN nation s ON s_nationkey = s.n_nationkey
        JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
        JOIN nation c ON c_nationkey = c.n_nationkey
        WHERE s.n_name IN ('{one}', '{other}') AND c.n_name IN ('{one}', '{other}') AND s.n_name <> c.n_name
        AND l_shipdate BETWEEN DATE '{year}-01-01' AND DATE '{year + 1}-12-31'
        GROUP BY s.n_name, c.n_name, year(l_shipdate) ORDER BY supplier, customer, shipped"""


def _market_share(region: str, kind: str, year: int) -> str:
    return f"""SELECT year(o_orderdate) AS ordered, sup.n_name, {_REVENUE}
        FROM part JOIN lineitem ON p_partkey = l_partkey JOIN supplier ON l_suppkey = s_suppkey
        JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
        JOIN nation cus ON c_nationkey = cus.n_nationkey JOIN region ON cus.n_regionkey = r_regionkey
        JOIN nation sup ON s_nationkey = sup.n_nationkey
        WHERE r_name = '{region}' AND p_type = '{kind}'
        AND o_orderdate BETWEEN DATE '{year}-01-01' AND DATE '{year + 1}-12-31'
        GROUP BY year(o_orderdate), sup.n_name ORDER BY ordered, sup.n_name"""


def _returned(year: int, month: int) -> str:
    until = f"{year + (month > 9)}-{(month + 2) % 12 + 1:02}-01"
    return f"""SELECT c_custkey, c_name, n_name, {_REVENUE}
        FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON c_custkey = o_custkey
        JOIN nation ON c_nationkey = n_nationkey
        WHERE o_orderdate >= DATE '{year}-{month:02}-01' AND o_orderdate < DATE '{until}' AND l_returnflag = 'R'
        GROUP BY c_custkey, c_name, n_name ORDER BY revenue DESC, c_custkey LIMIT 20"""


def _by_mode(modes: tuple[str, str], year: int) -> str:
    return f"""SELECT l_shipmode, sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS urgent,
        count(*) AS lines FROM orders JOIN lineitem ON o_orderkey = l_orderkey
        WHERE l_shipmode IN ('{modes[0]}', '{modes[1]}') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
        AND l_receiptdate >= DATE '{year}-01-01' AND l_receiptdate < DATE '{year + 1}-01-01'
        GROUP BY l_shipmode ORDER BY l_shipmode"""


def _promotion(year: int, month: int) -> str:
    until = f"{year + month // 12}-{month % 12 + 1:02}-01"
    return f"""SELECT p_type, {_REVENUE} FROM lineitem JOIN part ON l_partkey = p_partkey
        WHERE l_shipdate >= DATE '{year}-{month:02}-01' AND l_shipdate < DATE '{until}'
        GROUP BY p_type ORDER BY p_type"""


def _in_person(brand: str, other: str, least: int) -> str:
    return f"""SELECT {_REVENUE} FROM lineitem JOIN part ON l_partkey = p_partkey
        WHERE l_shipmode IN ('AIR', 'REG AIR') AND l_shipinstruct = 'DELIVER IN PERSON' AND p_size BETWEEN 1 AND 15
        AND ((p_brand = '{brand}' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
              AND l_quantity BETWEEN {least} AND {least + 10})
          OR (p_brand = '{other}' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
              AND l_quantity BETWEEN {least + 9} AND {least + 19}))"""


TPCH = (
    Template("H3", _pending, lambda: itertools.product(SEGMENTS, range(1, 32))),
    Template("H5", _within_region, lambda: itertools.product(REGIONS, YEARS)),
    Template("H7", _between_nations, lambda: ((a, b, y) for a, b in itertools.combinations(NATIONS, 2) for y in YEARS)),
    Template("H8", _market_share, lambda: itertools.product(REGIONS, TYPES, YEARS)),
    Template("H10", _returned, lambda: [(y, m) for y in (1993, 1994) for m in range(1, 13)]),
    Template("H12", _by_mode, lambda: itertools.product(itertools.combinations(MODES, 2), YEARS)),
    Template("H14", _promotion, lambda: itertools.product(YEARS, range(1, 13))),
    Template(
        "H19", _in_person, lambda: ((a, b, q) for a, b in itertools.permutations(BRANDS, 2) for q in range(1, 11))
    ),
)


def _brands(month: int, manufact: int) -> str:
    return f"""SELECT d_year, i_brand_id, i_brand, sum(ss_ext_sales_price) AS sales
        FROM store_sales JOIN date_dim ON ss_sold_date_sk = d_date_sk JOIN item ON ss_item_sk = i_item_sk
        WHERE i_manufact_id = {manufact} AND d_moy = {month}
        GROUP BY d_year, i_brand_id, i_brand ORDER BY d_year, sales DESC, i_brand_id LIMIT 100"""


def _demographics(gender: str, marital: str, education: str, year: int) -> str:
    return f"""SELECT i_item_id, count(ss_quantity) AS n, sum(ss_quantity) AS quantity, sum(ss_list_price) AS price
        FROM store_sales JOIN customer_demographics ON ss_cdemo_sk = cd_demo_sk
        JOIN date_dim ON ss_sold_date_sk = d_date_sk JOIN item ON ss_item_sk = i_item_sk
        JOIN promotion ON ss_promo_sk = p_promo_sk
        WHERE cd_gender = '{gender}' AND cd_marital_status = '{marital}' AND cd_education_status = '{education}'
        AND d_year = {year} AND (p_channel_email = 'N' OR p_channel_event = 'N')
        GROUP BY i_item_id ORDER BY i_item_id LIMIT 100"""


def _away(manager: int, month: int, year: int) -> str:
    return f"""SELECT i_brand_id, i_brand, i_manufact_id, sum(ss_ext_sales_price) AS sales
        FROM date_dim JOIN store_sales ON d_date_sk = ss_sold_date_sk JOIN item ON ss_item_sk = i_item_sk
        JOIN customer ON ss_customer_sk = c_customer_sk JOIN customer_address ON c_current_addr_sk = ca_address_sk
        JOIN store ON ss_store_sk = s_store_sk
        WHERE i_manager_id = {manager} AND d_moy = {month} AND d_year = {year}
        AND substring(ca_zip, 1, 5) <> substring(s_zip, 1, 5)
        GROUP BY i_brand_id, i_brand, i_manufact_id ORDER BY sales DESC, i_brand_id, i_manufact_id LIMIT 100"""


def _of_manager(group: str) -> Callable[[int, int, int], str]:
    def text(manager: int, month: int, year: int) -> str:
        return f"""SELECT {group}, sum(ss_ext_sales_price) AS sales
            FROM date_dim, store_sales, item WHERE d_date_sk = ss_sold_date_sk AND ss_item_sk = i_item_sk
            AND i_manager_id = {manager} AND d_moy = {month} AND d_year = {year}
            GROUP BY {group} ORDER BY sales DESC, {group} LIMIT 100"""

    return text


def _managers() -> Iterable[tuple[int, int, int]]:
    return itertools.product(range(1, 101), (11, 12), SOLD)


TPCDS = (
    Template("DS3", _brands, lambda: itertools.product((11, 12), range(1, 1001))),
    Template("DS7", _demographics, lambda: itertools.product("MF", "MSDWU", EDUCATION, SOLD)),
    Template("DS19", _away, _managers),
    Template("DS42", _of_manager("d_year, i_category_id, i_category"), _managers),
    Template("DS52", _of_manager("d_year, i_brand_id, i_brand"), _managers),
    Template("DS55", _of_manager("i_brand_id, i_brand"), _managers),
)
TPCDS_KEYS = {
    "store_sales": ["ss_item_sk", "ss_ticket_number"],
    "date_dim": ["d_date_sk"],
    "item": ["i_item_sk"],
    "customer": ["c_customer_sk"],
    "customer_address": ["ca_address_sk"],
    "customer_demographics": ["cd_demo_sk"],
    "promotion": ["p_promo_sk"],
    "store": ["s_store_sk"],
}
