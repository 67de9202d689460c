"""The process that the crash tests kill: one operation on one warehouse, on the Spark of the test that started it.

Run as ``python -m tests.faults.driver FOLDER OPERATION TABLE``. With PYSPARK_GATEWAY_PORT in the environment it uses
that JVM, which spares every case the start of its own; without, Spark starts as it does for users.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import parquetry
from parquetry import RelayoutOptions
from parquetry.failpoints import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
LABEL = "the batch that crashes"
LAYOUT = RelayoutOptions(columns=["k"], block_rows=100)


def batch(table: str, number: int, rows: int = 400) -> pa.Table:
    """Batches overlap in half of their keys; values tell which batch they are from."""
    keys = [(number * rows // 2 + i * 7) % 1500 for i in range(rows)] if table == "appended" else None
    keys = keys or [number * rows // 2 + i for i in range(rows)]
    return pa.table(
        {
            "k": pa.array(keys, pa.int32()),
            "s": [f"{number}/{k} ü" if k % 5 else None for k in keys],
            "v": pa.array([number * 1_000_000 + k for k in keys], pa.int64()),
        }
    )


def die(folder: Path, operation: str, table: str, failpoint: str, spark: SparkSession | None) -> None:
    """Runs the operation in a process of its own and sees it killed at the failpoint."""
    environment = {**os.environ, VARIABLE: failpoint, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    environment.pop("SPARK_LOCAL_IP", None)
    if spark is not None:
        gateway = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
        environment |= {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.auth_token}
        environment["PYSPARK_PYTHON"] = sys.executable
    command = [sys.executable, "-m", "tests.faults.driver", str(folder), operation, table]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert ran.returncode == -signal.SIGKILL, f"it was not killed at '{failpoint}': {ran.stdout}{ran.stderr}"


def _borrowed_session() -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    jvm = gateway.jvm
    running = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(loadDefaults=False, _jvm=jvm).setMaster("local").setAppName("borrowed")
    return SparkSession(SparkContext(gateway=gateway, jsc=running, conf=conf))


def _run(folder: str, operation: str, table: str) -> None:
    spark = _borrowed_session() if "PYSPARK_GATEWAY_PORT" in os.environ and operation != "vacuum" else None
    wh = parquetry.connect(folder, create=False, spark=spark)
    if operation == "ingest":
        wh.ingest(table, batch(table, 9), label=LABEL)
    elif operation == "maintain":
        wh.maintain()
    elif operation == "relayout":
        wh.relayout(table, "kdtree", options=LAYOUT)
    else:
        wh.vacuum(grace_s=0)


if __name__ == "__main__":
    _run(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # the borrowed JVM is not ours to stop
