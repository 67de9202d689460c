"""The seven workloads of the layout benchmark as SQL, on both tables.

A workload is a process that asks ``count`` queries per epoch. The log is the first two epochs: layouts learn from them,
and the advisor holds the second one back. Costs are measured on the third, which nobody has seen. So each cell asks how
well a layout serves queries that follow from the log as the log's own later half follows from its earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

EPOCHS = 3
_DAY_ZERO = date(1970, 1, 1)
Random = np.random.Generator


@dataclass(frozen=True)
class Ask:
    """How boxes become SQL on one table: numeric columns with their domain and step, and the measure that is read."""

    table: str
    columns: Mapping[str, tuple[float, float, float]]  # low, high, step; a step of 0 is a real number
    days: str
    measure: str

    def where(self, box: Sequence[tuple[float, float]]) -> str:
        parts = []
        for (column, (low, high, step)), (a, b) in zip(self.columns.items(), box, strict=False):
            lo, hi = (low + s * (high - low) for s in (a, b))
            if column == self.days:
                parts.append(f"{column} BETWEEN DATE '{_day(lo)}' AND DATE '{_day(hi)}'")
            elif step:
                parts.append(f"{column} BETWEEN {round(lo / step) * step:g} AND {round(hi / step) * step:g}")
            else:
                parts.append(f"{column} BETWEEN {lo:.6f} AND {hi:.6f}")
        return " AND ".join(parts)

    def sql(self, condition: str) -> str:
        return f"SELECT {self.measure} FROM {self.table} WHERE {condition}"


LINEITEM = Ask(
    "lineitem",
    {"l_partkey": (1, 200_000, 1), "l_shipdate": (8036, 10561, 1), "l_suppkey": (1, 10_000, 1)},
    "l_shipdate",
    "sum(l_extendedprice * (1 - l_discount)) AS revenue",
)
OSM = Ask(
    "osm",
    {"latitude": (-40, 65, 0), "longitude": (-125, 150, 0), "day": (12_000, 15_000, 1)},
    "day",
    "count(*) AS n, sum(version) AS v",
)
ASKS = {"lineitem": LINEITEM, "osm": OSM}


def _day(number: float) -> date:
    return _DAY_ZERO + timedelta(days=round(number))


def _boxes(rng: Random, count: int, dims: int, width: float = 0.1) -> np.ndarray:
    """Boxes of up to ``width`` of each domain, as shares of it (PW-25)."""
    middle, wide = rng.uniform(0, 1, (count, dims)), rng.uniform(width / 10, width, (count, dims))
    return np.clip(np.stack([middle - wide / 2, middle + wide / 2], axis=2), 0, 1)


def _moved(rng: Random, boxes: np.ndarray, delta: float) -> np.ndarray:
    moved = np.sort(boxes + rng.uniform(-delta, delta, boxes.shape), axis=2)
    return np.clip(moved, 0, 1)


def _same(ask: Ask, rng: Random, count: int) -> list[list[str]]:
    asked = [ask.sql(ask.where(b)) for b in _boxes(rng, count, len(ask.columns)).tolist()]
    return [[asked[i] for i in rng.permutation(count)] for _ in range(EPOCHS)]


def _drift(ask: Ask, rng: Random, count: int, strangers: float = 0.0) -> list[list[str]]:
    base = _boxes(rng, count, len(ask.columns))
    epochs = []
    for _ in range(EPOCHS):
        boxes = _moved(rng, base, 0.01)
        strange = rng.permutation(count)[: round(strangers * count)]
        boxes[strange] = _boxes(rng, len(strange), len(ask.columns))
        epochs.append([ask.sql(ask.where(b)) for b in boxes.tolist()])
    return epochs


def _templates(ask: Ask, rng: Random, count: int) -> list[list[str]]:
    make = _TEMPLATES[ask.table]
    return [[ask.sql(make[i % len(make)](rng)) for i in range(count)] for _ in range(EPOCHS)]


def _categories(ask: Ask, rng: Random, count: int) -> list[list[str]]:
    """Conditions on categories, now and then with some weeks."""
    epochs = []
    for _ in range(EPOCHS):
        queries = []
        for _ in range(count):
            picked = rng.permutation(len(_CATEGORIES[ask.table]))[: rng.integers(1, 3)]
            parts = []
            for i in picked.tolist():
                column, values = _CATEGORIES[ask.table][i]
                some = rng.choice(len(values), rng.integers(1, 3), replace=False)
                parts.append(f"{column} IN ({', '.join(repr(values[v]) for v in some.tolist())})")
            if rng.random() < 0.5:
                parts.append(_some_weeks(ask, rng))
            queries.append(ask.sql(" AND ".join(parts)))
        epochs.append(queries)
    return epochs


def _like(ask: Ask, rng: Random, count: int) -> list[list[str]]:
    """Words in a text, some much more often than others, two thirds of them alone and one third with some weeks."""
    column, words = _TEXTS[ask.table]
    often = 1 / np.arange(1, len(words) + 1)
    epochs = []
    for _ in range(EPOCHS):
        queries = []
        for word in rng.choice(words, count, p=often / often.sum()).tolist():
            weeks = f" AND {_some_weeks(ask, rng)}" if rng.random() < 1 / 3 else ""
            queries.append(ask.sql(f"{column} LIKE '%{word}%'{weeks}"))
        epochs.append(queries)
    return epochs


def _some_weeks(ask: Ask, rng: Random) -> str:
    low, high, _ = ask.columns[ask.days]
    start = rng.uniform(low, high - 60)
    return f"{ask.days} >= DATE '{_day(start)}' AND {ask.days} < DATE '{_day(start + rng.integers(14, 60))}'"


def _year(rng: Random) -> int:
    return int(rng.integers(1993, 1998))


def _month(rng: Random, months: int) -> tuple[date, date]:
    start = date(_year(rng), int(rng.integers(1, 13)), 1)
    later = start.month - 1 + months
    return start, date(start.year + later // 12, later % 12 + 1, 1)


def _q6(rng: Random) -> str:
    year, discount = _year(rng), int(rng.integers(2, 10)) / 100
    return (
        f"l_shipdate >= DATE '{year}-01-01' AND l_shipdate < DATE '{year + 1}-01-01' AND l_discount BETWEEN "
        f"{discount - 0.01:.2f} AND {discount + 0.01:.2f} AND l_quantity < {rng.integers(24, 26)}"
    )


def _q12(rng: Random) -> str:
    a, b = rng.choice(["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"], 2, replace=False).tolist()
    year = _year(rng)
    return (
        f"l_shipmode IN ('{a}', '{b}') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate "
        f"AND l_receiptdate >= DATE '{year}-01-01' AND l_receiptdate < DATE '{year + 1}-01-01'"
    )


def _q14(rng: Random) -> str:
    start, end = _month(rng, 1)
    return f"l_shipdate >= DATE '{start}' AND l_shipdate < DATE '{end}'"


def _q15(rng: Random) -> str:
    start, end = _month(rng, 3)
    return f"l_shipdate >= DATE '{start}' AND l_shipdate < DATE '{end}'"


def _q19(rng: Random) -> str:
    quantity = int(rng.integers(1, 11))
    return (
        f"l_quantity >= {quantity} AND l_quantity <= {quantity + 10} AND l_shipmode IN ('AIR', 'REG AIR') "
        "AND l_shipinstruct = 'DELIVER IN PERSON'"
    )


def _q10(rng: Random) -> str:
    start, end = _month(rng, 3)
    return f"l_returnflag = 'R' AND l_shipdate >= DATE '{start}' AND l_shipdate < DATE '{end}'"


def _town(rng: Random) -> str:
    north, east = _TOWNS[int(rng.integers(0, len(_TOWNS)))]
    return (
        f"latitude BETWEEN {north - 0.6:.2f} AND {north + 0.6:.2f} "
        f"AND longitude BETWEEN {east - 0.6:.2f} AND {east + 0.6:.2f}"
    )


def _town_of_kind(rng: Random) -> str:
    return f"{_town(rng)} AND kind = '{rng.choice(['shop', 'cafe', 'school', 'bus_stop'])}'"


def _last_month(rng: Random) -> str:
    start = int(rng.integers(12_000, 14_970))
    return f"day >= DATE '{_day(start)}' AND day < DATE '{_day(start + 30)}'"


_TOWNS = (
    (51.5, -0.1),
    (48.9, 2.4),
    (52.5, 13.4),
    (40.4, -3.7),
    (41.9, 12.5),
    (35.7, 139.7),
    (28.6, 77.2),
    (40.7, -74.0),
)
_TEMPLATES: dict[str, tuple[Callable[[Random], str], ...]] = {
    "lineitem": (_q6, _q12, _q14, _q15, _q19, _q10),
    "osm": (_town, _town_of_kind, _last_month),
}
_CATEGORIES: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "lineitem": (
        ("l_shipmode", ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")),
        ("l_returnflag", ("R", "A", "N")),
        ("l_shipinstruct", ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")),
    ),
    "osm": (("kind", ("house", "tree", "bench", "shop", "cafe", "school", "bus_stop", "hydrant", "parking", "peak")),),
}
_TEXTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lineitem": ("l_comment", ("platelets", "warthogs", "sentiments", "asymptotes", "realms", "pearls", "hockey")),
    "osm": ("name", ("harbour", "station", "forest", "lake", "mill", "bridge", "castle")),
}

WORKLOADS: dict[str, Callable[[Ask, Random, int], list[list[str]]]] = {
    "same as the log": _same,
    "drift 1 %": _drift,
    "half random": lambda ask, rng, count: _drift(ask, rng, count, strangers=0.5),
    "all random": lambda ask, rng, count: _drift(ask, rng, count, strangers=1.0),
    "templates": _templates,
    "categories": _categories,
    "LIKE": _like,
}


def epochs(table: str, workload: str, count: int, seed: int) -> list[list[str]]:
    """The queries of one cell, epoch by epoch; the same for the same seed."""
    rng = np.random.default_rng([seed, list(WORKLOADS).index(workload), list(ASKS).index(table)])
    return WORKLOADS[workload](ASKS[table], rng, count)
