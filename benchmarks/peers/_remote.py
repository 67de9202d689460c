"""Systems that live in another process: every call is one JSON line there and one back.

Times are taken over there, around the engine alone, so the pipe costs none of them anything.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers._model import Answer, Stored, Table

ROOT = Path(__file__).parents[2]


class PeerError(RuntimeError):
    """A system in another process failed; its own traceback is in the log file."""


class Process:
    """A process that serves systems, with what they print in ``log``."""

    def __init__(self, python: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log.open("a")
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.peers._serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=log.parent,
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
        )

    def call(self, system: str, call: str, arguments: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"system": system, "call": call, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"the process of {system} ended; see {self._log.name}")
        told = json.loads(line)
        if "error" in told:
            raise PeerError(f"{system}: {told['error']} (see {self._log.name})")
        return told["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


class Remote:
    """A system of another process, with the same methods."""

    def __init__(self, process: Process, system: str, **settings: Any) -> None:
        self._process, self._system = process, system
        self._call("open", **settings)

    def versions(self) -> dict[str, str]:
        return dict(self._call("versions"))

    def load(self, table: Table, how: str) -> Stored:
        return Stored(**self._call("load", table=table.to_json(), how=how))

    def create(self, table: Table, how: str) -> None:
        self._call("create", table=table.to_json(), how=how)

    def append(self, table: Table, how: str, path: str) -> float:
        return float(self._call("append", table=table.to_json(), how=how, path=path))

    def upsert(self, table: Table, how: str, path: str) -> float:
        return float(self._call("upsert", table=table.to_json(), how=how, path=path))

    def stored(self, table: Table, how: str) -> Stored:
        return Stored(**self._call("stored", table=table.to_json(), how=how))

    def query(self, table: str, how: str, sql: str, measure: bool = False) -> Answer:
        return Answer(**self._call("query", table=table, how=how, sql=sql, measure=measure))

    def close(self) -> None:
        """The process closes its systems when it ends."""

    def _call(self, call: str, **arguments: Any) -> Any:
        return self._process.call(self._system, call, arguments)
