"""Progress of long work on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from parquetry.cli.terminal.output import console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_FIRST_LINE_S = 2.0
_LINE_EVERY_S = 10.0


class Work(Protocol):
    """One piece of work after the other; calling it tells (parts done, parts known so far) of the present one."""

    def start(self, what: str) -> None: ...

    def __call__(self, done: int, total: int) -> None: ...


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, what: str) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=None)

    def __call__(self, done: int, total: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


class _Lines:
    """A line now and then, each with something new: work that is soon done or refused says nothing, and no line comes
    twice."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.start("")

    def start(self, what: str) -> None:
        self._what, self._due, self._said = what, self._clock() + _FIRST_LINE_S, (0, 0)

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if now >= self._due and (done, total) != self._said:
            self._due, self._said = now + _LINE_EVERY_S, (done, total)
            print(f"{self._what}: {done} of {total} tasks done", file=sys.stderr, flush=True)


@contextmanager
def shown(what: str = "") -> Iterator[Work]:
    """Shows work until the block ends, and then nothing of it on a terminal; ``what`` starts the first piece."""
    if not sys.stderr.isatty():
        lines = _Lines()
        if what:
            lines.start(what)
        yield lines
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = _Bar(progress)
        if what:
            bar.start(what)
        yield bar
