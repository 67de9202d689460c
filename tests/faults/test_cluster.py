"""The pipeline on a real standalone cluster with two worker processes, unchanged, and with one of them killed."""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cluster import Cluster, running_cluster
from tests.faults.cluster_driver import BATCHES, ROWS, SLOW_ROWS, batch

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow]
DRIVER_S = 240


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("driven")


@pytest.fixture(scope="module")
def driver(cluster: Cluster, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One driver for both tests, in their order."""
    started = cluster.start(str(folder))
    yield started
    started.kill()


def told(cluster: Cluster, driver: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that the driver prints."""
    assert driver.stdout is not None
    if select.select([driver.stdout], [], [], DRIVER_S)[0] and (line := driver.stdout.readline()):
        seen: dict[str, Any] = json.loads(line)
        return seen
    raise AssertionError(cluster.said())


def test_the_pipeline_runs_unchanged_on_two_executors(cluster: Cluster, driver: subprocess.Popen[str]) -> None:
    seen = told(cluster, driver)
    assert seen["master"] == cluster.master
    assert len(seen["tasks"]) == 2
    assert all(n > 0 for n in seen["tasks"].values()), f"both executors worked: {seen['tasks']}"
    assert "Compact" in seen["stages"]
    assert "Advance" in seen["stages"]
    rows = [row for n in range(BATCHES) for row in batch(n).to_pylist()]
    latest = {row["k"]: row for row in rows}
    for executor in ("local", "spark"):
        for table, held in (("a", rows), ("u", list(latest.values()))):
            (answer,) = seen["answers"][f"{table} {executor}"]
            assert answer == {
                "n": len(held),
                "d": len(latest),
                "v": sum(r["v"] for r in held),
                "s": max(r["s"] for r in held),
            }
    assert seen["joined"] == [{"n": BATCHES * ROWS}]
    assert seen["problems"] == []
    assert seen["orphans"] == []


def test_an_ingest_survives_the_kill_of_a_worker(cluster: Cluster, driver: subprocess.Popen[str], folder: Path) -> None:
    """Runs last: the cluster has one worker less afterwards."""
    while len(list(folder.glob("ingest/data/*/*/part-*.parquet"))) < 3:
        assert driver.poll() is None, cluster.said()
        time.sleep(0.02)
    assert cluster.executors(0), "the worker to be killed has an executor"
    cluster.kill_worker(0)
    assert driver.poll() is None, "the ingest was still running"
    seen = told(cluster, driver)
    assert driver.wait(DRIVER_S) == 0
    values = {i % 12000: i for i in range(SLOW_ROWS)}
    assert seen["rows"] == SLOW_ROWS
    assert seen["answers"] == [{"n": len(values), "d": len(values), "v": sum(values.values())}]
    assert len(seen["tasks"]) >= 2, f"the lost executor is remembered: {seen['tasks']}"
    assert seen["problems"] == []
    assert seen["orphans"] == []
