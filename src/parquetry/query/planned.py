"""Queries that were asked before: bound once while schemas stay, planned once while what they read stays."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from parquetry.query.bind import BoundQuery, bind
from parquetry.query.plan import Plan
from parquetry.query.snapshot import Snapshot
from parquetry.storage.cache import Cache

_MOST_BYTES = 64 << 20  # of plans, and again of bound texts
_BYTES = 64 << 10  # a small plan or bound text, roughly


class Planned:
    """The latest queries. Plans are kept with a snapshot that pins nothing: no version must stay because somebody once
    asked something. A Spark job takes so much longer than its plan that those are made anew."""

    def __init__(self) -> None:
        self._bound = Cache(_MOST_BYTES)
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def bound(self, sql: str, snapshot: Snapshot) -> BoundQuery:
        state, weight = snapshot.state, _BYTES + 20 * len(sql)
        return self._bound.get((sql, state.schemas), lambda: bind(sql, state.readable), lambda _: weight)

    def get(self, asked: Hashable, snapshot: Snapshot) -> Plan | None:
        """The latest plan, reading at ``snapshot``, if the same tables and views were there to choose from."""
        with self._lock:
            plan = self._plans.get((asked, snapshot.choices))
            if plan is None:
                return None
            self._plans.move_to_end((asked, snapshot.choices))
        first, *more = plan.decisions
        return replace(plan, snapshot=snapshot, decisions=(replace(first, why=snapshot.named), *more))

    def keep(self, asked: Hashable, plan: Plan) -> None:
        if plan.executor != "local":
            return
        with self._lock:
            before = self._plans.pop((asked, plan.snapshot.choices), None)
            self._plans[asked, plan.snapshot.choices] = replace(plan, snapshot=Snapshot(plan.snapshot.state))
            self._bytes += _weight(plan) - (0 if before is None else _weight(before))
            while self._bytes > _MOST_BYTES:
                self._bytes -= _weight(self._plans.popitem(last=False)[1])


def _weight(plan: Plan) -> int:
    return _BYTES + sum(t.keep.nbytes for t in plan.tables.values() if t.keep is not None)
