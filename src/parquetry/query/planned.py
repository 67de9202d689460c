"""Plans of queries that were asked before: at the same version the same text has the same plan."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from parquetry.query.plan import Plan
from parquetry.query.snapshot import Snapshot

_MOST = 128  # each may hold a bit for every row group of a table


class Planned:
    """The latest local plans. A Spark job takes so much longer than its plan that those are made anew.

    They are kept with a snapshot that pins nothing: no version must stay because somebody once asked something.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, asked: Hashable, snapshot: Snapshot) -> Plan | None:
        """The plan, reading at ``snapshot``, whose version is part of ``asked``."""
        with self._lock:
            plan = self._plans.get(asked)
            if plan is None:
                return None
            self._plans.move_to_end(asked)
        return replace(plan, snapshot=snapshot)

    def keep(self, asked: Hashable, plan: Plan) -> None:
        if plan.executor != "local":
            return
        with self._lock:
            self._plans[asked] = replace(plan, snapshot=Snapshot(plan.snapshot.state))
            if len(self._plans) > _MOST:
                self._plans.popitem(last=False)
