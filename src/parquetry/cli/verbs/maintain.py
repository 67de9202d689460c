"""Verbs that keep a warehouse in order: maintain, verify, vacuum, retention."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parquetry.cli.terminal.options import Json, opened, seconds, setting_values
from parquetry.cli.terminal.output import counted, print_done, print_found, print_json, print_table, size
from parquetry.cli.terminal.progress import Work, shown

if TYPE_CHECKING:
    from parquetry import Left, Stage, Warehouse

verbs = typer.Typer()


@verbs.command("maintain")
def maintain(
    ctx: typer.Context,
    explain: Annotated[bool, typer.Option("--explain", help="Print what would be done, and do nothing.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep going until interrupted or terminated.")] = False,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="With --watch: the pause between looks.")] = "1s",
    background: Annotated[
        bool,
        typer.Option("--background", help="Use only cores that nobody else on this machine wants, one never."),
    ] = False,
    json: Json = False,
) -> None:
    """Refresh views, compact what waits and move the queryable timestamp."""
    if explain and watch:
        raise typer.BadParameter("--explain looks once; leave out --watch.")
    pause = seconds(interval)
    if background:
        from parquetry import in_background

        in_background()
    with opened(ctx) as wh:
        if explain:
            _print_stages(wh.explain_maintain(), json)
        elif watch:
            with _terminated_like_interrupted(), shown() as work:
                _watch(wh, pause, work, json)
        else:
            _maintain(wh, json)


def _maintain(wh: Warehouse, json: bool) -> None:
    from parquetry import Left

    before = wh.qt
    stages: list[Stage] = []
    left: list[Left] = []
    with shown("maintain") as work:
        for step in wh.maintaining(progress=work):
            work.start(str(step))
            if isinstance(step, Left):
                left.append(step)
            else:
                stages.append(step)
    qt = wh.qt
    if json:
        document: dict[str, Any] = {"stages": [s.to_json() for s in stages], "qt_before": before, "qt": qt}
        print_json({**document, "left": [s.to_json() for s in left]})
    else:
        for step in (*stages, *left):
            print(step)
        done = f"QT {before} -> {qt}" if qt > before else f"QT {qt}"
        print(done if stages or left else f"nothing to do, {done}")
    if left:
        raise typer.Exit(1)


def _watch(wh: Warehouse, pause: float, work: Work, json: bool) -> None:
    """One line (with ``--json`` one document) per stage, until a signal: what is unfinished then is dropped whole."""
    stop = threading.Event()
    try:
        print("watching; an interrupt ends it", file=sys.stderr, flush=True)
        for step in wh.watch(stop, interval_s=pause, progress=work):
            work.start(str(step))
            if json:
                print_json(step.to_json())
            else:
                print(step, flush=True)
    except KeyboardInterrupt:
        stop.set()


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # SIGINT too: a process started in the background by a script has it ignored.
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_stages(stages: list[Stage], json: bool) -> None:
    document = {"stages": [s.to_json() for s in stages]}
    print_done(json, document, "\n".join(str(s) for s in stages) or "nothing to do")


@verbs.command("verify")
def verify(
    ctx: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="Check sizes only, not the files' checksums.")] = False,
    json: Json = False,
) -> None:
    """Check every invariant and every file; exit code 1 when something is wrong."""
    with opened(ctx) as wh:
        with shown("verify"):
            problems = wh.verify(quick=quick)
        tables = wh.tables()
    if json:
        print_json({"ok": not problems, "problems": [asdict(p) for p in problems]})
    elif problems:
        print_table(("table", "problem"), [(p.table, p.what) for p in problems])
        print(f"{counted(len(problems), 'problem')}; restore what is named here from a backup")
    else:
        deltas = sum(t["deltas"] for t in tables)
        print(f"all is well: {counted(len(tables), 'table')}, {counted(deltas, 'delta')}")
    if problems:
        raise typer.Exit(1)


@verbs.command("vacuum")
def vacuum(
    ctx: typer.Context,
    grace: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Keep what is younger: seconds, or a number with s, m, h or d. [1d]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    json: Json = False,
) -> None:
    """Remove files that no version and no reader needs, and what the catalog need not remember."""
    grace_s = None if grace is None else seconds(grace)
    with opened(ctx) as wh, shown("vacuum"):
        done = wh.vacuum(grace_s=grace_s, dry_run=dry_run)
    what = f"{counted(done.deltas, 'replaced delta')} and {counted(done.orphans, 'stray file')}, {size(done.bytes)}"
    lines = [f"would remove {what}" if dry_run else f"removed {what}"]
    if sum(asdict(done.trimmed).values()):
        rows = done.trimmed
        lines.append(f"forgot {counted(rows.commits, 'commit')}, {counted(rows.labels, 'label')}")
        lines[-1] += f" and {rows.queries:,} of the query log"
    if done.held_by is not None:
        lines.append(f"more has to stay: {done.held_by}")
    print_done(json, asdict(done), "\n".join(lines))


@verbs.command("retention")
def retention(
    ctx: typer.Context,
    changes: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="What to change.")] = None,
    json: Json = False,
) -> None:
    """Change how long the catalog remembers what no reader needs; without changes, show it."""
    wanted = setting_values(changes or [])
    with opened(ctx) as wh:
        kept = wh.retention(**wanted).to_json()
    print_found(json, kept, ("setting", "value"), kept.items())
