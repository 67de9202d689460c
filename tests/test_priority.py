"""Work in the background: only Spark's part of it, on cores that nobody else wants."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_POLICY = 38  # its place in /proc/PID/stat behind the name

needs_idle = pytest.mark.skipif(
    not hasattr(os, "SCHED_IDLE"), reason="this system has no scheduling class for idle cores"
)

_STARTED = """
import json, os, subprocess, sys
from parquetry.priority import in_background, launcher, sparks_cores
before = sorted(os.sched_getaffinity(0))
in_background()
place = "[sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0) == os.SCHED_IDLE]"
command = [*launcher(), sys.executable, "-c", f"import json, os; print(json.dumps({place}))"]
started = subprocess.run(command, capture_output=True, text=True, check=True)
print(json.dumps([before, eval(place), json.loads(started.stdout), sparks_cores()]))
"""

# Java is a script here, which keeps what the kernel says of it, and of a process that it has started.
_SPARK = """
import json, os, sys, threading
from pathlib import Path
from parquetry.priority import in_background
from parquetry.spark import session

in_background()
begun = threading.Thread(target=threading.Event().wait, daemon=True)  # as one that renews a lease
begun.start()
try:
    session("local[1]")
except Exception:
    pass  # that was no Java
own = [os.sched_getscheduler(int(t.name)) for t in Path("/proc/self/task").iterdir()]
print(json.dumps([own, Path(sys.argv[1]).read_text().splitlines()]))
"""


def told(program: str, *arguments: str, **environment: str) -> list[object]:
    command = [sys.executable, "-c", program, *arguments]
    ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found: list[object] = json.loads(ran.stdout.splitlines()[-1])
    return found


@needs_idle
def test_what_is_launched_leaves_one_core_alone_and_lets_others_go_first() -> None:
    before, own, started, cores = told(_STARTED)
    assert isinstance(before, list)
    assert own == [before, False], "who launches it keeps its place"
    assert started == [before[1:] or before, True]
    assert cores == len(before[1:] or before)


@needs_idle
def test_spark_is_idle_with_all_that_it_starts_and_this_process_is_not(tmp_path: Path) -> None:
    java, seen = tmp_path / "jdk" / "bin" / "java", tmp_path / "seen"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1" 2025-01-01\' >&2; exit 0; fi\n'
        f"cat /proc/$$/stat /proc/self/stat > {seen}\n"
    )
    java.chmod(0o755)
    own, found = told(_SPARK, str(seen), JAVA_HOME=str(tmp_path / "jdk"), XDG_CACHE_HOME=str(tmp_path))
    assert isinstance(own, list)
    assert isinstance(found, list)
    assert len(own) > 1
    assert set(own) == {os.SCHED_OTHER}, "threads here hold the catalog's locks and renew leases"
    policies = [int(line.rpartition(")")[2].split()[_POLICY]) for line in found]
    assert policies == [os.SCHED_IDLE, os.SCHED_IDLE]
