"""Statements that are asked for again: DuckDB need not parse, bind and optimise them anew."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

_MOST = 512  # statements of a cursor


class Prepared:
    """The prepared statements of one cursor. What they read never changes: files, and copies of files in memory."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._names: OrderedDict[str, str] = OrderedDict()
        self._made = 0

    def get(self, text: str) -> str:
        """What to execute for ``text``: itself the first time, from the second time on its prepared form."""
        name = self._names.get(text)
        if name is None:
            self._names[text] = ""
            if len(self._names) > _MOST:
                _, oldest = self._names.popitem(last=False)
                if oldest:
                    self._cursor.execute(f"DEALLOCATE {oldest}")
            return text
        self._names.move_to_end(text)
        if not name:
            self._made += 1
            name = f"__asked_{self._made}"
            self._cursor.execute(f"PREPARE {name} AS {text}")
            self._names[text] = name
        return f"EXECUTE {name}"
