"""Starting Spark: its settings, quietly, on the Java that is there or on the one that came with the package."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parquetry.errors import ParquetryError
from parquetry.java import find_java, java_home
from parquetry.priority import launcher, sparks_cores
from parquetry.spark_settings import MEANING, is_dropped, is_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

MASTER = re.compile(r"local(-cluster)?(\[[\d*, ]+\])?$|spark://|yarn$|k8s://")

GIB = 1 << 30
# In local mode the driver is also the executor; a quarter leaves room for the Python workers and the page cache.
DRIVER_MEMORY_SHARE = 4
DRIVER_MEMORY_GIB = (1, 8)

_starting = threading.Lock()


def session(master: str | None = None, options: Mapping[str, str] | None = None) -> SparkSession:
    """The running Spark session exactly as it is, or else a new one on `master`.

    `master` defaults to PARQUETRY_MASTER, then to this machine's cores. `options` are Spark settings that win over
    the defaults; they count only when a session is started.
    """
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    with _starting:
        running = SparkSession.getActiveSession()
        if running is not None:
            return running
        if SparkContext._active_spark_context is not None:
            # Another thread's session: an empty builder returns it without changing a setting.
            return SparkSession.builder.getOrCreate()
        master = master or os.environ.get("PARQUETRY_MASTER") or f"local[{machine_cores()}]"
        if not MASTER.match(master):
            raise ParquetryError(
                f"unknown Spark master '{master}'; use local[N], spark://HOST:PORT, yarn or k8s://ADDRESS"
            )
        java = find_java()
        settings = default_settings(master, machine_cores(), machine_memory()) | dict(options or {})
        builder = SparkSession.builder.master(master)
        builder = builder.config("spark.sql.warehouse.dir", _scratch_folder())
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            with _environment(launch_environment(master, java_home(java, launcher()))), _signals_deferred():
                started = builder.getOrCreate()
        except Exception as error:
            raise ParquetryError(
                f"Spark did not start on master '{master}' with {java} ({_reason(error)}); "
                "check the master's address (PARQUETRY_MASTER) and the memory that is free"
            ) from error
        # PySpark prints every failed query as JSON on stderr; the caller gets the same as an exception.
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
        return started


def private_session(spark: SparkSession, trusted: bool = False) -> SparkSession:
    """A session of our own on the user's Spark: no temporary view or variable of the user's, none of the settings that
    answers depend on, and the functions that the user registered only for trusted callers."""
    from pyspark.sql import SparkSession

    theirs, ours = spark._jsparkSession, spark._jsparkSession.newSession()
    conf = ours.conf()
    for key in filter(is_dropped, _keys(conf)):
        if conf.isModifiable(key):
            conf.unset(key)
    for key in filter(is_kept, _keys(theirs.conf())):
        if conf.isModifiable(key) or key.startswith("fs."):  # Hadoop's, which Spark does not know as its own
            conf.set(key, theirs.conf().get(key))
    for key, value in MEANING.items():
        conf.set(key, value)
    # A name in quotes is no path for those who may not read files.
    conf.set("spark.sql.runSQLOnFiles", str(trusted).lower())
    if trusted:
        _copy_functions(theirs.sessionState(), ours.sessionState())
    return SparkSession(spark.sparkContext, ours)


def _keys(conf: Any) -> list[str]:
    """The keys that are set, in one call of the JVM."""
    return [k for k in str(conf.getAllAsJava().keySet().toString())[1:-1].split(", ") if k]


def _copy_functions(theirs: Any, ours: Any) -> None:
    """Registers the user's functions under their names, except where Spark has one of its own by that name."""
    for kind in ("functionRegistry", "tableFunctionRegistry"):
        source, target = getattr(theirs, kind)(), getattr(ours, kind)()
        own = source.listFunction().diff(target.listFunction())
        for i in range(own.size()):
            name = own.apply(i)
            info, builder = source.lookupFunction(name), source.lookupFunctionBuilder(name)
            target.registerFunction(name, info.get(), builder.get())


@contextlib.contextmanager
def active_session_kept() -> Iterator[None]:
    """Gives the thread its active session back: PySpark makes any session that creates a frame the active one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    before = SparkSession._activeSession
    try:
        yield
    finally:
        context = SparkContext._active_spark_context
        if before is not None and context is not None and context._jsc is not None:
            activate(before)


def activate(session: SparkSession) -> None:
    """Makes it the thread's active session, whose settings the JVM goes by."""
    from pyspark.sql import SparkSession

    SparkSession._activeSession = session
    SparkSession._get_j_spark_session_class(session.sparkContext._jvm).setActiveSession(session._jsparkSession)


def exact_path(path: str) -> str:
    """The path as Spark's readers take it literally, whatever brackets and stars are in it.

    >>> exact_path("/data/a[1].csv")
    '/data/a\\\\[1\\\\].csv'
    """
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def default_settings(master: str, cores: int, memory: int) -> dict[str, str]:
    """Spark's settings for a session that Parquetry starts on a machine of so many cores and bytes of memory."""
    settings = {
        "spark.app.name": "parquetry",
        # Correctness: one meaning of time, overflow and timestamps wherever the session runs.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Speed.
        "spark.sql.adaptive.enabled": "true",
        # Larger generated methods are not compiled by the JVM: wide CASE WHENs ran 5 to 7 times slower.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # Above the threshold Spark starts a job to list files whose names and sizes the catalog already knows.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
        # Where in Python a column was made, for Spark's error messages: several calls of the JVM for each column.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Of a file on a local disk Spark would read at least 64 KB wherever it begins to.
        "spark.buffer.size": "16384",
        # Quiet.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
    }
    if is_local(master):
        low, high = DRIVER_MEMORY_GIB
        heap = min(max(memory // DRIVER_MEMORY_SHARE, low * GIB), high * GIB)
        settings |= {
            "spark.driver.memory": f"{heap >> 20}m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * local_cores(master, cores)),
        }
    return settings


def launch_environment(master: str, home: Path) -> dict[str, str]:
    """The environment that Spark's launcher and its Python workers need."""
    if not is_local(master):
        # On a cluster the executors' Python may lie elsewhere than ours, so what the user says counts.
        return {"JAVA_HOME": str(home), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    return {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        # Without it Spark looks up the machine's own name, which fails in containers that have none.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def is_local(master: str) -> bool:
    return master.startswith("local")


def local_cores(master: str, cores: int) -> int:
    """How many tasks run at once on a local master: `local`, `local[4]`, `local[*]`, `local-cluster[2,1,1024]`.

    >>> local_cores("local[4]", cores=2), local_cores("local[*]", cores=2), local_cores("local", cores=2)
    (4, 2, 1)
    """
    if cluster := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(cluster[1]) * int(cluster[2])
    threads = re.fullmatch(r"local\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\]", master)
    if threads is None:
        return 1
    return cores if threads[1] == "*" else int(threads[1])


def machine_cores() -> int:
    """The cores that Spark may use here: this process's affinity, cut down to the container's quota."""
    available = sparks_cores()
    quota = _control_group("cpu.max")
    if len(quota) == 2 and quota[0].isdigit():
        return max(1, min(available, int(quota[0]) // int(quota[1])))
    return available


def machine_memory() -> int:
    """The bytes of memory this process may use: the machine's, cut down to the container's limit."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _control_group("memory.max")
    return min(physical, int(limit[0])) if limit and limit[0].isdigit() else physical


def _reason(error: Exception) -> str:
    """The one line of an error that tells most: behind py4j's "An error occurred" it is the Java exception's."""
    lines = [line.strip(": \t") for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[1] if lines[0].startswith("An error occurred while calling") and len(lines) > 1 else lines[0]


def _control_group(name: str) -> list[str]:
    try:
        return Path("/sys/fs/cgroup", name).read_text().split()
    except OSError:
        return []


def _scratch_folder() -> str:
    """A folder for what Spark would leave in the current one; gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="parquetry-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Ctrl-C and SIGTERM take effect after the block: in the middle of a launch they would leave a JVM behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {s: signal.signal(s, lambda number, _: came.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        # A signal to the whole process group ends the JVM, too: the launch has failed then, but that is not the news.
        for number in came[:1]:
            signal.raise_signal(number)


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the time of the launch only: the user's own stay as they were."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
