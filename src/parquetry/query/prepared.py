"""Statements that are asked for often: DuckDB need not parse, bind and optimise them anew."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

_MOST = 512  # statements of a cursor
_LEAST_ASKED = 8  # to prepare takes as long as is saved in two or three runs, and texts change when the QT moves


class Prepared:
    """The prepared statements of one cursor. What they read never changes: files, and copies of files in memory."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._asked: OrderedDict[str, int | str] = OrderedDict()  # how often, then under which name it is prepared
        self._made = 0

    def get(self, text: str) -> str:
        """What to execute for ``text``: itself, and its prepared form once it was asked for often."""
        asked = self._asked.setdefault(text, 0)
        self._asked.move_to_end(text)
        if isinstance(asked, int):
            if asked < _LEAST_ASKED:
                self._asked[text] = asked + 1
                self._forget()
                return text
            self._made += 1
            name = f"__asked_{self._made}"
            self._cursor.execute(f"PREPARE {name} AS {text}")
            self._asked[text] = asked = name
        return f"EXECUTE {asked}"

    def _forget(self) -> None:
        if len(self._asked) > _MOST:
            _, oldest = self._asked.popitem(last=False)
            if isinstance(oldest, str):
                self._cursor.execute(f"DEALLOCATE {oldest}")
