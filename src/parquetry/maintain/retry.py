"""What could not be done: told, left alone for a while and tried again, while the rest goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from parquetry.errors import ParquetryError, StorageError
from parquetry.maintain.pick import Stage
from parquetry.model.delta import Delta
from parquetry.model.state import State, TableState
from parquetry.storage.explain_failure import explain_failure, telling_line
from parquetry.storage.index_reader import open_index
from parquetry.storage.store import Store

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # after a failure; doubled by each further one


@dataclass(frozen=True)
class Failed:
    """A stage could not be performed, or with none no stage be found. It is tried again after ``again_s``."""

    stage: Stage | None
    error: Exception
    again_s: float

    def __str__(self) -> str:
        what = "" if self.stage is None else f"{self.stage}: "
        return f"failed, tried again after {self.again_s:g} s: {what}{told(self.error)}"

    def to_json(self) -> dict[str, Any]:
        what = None if self.stage is None else self.stage.to_json()
        return {"stage": "failed", "of": what, "error": str(self.error), "again_s": self.again_s}


@dataclass(frozen=True)
class Left:
    """Work that was not done because another worker, ``holder``, has taken it and is still at it; or others, who are
    not known, came in between again and again."""

    stage: Stage
    holder: str

    def __str__(self) -> str:
        if not self.holder:
            return f"left undone, as other workers came in between: {self.stage}"
        return f"left to another worker, {self.holder}, which is still at it: {self.stage}"

    def to_json(self) -> dict[str, Any]:
        return {"stage": "left", "of": self.stage.to_json(), "holder": self.holder}


class SetAside:
    """Tables whose work failed. They are left alone for a while, a longer one after each further failure."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[float, float]] = {}  # until when, and for how long

    def failed(self, table_id: int) -> float:
        """The seconds for which the table is left alone."""
        _, before = self._tables.get(table_id, (0.0, FIRST_PAUSE_S / 2))
        pause = min(2 * before, LONGEST_PAUSE_S)
        self._tables[table_id] = time.monotonic() + pause, pause
        return pause

    def worked(self, table_id: int) -> None:
        self._tables.pop(table_id, None)

    def tables(self) -> set[int]:
        now = time.monotonic()
        return {table_id for table_id, (until, _) in list(self._tables.items()) if until > now}


def told(error: Exception) -> str:
    """An error on one line, also one that nobody has foreseen."""
    if isinstance(error, ParquetryError):
        return str(error)
    line = telling_line(error)
    kind = type(error).__name__
    return line if line.startswith(kind) else f"{kind}: {line}"


def explained(error: Exception, stage: Stage | None) -> ParquetryError:
    """Any error as one that can be told on a line; the loss of Spark is recognized."""
    if isinstance(error, ParquetryError):
        return error
    name = getattr(stage, "table", None)
    made = ParquetryError(told(error)) if name is None else explain_failure(error, name)
    made.__cause__ = error
    return made


class CannotShow(StorageError):
    """A delta that the QT would show cannot be read."""

    def __init__(self, table: TableState, delta: Delta, error: Exception) -> None:
        self.table_id = table.table_id
        super().__init__(f"'{table.name}' holds the QT back: its delta {delta.delta_id} cannot be read; {told(error)}")


def check_shown(store: Store, state: State, table: TableState, until: int) -> None:
    """Reads into memory the indexes of what a QT of ``until`` shows first; CannotShow if one cannot be read.

    What is visible already is no reason to hold the QT back: the queries that read it say what is damaged.
    """
    for d in table.deltas:
        if d.t_hi > state.qt and d.t_lo <= until:
            try:
                open_index(store, d.index).row_groups()
            except Exception as e:
                raise CannotShow(table, d, e) from e


def cannot_show(store: Store, state: State) -> dict[int, CannotShow]:
    """The tables that hold the QT back because something that is hidden cannot be read."""
    found = {}
    for t in state.tables.values():
        try:
            check_shown(store, state, t, state.clock)
        except CannotShow as e:
            found[t.table_id] = e
    return found
