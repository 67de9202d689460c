"""Processes by names under which any other one of the same machine can tell that they are dead."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path


def this_process() -> str:
    """The name of the process that calls; empty where the system does not tell enough for one."""
    return _name(os.getpid())  # a fork is another process


def known_dead(process: str) -> bool:
    """Whether the process is certain to have ended. One of another machine, or without a name, may well live.

    >>> known_dead(this_process()), known_dead(""), known_dead("elsewhere/b/1/2/3")
    (False, False, False)
    """
    machine, _, own = process.rpartition("/")[0].rpartition("/")
    if not process or machine != this_process().rpartition("/")[0].rpartition("/")[0]:
        return False
    return _started(int(own)) != process.rpartition("/")[2]


@lru_cache(maxsize=4)
def _name(pid: int) -> str:
    """``host/boot/namespace/pid/start``: containers of one host share its boot, and may share its name, but count their
    processes apart; and a number is given again to a later process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    started = _started(pid)
    return "" if started is None else f"{socket.gethostname()}/{boot}/{namespace}/{pid}/{started}"


def _started(pid: int) -> str | None:
    """When the process was started, in ticks since the machine was; None when it has ended."""
    try:
        told = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return None
    state, *others = told.rpartition(")")[2].split()  # behind its name, which may hold anything
    return None if state in "ZX" else others[18]
