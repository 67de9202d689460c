"""Statements that are asked for often: DuckDB need not parse, bind and optimise them anew."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

_MOST = 512  # statements of a cursor
_LEAST_ASKED = 8  # to prepare takes as long as is saved in two or three runs


class Prepared:
    """The prepared statements of one cursor. What they read never changes: files, and copies of files in memory."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._asked: OrderedDict[str, int | str] = OrderedDict()  # how often, then under which name it is prepared
        self._made = 0

    def get(self, text: str, *, asked: int = 0) -> str:
        """What to execute for ``text``: itself, and its prepared form once it was asked for often.

        ``asked``: how often the query was, whose text is another one each time that the QT moves. Of one that is asked
        for often, the second text is prepared: the first has to be counted, besides."""
        least = 1 if asked > _LEAST_ASKED else _LEAST_ASKED
        known = self._asked.setdefault(text, 0)
        self._asked.move_to_end(text)
        if isinstance(known, int):
            if known < least:
                self._asked[text] = known + 1
                self._forget()
                return text
            self._made += 1
            name = f"__asked_{self._made}"
            self._cursor.execute(f"PREPARE {name} AS {text}")
            self._asked[text] = known = name
        return f"EXECUTE {known}"

    def _forget(self) -> None:
        if len(self._asked) > _MOST:
            _, oldest = self._asked.popitem(last=False)
            if isinstance(oldest, str):
                self._cursor.execute(f"DEALLOCATE {oldest}")
