"""The byte order of normalized keys is the order of Spark's ORDER BY, on every awkward value (NA-39)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from parquetry.model.keys import encode_keys
from tests.differential.raw_files import ZOO, ZOO_KEY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FLAT = [f.name for f in ZOO if not pa.types.is_nested(f.type)]
_ORDERS = {name: [name] for name in _FLAT} | {"the key": list(ZOO_KEY), "all": _FLAT[::-1]}


def test_bytes_order_as_spark_orders_values(reference: SparkSession, raw_files: dict[str, list[Path]]) -> None:
    places = [
        f"dense_rank() OVER (ORDER BY {', '.join(columns)}) AS `place {name}`" for name, columns in _ORDERS.items()
    ]
    found = reference.sql(f"SELECT {', '.join(_FLAT)}, {', '.join(places)} FROM zoo").toArrow()
    for name, columns in _ORDERS.items():
        keys = encode_keys([found.column(c) for c in columns]).to_pylist()
        place = {key: i + 1 for i, key in enumerate(sorted(set(keys)))}
        assert [place[k] for k in keys] == found.column(f"place {name}").to_pylist(), name
