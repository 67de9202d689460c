"""The table, the query templates, the hand-picked views and the logs of the Napa protocols (NA-E1)."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY = ("day", "customer", "country", "device", "campaign", "page")
DDL = (
    "day date, customer int, country string, device string, campaign int, page int, "
    "clicks bigint, views bigint, cost decimal(12,2)"
)
_COUNTRIES = [f"c{i:02d}" for i in range(40)]
_DEVICES = ["phone", "tablet", "desktop", "tv"]
_START = date(2026, 1, 1)
_DAYS = 90
_CHUNK_ROWS = 5_000_000

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
    "SELECT month(day) AS m, country, sum(clicks) AS clicks FROM hits GROUP BY month(day), country",
    "SELECT day, campaign, avg(cost) AS cost FROM hits WHERE campaign = {campaign} GROUP BY day, campaign",
    "SELECT device, country, max(cost) AS cost FROM hits GROUP BY device, country",
    "SELECT page, device, sum(clicks) AS clicks FROM hits WHERE page = {page} GROUP BY page, device",
    "SELECT customer, country, sum(cost) AS cost FROM hits WHERE customer = {customer} GROUP BY customer, country",
    "SELECT day, sum(clicks) AS clicks, sum(views) AS views, count(*) AS n FROM hits "
    "WHERE day BETWEEN DATE '{day}' AND DATE '2026-03-31' GROUP BY day",
    "SELECT campaign, device, sum(cost) AS cost, count(*) AS n FROM hits WHERE campaign IN ({campaign}, 7, 9) "
    "GROUP BY campaign, device",
    "SELECT country, sum(cost) AS cost, count(*) AS n FROM hits GROUP BY country HAVING count(*) > 10 "
    "ORDER BY cost DESC, country",
)
"""Twenty dashboard queries; NA-E1 uses the first twelve."""

HAND_PICKED = {
    "by_place": "SELECT day, country, device, sum(clicks) AS clicks, sum(views) AS views, sum(cost) AS cost, "
    "max(cost) AS most, count(*) AS n FROM hits GROUP BY day, country, device",
    "by_campaign_place": "SELECT campaign, country, device, sum(clicks) AS clicks, sum(cost) AS cost, count(*) AS n "
    "FROM hits GROUP BY campaign, country, device",
    "by_customer_day": "SELECT customer, day, sum(clicks) AS clicks, sum(cost) AS cost FROM hits "
    "GROUP BY customer, day",
    "by_customer_country": "SELECT customer, country, sum(cost) AS cost FROM hits GROUP BY customer, country",
    "by_customer": "SELECT customer, sum(clicks) AS clicks FROM hits GROUP BY customer",
    "by_page": "SELECT page, device, sum(clicks) AS clicks, sum(views) AS views FROM hits GROUP BY page, device",
    "by_campaign_day": "SELECT campaign, day, avg(cost) AS cost FROM hits GROUP BY campaign, day",
    "by_country": "SELECT country, sum(clicks) AS clicks, sum(cost) AS cost, count(*) AS n FROM hits GROUP BY country",
}
"""Eight views that cover all twenty templates, as an experienced person would choose them."""


def hits(rows: int, seed: int) -> pa.Table:
    """Facts with skewed customers, countries and pages."""
    rng = np.random.default_rng(seed)
    start = np.datetime64(_START, "D").astype(int)
    cents = rng.integers(0, 100_000, rows)
    # A decimal(12,2) is its number of hundredths in 128 bits: low word, then high word.
    words = np.zeros((rows, 2), np.int64)
    words[:, 0] = cents
    cost = pa.Array.from_buffers(pa.decimal128(12, 2), rows, [None, pa.py_buffer(words)])
    return pa.table(
        {
            "day": pa.array((start + rng.integers(0, _DAYS, rows)).astype(np.int32)).cast(pa.date32()),
            "customer": pa.array(np.minimum(rng.zipf(1.3, rows), 5_000).astype(np.int32)),
            "country": pa.array(_COUNTRIES).take(pa.array(np.minimum(rng.zipf(1.5, rows) - 1, 39))),
            "device": pa.array(_DEVICES).take(pa.array(rng.integers(0, 4, rows))),
            "campaign": pa.array(rng.integers(0, 200, rows).astype(np.int32)),
            "page": pa.array(np.minimum(rng.zipf(1.2, rows), 2_000).astype(np.int32)),
            "clicks": pa.array(rng.integers(0, 20, rows)),
            "views": pa.array(rng.integers(0, 200, rows)),
            "cost": cost,
        }
    )


def write_hits(folder: Path, rows: int) -> list[str]:
    """The same in files of a few million rows, so that no more is in memory at once."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, start in enumerate(range(0, rows, _CHUNK_ROWS)):
        path = folder / f"hits-{number}.parquet"
        pq.write_table(hits(min(_CHUNK_ROWS, rows - start), 1_000 + number), path)
        paths.append(str(path))
    return paths


def log_of(queries: int, seed: int, templates: int, *, even: bool = False) -> list[str]:
    """Queries from the first templates, whose popularity is Zipf's, or the same for all."""
    rng = np.random.default_rng(seed)
    weights = np.ones(templates) if even else 1 / np.arange(1, templates + 1)
    chosen = np.arange(queries) % templates if even else rng.choice(templates, queries, p=weights / weights.sum())
    return [
        TEMPLATES[i].format(
            day=_START + timedelta(days=int(rng.integers(0, _DAYS))),
            country=_COUNTRIES[int(min(rng.zipf(1.5) - 1, 39))],
            campaign=int(rng.integers(1, 200)),
            customer=int(min(rng.zipf(1.3), 5_000)),
            page=int(min(rng.zipf(1.2), 2_000)),
        )
        for i in chosen
    ]
