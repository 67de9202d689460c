"""Who gets the machine's cores first."""

from __future__ import annotations

import os


def in_background() -> None:
    """Lets this process, and what it starts from now on, run only on cores that nobody else wants, and never on one of
    them.

    Call it before Spark starts. Work that shares a machine with queries then costs them next to nothing; on a machine
    whose cores are all in use it comes to a standstill, and data gets older. One core is left alone because a thread
    that wakes up may wait some milliseconds for one that is busy in the kernel, whatever its priority.
    """
    if hasattr(os, "sched_setaffinity"):
        _, *others = sorted(os.sched_getaffinity(0))
        if others:
            os.sched_setaffinity(0, others)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
