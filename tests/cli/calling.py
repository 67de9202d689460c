"""Calls the command in this process: exit code, stdout and stderr, or the JSON document it printed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from parquetry.cli import main


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


class Shell:
    """A command line in front of one warehouse."""

    def __init__(self, capsys: pytest.CaptureFixture[str], warehouse: Path) -> None:
        self._capsys = capsys
        self.warehouse = warehouse

    def __call__(self, *arguments: str) -> Answer:
        self._capsys.readouterr()
        code = main(["-w", str(self.warehouse), *arguments])
        out, err = self._capsys.readouterr()
        return Answer(code, out, err)

    def json(self, *arguments: str) -> Any:
        answer = self(*arguments, "--json")
        assert answer.code == 0, answer.err
        return answer.document
