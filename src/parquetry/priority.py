"""Who gets the machine's cores first.

Run as a program, it starts another one in the background: ``python priority.py java …``.
"""

from __future__ import annotations

import os
import sys

_wanted = False


def in_background() -> None:
    """Lets Spark, which is to be started later, and what Spark starts run only on cores that nobody else wants.

    Work that shares a machine with queries then costs them next to nothing; on a machine whose cores are all in use it
    comes to a standstill, and data gets older. This process stays as it is: it holds the catalog's locks, for which
    others wait, and leases, which have to be renewed in time.
    """
    global _wanted
    _wanted = True


def launcher() -> tuple[str, ...]:
    """What a command line begins with to be run as it is wanted."""
    return (sys.executable, "-IS", os.path.abspath(__file__)) if _wanted else ()


def sparks_cores() -> int:
    """The cores that Spark may use here."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len(_others() if _wanted else os.sched_getaffinity(0))


def _others() -> set[int]:
    """All cores but one, if there are several: a thread that wakes up may wait some milliseconds for a core that is
    busy in the kernel, whatever its priority."""
    first, *others = sorted(os.sched_getaffinity(0))
    return set(others) or {first}


def _step_back() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, _others())
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)


if __name__ == "__main__":
    _step_back()
    os.execv(sys.argv[1], sys.argv[1:])
