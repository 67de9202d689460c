"""A real standalone Spark cluster on this machine: one master and two workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from parquetry.java import find_java, java_home

ROOT = Path(__file__).parents[2]
START_S = 60


@dataclass
class Cluster:
    master: str
    workers: list[psutil.Process]
    environment: dict[str, str]
    logs: Path

    def executors(self, worker: int) -> list[psutil.Process]:
        """The executor processes that a worker has started."""
        found = []
        for process in self.workers[worker].children(recursive=True):
            try:
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                    found.append(process)
            except psutil.NoSuchProcess:  # or a zombie: an executor that has ended
                continue
        return found

    def kill_worker(self, worker: int) -> int:
        """Kills a worker and everything below it at once, as a machine that loses its power does."""
        processes = [*self.workers[worker].children(recursive=True), self.workers[worker]]
        for process in processes:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        return len(processes)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts ``tests.faults.cluster_driver`` as a driver on this cluster."""
        command = [sys.executable, "-m", "tests.faults.cluster_driver", *arguments]
        environment = {**self.environment, "PARQUETRY_MASTER": self.master}
        with (self.logs / "driver.log").open("w") as log:
            return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)

    def said(self) -> str:
        """The end of what the driver wrote to its standard error."""
        return (self.logs / "driver.log").read_text()[-4000:]


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Two workers with one core each; every process that was started is stopped at the end, by its id."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java_home(find_java())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    for foreign in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(foreign, None)
    port, page = _free_port(), _free_port()
    master = f"spark://127.0.0.1:{port}"
    started: list[psutil.Process] = []

    def launch(name: str, *arguments: str) -> psutil.Process:
        with (folder / f"{name}.log").open("w") as log:
            command = [str(home / "bin" / "spark-class"), *arguments]
            process = psutil.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        started.append(process)
        return process

    try:
        at = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        launch("master", "org.apache.spark.deploy.master.Master", *at)
        _wait_for(folder / "master.log", "Starting Spark master", "I have been elected leader")
        workers = []
        for i in range(2):
            here = ("--host", "127.0.0.1", "--webui-port", str(_free_port()), "--cores", "1", "--memory", "1g")
            workers.append(launch(f"worker-{i}", "org.apache.spark.deploy.worker.Worker", *here, master))
        for i in range(2):
            _wait_for(folder / f"worker-{i}.log", "Successfully registered with master")
        yield Cluster(master, workers, environment, folder)
    finally:
        for process in reversed(started):
            _stop(process)


def _stop(process: psutil.Process) -> None:
    try:
        everything = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for p in everything:
        try:
            p.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(everything, timeout=20)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _wait_for(log: Path, *signs: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        text = log.read_text() if log.exists() else ""
        if all(sign in text for sign in signs):
            return
        time.sleep(0.1)
    raise AssertionError(f"{log.name}: no {signs} within {START_S} s:\n{text[-2000:]}")
