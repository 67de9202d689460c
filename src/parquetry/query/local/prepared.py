"""Rows that DuckDB holds in memory, and statements over them: planned once, for such rows never change."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import pyarrow as pa

_MOST = 512  # statements of a cursor
_CALLS: dict[str, CodeType] = {}


class LeftToSpark(Exception):
    """DuckDB stopped: at a value that Spark treats otherwise, at an error that may be Spark's too, or out of memory."""


@dataclass(frozen=True, eq=False)
class Held:
    """A materialized relation, and how statements name it."""

    name: str
    relation: Any


def run(cursor: Any, method: str, text: str, held: Iterable[Held] = (), **named: Any) -> Any:
    """``cursor.execute(text)``, or ``sql``, over held rows and Arrow data.

    DuckDB finds them by the names of variables around the call; to register them takes 0.8 ms."""
    call = _CALLS.get(method) or _CALLS.setdefault(method, compile(f"cursor.{method}(text)", __name__, "eval"))
    return eval(call, {"cursor": cursor, "text": text, **{h.name: h.relation for h in held}, **named})


class Prepared:
    """The prepared statements of one cursor, over held rows only: DuckDB keeps no plan of those that read a table or a
    file. A statement holds its rows, so it goes when nobody else does."""

    def __init__(self, cursor: Any) -> None:
        self.lock = threading.Lock()  # for those that share it
        self._cursor = cursor
        self._kept: OrderedDict[str, tuple[str, tuple[weakref.ref[Held], ...]]] = OrderedDict()
        self._made = 0

    def __contains__(self, text: str) -> bool:
        return text in self._kept

    def alive(self) -> bool:
        """Whether there is a statement whose rows anybody holds."""
        return any(all(h() is not None for h in held) for _, held in list(self._kept.values()))

    def run(self, text: str, held: Sequence[Held]) -> pa.Table:
        """The statement's rows."""
        return self._cursor.execute(self.get(text, held)).to_arrow_table()

    def get(self, text: str, held: Sequence[Held]) -> str:
        """What to execute for ``text``, which reads ``held``."""
        if text not in self._kept:
            self.forget()
            self._made += 1
            run(self._cursor, "execute", f"PREPARE __asked_{self._made} AS {text}", held)
            self._kept[text] = f"EXECUTE __asked_{self._made}", tuple(weakref.ref(h) for h in held)
        self._kept.move_to_end(text)
        return self._kept[text][0]

    def forget(self) -> None:
        """Statements whose rows nobody else holds go, or else the least recently used if there are too many."""
        gone = [text for text, (_, held) in self._kept.items() if any(h() is None for h in held)]
        for text in gone or list(self._kept)[: max(0, len(self._kept) - _MOST + 1)]:
            self._cursor.execute(f"DEALLOCATE {self._kept.pop(text)[0].removeprefix('EXECUTE ')}")
