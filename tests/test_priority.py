"""Work in the background: only on cores that nobody else wants."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

_TOLD = """
import json, os
from parquetry.priority import in_background
before = sorted(os.sched_getaffinity(0))
in_background()
child = os.popen("nproc").read().strip()
print(json.dumps([before, sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0) == os.SCHED_IDLE, int(child)]))
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no scheduling class for idle cores")
def test_one_core_is_left_alone_and_others_go_first() -> None:
    told = subprocess.run([sys.executable, "-c", _TOLD], capture_output=True, text=True, check=True)
    before, after, idle, child = json.loads(told.stdout)
    assert after == (before[1:] or before)
    assert idle
    assert child == len(after), "what it starts inherits it"
