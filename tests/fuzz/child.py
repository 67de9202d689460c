"""A process that reads damaged warehouses: what kills it or makes it hang is noticed outside.

It reads one line of JSON for each warehouse and writes one with what came of every question.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HANGS_AFTER_S = 60

QUERIES = (
    "SELECT count(*) AS n FROM t",
    "SELECT * FROM t WHERE k = 55",
    "SELECT k, d, s, dt FROM t WHERE k BETWEEN 30 AND 75 AND l >= 5",
    "SELECT g, count(*) AS n, sum(l) AS l, min(dt) AS lo, max(n) AS hi FROM t GROUP BY g",
    "SELECT * FROM u WHERE id BETWEEN 4 AND 13",
    "SELECT who, count(*) AS n, max(v) AS v FROM u GROUP BY who",
    "SELECT * FROM w WHERE name >= 'b' AND k > 5",
)


class Child:
    """The process, started anew when it has died; used in a ``with`` block."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, folder: Path) -> dict[str, Any]:
        """What came of each question, or ``{"died": why}``."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(HANGS_AFTER_S, process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(str(folder)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            hung = not timer.is_alive()
            timer.cancel()
        if line:
            answered: dict[str, Any] = json.loads(line)
            return answered
        code = process.wait()
        self._end()
        why = f"hung for {HANGS_AFTER_S} s" if hung else f"died with code {code}"
        return {"died": why, "details": self._log.read_text(errors="replace")[-3000:]}

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _answer(folder: str) -> dict[str, Any]:
    import parquetry
    from tests.fuzz.outcomes import outcome_of

    found: dict[str, Any] = {}

    def ask(name: str, act: Any) -> None:
        outcome = outcome_of(act)
        if outcome.raw:
            found[name] = {"raw": outcome.raw, "details": outcome.details}
        else:
            found[name] = {"refused": outcome.refused} if outcome.refused else {"is": _text(outcome.rows)}

    opened = outcome_of(lambda: parquetry.connect(folder, create=False))
    if opened.rows is None:
        ask("connect", lambda: parquetry.connect(folder, create=False))
        return found
    with opened.rows as wh:
        for sql in QUERIES:
            ask(sql, lambda sql=sql: wh.sql(sql, executor="local").arrow())
            ask(f"explain {sql}", lambda sql=sql: str(wh.explain(sql)) and "explained")
        ask("tables", lambda: wh.tables() and "told")
        ask("freshness", lambda: wh.freshness() and "told")
        ask("history", lambda: wh.history("t") and "told")
        ask("maintain --explain", lambda: wh.explain_maintain() and "told")
        ask("verify", lambda: [f"{p.table}: {p.what}" for p in wh.verify()])
    return found


def _text(value: Any) -> str:
    if hasattr(value, "to_pylist"):
        return repr(sorted(map(repr, value.to_pylist())))
    return repr(value)


def main() -> None:
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else goes between the answers
    for line in sys.stdin:
        try:
            found = _answer(json.loads(line))
        except BaseException as e:  # closing a damaged warehouse must work as well
            from tests.fuzz.outcomes import place_of

            found = {"closing": {"raw": place_of(e), "details": repr(e)}}
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
