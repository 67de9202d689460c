"""Ingests small batches and runs the controller as fast as it can, beside a benchmark.

Arguments: the folder, seconds, rows of a batch, and ``nice`` or ``background``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import parquetry
from benchmarks.papers._napa_data import hits
from parquetry.maintain.pick import Refresh
from parquetry.maintain.retry import Failed
from parquetry.priority import in_background


def main() -> None:
    folder, seconds, rows, how = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if how == "background":
        in_background()
    else:
        os.nice(10)
    with parquetry.connect(folder, create=False) as wh:
        wh.ingest("hits", hits(rows, 7), tasks=1)
        next(iter(wh.maintaining()), None)
        print("warm", flush=True)
        stop, batches = threading.Event(), [0]

        def ingest() -> None:
            while not stop.is_set():
                wh.ingest("hits", hits(rows, 100 + batches[0]), tasks=1)
                batches[0] += 1

        worker = threading.Thread(target=ingest)
        worker.start()
        end, refreshed = time.monotonic() + seconds, 0
        try:
            for stage in wh.watch(stop, interval_s=0.1):
                assert not isinstance(stage, Failed), str(stage)
                refreshed += isinstance(stage, Refresh)
                if time.monotonic() >= end:
                    stop.set()
        finally:
            stop.set()
            worker.join()
        lag = wh.freshness()["lag_s"]
    print(json.dumps({"batches": batches[0], "refreshes": refreshed, "lag s": lag}))


if __name__ == "__main__":
    main()
