"""A system in a process of its own: requests as JSON lines on stdin, answers as JSON lines on stdout."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from dataclasses import asdict, is_dataclass
from typing import Any

from benchmarks.peers._model import Table


def main() -> None:
    # Engines print on stdout as they like; the answers keep the real one for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    systems: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            told = {"result": perform(systems, request)}
        except Exception as error:
            traceback.print_exc()
            told = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        answers.write(json.dumps(told) + "\n")
        answers.flush()
    for system in systems.values():
        system.close()


def perform(systems: dict[str, Any], request: dict[str, Any]) -> Any:
    name, arguments = request["system"], request["arguments"]
    if request["call"] == "open":
        module = importlib.import_module(f"benchmarks.peers._systems.{name}")
        systems[name] = module.open_system(**arguments)
        return None
    arguments = {k: Table.from_json(v) if k == "table" and isinstance(v, dict) else v for k, v in arguments.items()}
    result = getattr(systems[name], request["call"])(**arguments)
    return asdict(result) if is_dataclass(result) and not isinstance(result, type) else result


if __name__ == "__main__":
    main()
