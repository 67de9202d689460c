"""Fixtures: one warehouse fed from raw files, a compacted copy of it, and plain Spark over the same files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import parquetry
from parquetry.warehouse import Warehouse
from tests.differential.raw_files import TPCH_KEYS, ZOO, ZOO_KEY, write_raw_files
from tests.differential.reference import reference_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYED: dict[str, dict[str, Any]] = {
    "latest": {"schema": "id int, who string, v bigint, note string", "key": ["id", "who"], "model": "upsert"},
    "sequenced": {
        "schema": "id bigint, seq int, v bigint, w double",
        "key": ["id"],
        "model": "upsert",
        "sequence": "seq",
    },
    "totals": {
        "schema": "day date, shop string, amount bigint, cents decimal(12,2), lowest smallint, highest double, "
        "n bigint, note string",
        "key": ["day", "shop"],
        "model": "aggregate",
        "values": {
            "amount": "sum",
            "cents": "sum",
            "lowest": "min",
            "highest": "max",
            "n": "count",
            "note": "replace",
        },
    },
    "grown": {"schema": "id int, v int", "key": ["id"]},
}
# Many small row groups and files, and no compaction by itself.
_SMALL: dict[str, Any] = {"row_group_rows": 5, "file_bytes": 4_000, "leaf_capacity": 2, "compaction_width": 100}
_LARGER = {**_SMALL, "row_group_rows": 1_000, "file_bytes": 100_000}


@pytest.fixture(scope="session")
def raw_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    return write_raw_files(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="session")
def reference(spark: SparkSession, raw_files: dict[str, list[Path]]) -> SparkSession:
    return reference_session(spark, raw_files)


@pytest.fixture(scope="session")
def fed_folder(spark: SparkSession, raw_files: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed warehouse with every batch of the raw files as a delta of its own."""
    folder = tmp_path_factory.mktemp("fed") / "warehouse"
    with parquetry.connect(folder, spark=spark) as wh:
        for name, key in TPCH_KEYS.items():
            wh.create_table(name, pq.read_schema(raw_files[name][0]), key=key, settings=_LARGER)
        wh.create_table("zoo", ZOO, key=ZOO_KEY, settings=_SMALL)
        for name, definition in KEYED.items():
            wh.create_table(name, **definition, settings=_SMALL)
        for name, paths in raw_files.items():
            for i, path in enumerate(paths):
                if name == "grown" and "later" in pq.read_schema(path).names:
                    wh.add_column(name, "later", "string")
                wh.ingest(name, path, label=str(i), tasks=2 if name in ("lineitem", "totals") else 1)
        wh.maintain()
        assert {t["table"]: t["deltas"] for t in wh.tables()} == {n: len(p) for n, p in raw_files.items()}
        assert wh.freshness()["qt"] == wh.freshness()["clock"]
    return folder


@pytest.fixture(scope="session")
def uncompacted(spark: SparkSession, fed_folder: Path) -> Iterator[Warehouse]:
    with parquetry.connect(fed_folder, spark=spark) as wh:
        yield wh


@pytest.fixture(scope="session")
def compacted(
    spark: SparkSession, fed_folder: Path, uncompacted: Warehouse, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Warehouse]:
    """A copy with all deltas of every table merged into one."""
    folder = tmp_path_factory.mktemp("compacted") / "warehouse"
    shutil.copytree(fed_folder, folder)
    with parquetry.connect(folder, spark=spark) as wh:
        for t in wh.tables():
            wh.change_settings(t["table"], compaction_width=2)
        wh.maintain()
        assert {t["deltas"] for t in wh.tables()} == {1}
        wh.vacuum(grace_s=0)
        yield wh
