"""Who gets the machine's cores first."""

from __future__ import annotations

import os
import sys
import threading


def in_background() -> None:
    """Lets this process, and what it starts from now on, run only on cores that nobody else wants.

    Call it before Spark starts. Work that shares a machine with queries then costs them next to nothing; on a machine
    whose cores are all in use it comes to a standstill, and data gets older.
    """
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)


def thread_goes_last() -> None:
    """Lets the other threads of this process have the cores first, where threads have priorities of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
