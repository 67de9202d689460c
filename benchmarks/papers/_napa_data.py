"""The table, the query templates and the log of the Napa protocols (NA-E1)."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY = ("day", "customer", "country", "device", "campaign", "page")
DDL = (
    "day date, customer int, country string, device string, campaign int, page int, "
    "clicks bigint, views bigint, cost decimal(12,2)"
)
_COUNTRIES = [f"c{i:02d}" for i in range(40)]
_DEVICES = ["phone", "tablet", "desktop", "tv"]
_START = date(2026, 1, 1)
_DAYS = 90
TEMPLATES = (
    "SELECT day, sum(clicks) AS clicks, sum(cost) AS cost FROM hits WHERE day >= DATE '{day}' GROUP BY day",
    "SELECT country, sum(clicks) AS clicks FROM hits GROUP BY country",
    "SELECT country, device, sum(views) AS views FROM hits WHERE country = '{country}' GROUP BY country, device",
    "SELECT day, country, sum(cost) AS cost FROM hits WHERE country = '{country}' GROUP BY day, country",
    "SELECT device, sum(clicks) AS clicks, count(*) AS n FROM hits GROUP BY device",
    "SELECT campaign, sum(cost) AS cost FROM hits WHERE campaign < {campaign} GROUP BY campaign",
    "SELECT customer, sum(clicks) AS clicks FROM hits WHERE customer = {customer} GROUP BY customer",
    "SELECT day, device, sum(clicks) AS clicks FROM hits WHERE device = 'phone' GROUP BY day, device",
    "SELECT campaign, country, sum(cost) AS cost FROM hits WHERE campaign = {campaign} GROUP BY campaign, country",
    "SELECT customer, day, sum(cost) AS cost FROM hits WHERE customer = {customer} GROUP BY customer, day",
    "SELECT page, sum(views) AS views FROM hits WHERE page < 50 GROUP BY page",
    "SELECT country, campaign, device, sum(clicks) AS clicks FROM hits WHERE country = '{country}' "
    "GROUP BY country, campaign, device",
)


def hits(rows: int, seed: int) -> pa.Table:
    """Facts with skewed customers and pages."""
    rng = np.random.default_rng(seed)
    days = np.array([_START + timedelta(days=i) for i in range(_DAYS)])
    cents = pa.array(rng.integers(0, 100_000, rows), pa.int64())
    return pa.table(
        {
            "day": pa.array(days[rng.integers(0, _DAYS, rows)], pa.date32()),
            "customer": pa.array(np.minimum(rng.zipf(1.3, rows), 5_000), pa.int32()),
            "country": pa.array(np.array(_COUNTRIES)[np.minimum(rng.zipf(1.5, rows) - 1, 39)]),
            "device": pa.array(np.array(_DEVICES)[rng.integers(0, 4, rows)]),
            "campaign": pa.array(rng.integers(0, 200, rows), pa.int32()),
            "page": pa.array(np.minimum(rng.zipf(1.2, rows), 2_000), pa.int32()),
            "clicks": pa.array(rng.integers(0, 20, rows), pa.int64()),
            "views": pa.array(rng.integers(0, 200, rows), pa.int64()),
            "cost": pc.multiply(cents.cast(pa.decimal128(19, 0)), Decimal("0.01")).cast(pa.decimal128(12, 2)),
        }
    )


def log_of(queries: int, seed: int) -> list[str]:
    """Queries from the templates, whose popularity is Zipf's."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, len(TEMPLATES) + 1)
    chosen = rng.choice(len(TEMPLATES), queries, p=weights / weights.sum())
    return [
        TEMPLATES[i].format(
            day=_START + timedelta(days=int(rng.integers(0, _DAYS))),
            country=_COUNTRIES[int(min(rng.zipf(1.5) - 1, 39))],
            campaign=int(rng.integers(1, 200)),
            customer=int(min(rng.zipf(1.3), 5_000)),
        )
        for i in chosen
    ]
