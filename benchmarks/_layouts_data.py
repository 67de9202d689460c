"""The two tables of the layout benchmark, with a measure, dates, categories and text on both; the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._data import osm_like, tpch
from parquetry.layouts.pricing.priced_sample import SampledTable
from parquetry.model.delta import Delta, StoredFile
from parquetry.model.schema import TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import TableState

FULL_ROWS = 6_000_000  # sizes of blocks and row groups are those of a table this large, scaled with the rows
_KINDS = ("house", "tree", "bench", "shop", "cafe", "school", "bus_stop", "hydrant", "parking", "crossing", "gate",
          "peak", "spring", "statue", "well", "shelter", "mast", "windmill", "lighthouse", "ferry")  # fmt: skip
_WORDS = ("old", "new", "north", "south", "river", "hill", "market", "church", "castle", "garden", "bridge", "mill",
          "lake", "forest", "station", "harbour")  # fmt: skip
_LINEITEM = ("l_orderkey", "l_linenumber", "l_partkey", "l_suppkey", "l_quantity", "l_extendedprice", "l_discount",
             "l_shipdate", "l_commitdate", "l_receiptdate", "l_returnflag", "l_linestatus", "l_shipmode",
             "l_shipinstruct", "l_comment")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table in memory with its definition; ``block_rows`` makes 512 blocks whatever its size."""

    name: str
    table: pa.Table
    key: tuple[str, ...]

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def scale(self) -> float:
        return self.rows / FULL_ROWS

    @property
    def block_rows(self) -> int:
        return max(16, self.rows // 512)

    @property
    def settings(self) -> Settings:
        usual = Settings()
        return Settings(
            row_group_rows=max(64, round(usual.row_group_rows * self.scale)),
            block_group_rows=max(8, round(usual.block_group_rows * self.scale)),
        )

    @property
    def schema(self) -> TableSchema:
        return TableSchema.from_arrow(self.table.schema, self.key, "append", None, None)

    def state(self) -> TableState:
        """What a catalog would say of the table, in key order and one delta."""
        nowhere = StoredFile("", 0, "")
        delta = Delta("all", 1, 1, 1, 0, self.rows, self.table.nbytes, 1, 0, nowhere, ())
        return TableState(1, self.name, self.schema, 1, (delta,), 1, self.settings)

    def sampled(self, share: float = 1.0, seed: int = 0) -> SampledTable:
        table = self.table
        if share < 1:
            table = table.filter(pa.array(np.random.default_rng(seed).random(self.rows) < share))
        return SampledTable(table, self.schema, self.settings, self.rows)


def lineitem(rows: int) -> Dataset:
    """Every n-th order line of TPC-H scale 1."""
    table = pq.read_table(tpch("lineitem"), columns=list(_LINEITEM))
    plain = [pa.field(f.name, pa.string() if pa.types.is_string_view(f.type) else f.type) for f in table.schema]
    table = table.cast(pa.schema(plain))  # views cannot be taken from
    step = max(1, table.num_rows // rows)
    return Dataset("lineitem", table.take(pa.array(np.arange(0, table.num_rows, step))), ("l_orderkey", "l_linenumber"))


def osm(rows: int, seed: int = 0) -> Dataset:
    """Skewed points, each with a day, a kind that some places have more of than others, and a name of words."""
    points = osm_like()
    step = max(1, points.num_rows // rows)
    points = points.take(pa.array(np.arange(0, points.num_rows, step)))
    count = points.num_rows
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, len(_KINDS) + 1)
    kind = rng.choice(len(_KINDS), count, p=chance / chance.sum())
    local = (np.floor(points["latitude"].to_numpy() / 5) + np.floor(points["longitude"].to_numpy() / 5)) % len(_KINDS)
    kind = np.where(rng.random(count) < 0.3, local.astype(np.int64), kind)
    often = 1 / np.arange(1, len(_WORDS) + 1)
    words = np.array(_WORDS)[rng.choice(len(_WORDS), (2, count), p=often / often.sum())]
    names = np.char.add(np.char.add(words[0], " "), words[1])
    table = pa.table(
        {
            "id": pa.array(np.arange(count), pa.int64()),
            **{c: points[c] for c in ("latitude", "longitude")},
            "day": pa.array((12_000 + rng.integers(0, 3_000, count)).astype(np.int32)).cast(pa.date32()),
            "kind": pa.array(np.array(_KINDS)[kind]),
            "name": pa.array(names),
            "version": pa.array(rng.geometric(0.3, count), pa.int32()),
        }
    )
    return Dataset("osm", table, ("id",))
