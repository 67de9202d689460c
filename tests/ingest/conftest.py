from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "k int, s string, d decimal(6,2), x double, day date, at timestamp, local timestamp_ntz, b boolean, n bigint"


@pytest.fixture(scope="module")
def wh(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """One warehouse for all tests of a module, with a batch in its table ``t``."""
    with parquetry.connect(tmp_path_factory.mktemp("ingest") / "wh", spark=spark) as made:
        made.create_table("t", COLUMNS, key=["k"])
        made.create_table("strict", "k smallint, f float, must bigint not null, tags array<string>", key=["k"])
        made.ingest("t", pa.table({"k": pa.array([1, 2], pa.int32()), "s": ["one", "two"]}), label="first")
        made.maintain()
        yield made
