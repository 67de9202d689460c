"""The second environment, for systems that do not support this project's Spark yet, or are no part of the project.

It lives in the user's cache folder, is made once per set of versions, and is used by another process.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
PACKAGES = ("pyspark", "chdb", "pyarrow", "pandas")
JARS = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "parquetry-peers"


def second_python(note: Callable[[str], None]) -> Path:
    """The Python of the second environment, which is made if it is missing."""
    told = CONSTRAINTS.read_text() + sys.version
    folder = cache_folder() / f"env-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return python
    note(f"making a second environment with {', '.join(PACKAGES)} (once; 1.4 GB) …")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(CONSTRAINTS), *PACKAGES], check=True)
    (folder / "ready").touch()
    return python


def jar_settings() -> dict[str, str]:
    """Settings by which Spark fetches the jars, once, into the cache folder."""
    return {"spark.jars.packages": ",".join(JARS), "spark.jars.ivy": str(cache_folder() / "jars")}
