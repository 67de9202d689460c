"""One run: its options, its folder, and the systems, each started when a workload first asks for it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import parquetry
from benchmarks.peers import _spark
from benchmarks.peers._environment import jar_settings, second_python
from benchmarks.peers._measure import Arm
from benchmarks.peers._model import System
from benchmarks.peers._remote import Process, Remote
from benchmarks.peers._systems import delta, iceberg
from benchmarks.peers._systems.duck import Duck
from benchmarks.peers._systems.ours import Ours
from benchmarks.peers._systems.plain_spark import PlainSpark
from parquetry.java import find_java, java_home
from parquetry.spark import default_settings, machine_cores, machine_memory, session

PEERS = ("spark", "delta", "iceberg", "duckdb", "clickhouse")
TITLES = {"spark": "Spark", "delta": "Delta", "iceberg": "Iceberg", "duckdb": "DuckDB", "clickhouse": "ClickHouse"}
OURS = "Parquetry"
OURS_ON_SPARK = "Parquetry on Spark"


@dataclass
class Bench:
    """``scale`` is TPC-H's; ``rounds`` are timed rounds on Spark; ``peers`` are those that take part."""

    work: Path
    scale: float
    quick: bool
    rounds: int
    peers: Sequence[str]

    def note(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def arms(self, wanted: Mapping[str, Sequence[str]]) -> list[Arm]:
        """The arms of a workload, which names each peer's ways of storing; a quick run takes the first of them."""
        found = []
        for how in wanted["parquetry"]:
            found.append(Arm(OURS, "parquetry", self.ours, how, False))
            found.append(Arm(OURS_ON_SPARK, "parquetry", self.ours_on_spark, how, True, stores=False))
        for peer in PEERS:
            ways = wanted.get(peer, ()) if peer in self.peers else ()
            for how in ways[:1] if self.quick else ways:
                title = f"{TITLES[peer]}, {how}"
                if peer == "spark":
                    here, there = self._spark.version, self.second_spark.versions()["spark"]
                    found.append(Arm(f"Spark {here}, {how}", peer, self.first_spark, how, True))
                    found.append(Arm(f"Spark {there}, {how}", peer, self.second_spark, how, True))
                else:
                    found.append(Arm(title, peer, getattr(self, peer), how, peer in ("delta", "iceberg")))
        return found

    @cached_property
    def ours(self) -> Ours:
        return Ours(self._warehouse)

    @cached_property
    def ours_on_spark(self) -> Ours:
        return Ours(self._warehouse, "spark")

    @cached_property
    def first_spark(self) -> System:
        return PlainSpark(self._spark, self.work / "plain")

    @cached_property
    def second_spark(self) -> Remote:
        return self._remote("plain_spark", folder=str(self.work / "plain"))

    @cached_property
    def delta(self) -> System:
        return self._remote("delta")

    @cached_property
    def iceberg(self) -> System:
        return self._remote("iceberg")

    @cached_property
    def duckdb(self) -> System:
        folder = self.work / "duckdb"
        folder.mkdir()
        return Duck(folder)

    @cached_property
    def clickhouse(self) -> System:
        process = Process(second_python(self.note), {}, self.work / "clickhouse.log")
        self._opened.append(process)
        return Remote(process, "clickhouse", folder=str(self.work / "clickhouse"))

    def versions(self) -> dict[str, dict[str, str]]:
        """Of every system that was started."""
        names = {"parquetry": "ours", "spark": "first_spark"} | {p: p for p in PEERS[1:]}
        return {peer: self.__dict__[name].versions() for peer, name in names.items() if name in self.__dict__}

    def close(self) -> None:
        for process in self._opened:
            process.close()
        if "_warehouse" in self.__dict__:
            self._warehouse.close()
        if "_spark" in self.__dict__:
            self._spark.stop()

    @cached_property
    def _opened(self) -> list[Process]:
        return []

    @cached_property
    def _spark(self) -> Any:
        return session(options=_spark.COUNTED)

    @cached_property
    def _warehouse(self) -> parquetry.Warehouse:
        return parquetry.connect(self.work / "parquetry", spark=self._spark)

    @cached_property
    def _second(self) -> Process:
        python = second_python(self.note)
        environment = {"JAVA_HOME": str(java_home(find_java())), "SPARK_LOCAL_IP": "127.0.0.1"}
        process = Process(python, environment | {"PYSPARK_PYTHON": str(python)}, self.work / "spark.log")
        self._opened.append(process)
        return process

    def _remote(self, system: str, **where: str) -> Remote:
        return Remote(self._second, system, settings=self._second_settings(), **where)

    def _second_settings(self) -> dict[str, str]:
        """What Parquetry gives its own Spark, so that both are alike but for their versions, and the peers' parts."""
        master = f"local[{machine_cores()}]"
        return {
            **default_settings(master, machine_cores(), machine_memory()),
            **_spark.COUNTED,
            **jar_settings(),
            **delta.SETTINGS,
            **iceberg.catalog_settings(self.work / "iceberg"),
            "spark.master": master,
            "spark.sql.extensions": f"{delta.EXTENSION},{iceberg.EXTENSION}",
            "spark.sql.warehouse.dir": str(self.work / "delta"),
        }
