"""Drivers for the cluster tests: users' code as it is, told only by PARQUETRY_MASTER where to run.

``python -m tests.faults.cluster_driver FOLDER`` runs the pipeline and prints what it saw as one JSON line, and then
ingests so slowly that a worker can be killed while tasks write, and prints a second one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import parquetry
from parquetry.warehouse import Warehouse
from tests.storage.store_doubles import SlowStore

ROWS, BATCHES = 4_000, 3
SLOW_ROWS, SLOW_TASKS = 16_000, 16
# What an administrator sets where lost machines should be noticed in seconds rather than minutes.
SHORT_TIMEOUTS = {
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.rpc.askTimeout": "30s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
}


def batch(number: int) -> pa.Table:
    keys = [number * ROWS // 2 + i for i in range(ROWS)]
    return pa.table({"k": pa.array(keys, pa.int32()), "s": [f"{number}/{k}" for k in keys], "v": pa.array(keys)})


def pipeline(folder: str) -> None:
    wh = _open(folder)
    small = {"max_query_deltas": 2, "compaction_width": 2, "row_group_rows": 512, "in_process_bytes": 0}
    wh.create_table("a", "k int, s string, v bigint", key=["k"], settings=small)
    wh.create_table("u", "k int, s string, v bigint", key=["k"], model="upsert", settings=small)
    for number in range(BATCHES):
        for table in ("a", "u"):
            wh.ingest(table, batch(number), label=f"{number}", tasks=4)
    stages = [type(stage).__name__ for stage in wh.maintain()]
    query = "SELECT count(*) AS n, count(DISTINCT k) AS d, sum(v) AS v, max(s) AS s FROM {}"
    answers = {
        f"{table} {executor}": wh.sql(query.format(table), executor=executor).rows()
        for table in ("a", "u")
        for executor in ("local", "spark")
    }
    joined = wh.sql("SELECT count(*) AS n FROM a JOIN u USING (k)").rows()
    wh.vacuum(grace_s=0)
    _tell(wh, stages=stages, answers=answers, joined=joined)
    wh.close()


def ingest(folder: str) -> None:
    wh = _open(folder)
    wh.create_table("u", "k int, v bigint", key=["k"], model="upsert", settings={"row_group_rows": 512})
    # Half a second for each of the sixteen files: on two cores there is time to lose one of them.
    wh.store = SlowStore(wh.store.root, 0.5)

    def read_slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for b in batches:
            time.sleep(0.1)
            yield b

    source = wh.spark.range(0, SLOW_ROWS, 1, SLOW_TASKS).selectExpr("CAST(id % 12000 AS INT) AS k", "id AS v")
    done = wh.ingest("u", source.mapInArrow(read_slowly, "k int, v bigint"), label="slow", tasks=SLOW_TASKS)
    wh.maintain()
    answers = wh.sql("SELECT count(*) AS n, count(DISTINCT k) AS d, sum(v) AS v FROM u", executor="local").rows()
    wh.vacuum(grace_s=0)
    _tell(wh, answers=answers, rows=done.rows)
    wh.close()
    wh.spark.stop()


def _open(folder: str) -> Warehouse:
    from parquetry.spark import session

    return parquetry.connect(folder, spark=session(options=SHORT_TIMEOUTS))


def _tell(wh: Warehouse, **seen: Any) -> None:
    deltas = [d for t in wh.catalog.state().tables.values() for d in t.deltas]
    published = {f.path for d in deltas for f in (*d.files, d.index)}
    store = wh.spark.sparkContext._jsc.sc().statusStore()
    executors = store.executorList(False)
    tasks = {executors.apply(i).id(): executors.apply(i).completedTasks() for i in range(executors.size())}
    seen |= {
        "tasks": {name: int(n) for name, n in tasks.items() if name != "driver"},
        "problems": [p.what for p in wh.verify()],
        "orphans": sorted({path for path, *_ in wh.store.list()} - published),
        "master": wh.spark.sparkContext.master,
    }
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    pipeline(f"{sys.argv[1]}/pipeline")
    ingest(f"{sys.argv[1]}/ingest")
