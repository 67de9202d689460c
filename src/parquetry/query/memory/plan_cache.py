"""Queries that were asked before: bound once while schemas stay, planned once while what they read stays."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from parquetry.query.planning.bind import BoundQuery, bind
from parquetry.query.planning.plan import Plan
from parquetry.query.planning.snapshots import Snapshot
from parquetry.storage.cache import Cache

_MOST_BYTES = 64 << 20  # of plans, and again of bound texts
_MOST_NEXT = 128  # plans that are made before they are asked for: some 2 ms each
_OFTEN = 8  # times that a query is asked for
_BYTES = 64 << 10  # a small plan or bound text, roughly


class Planned:
    """The latest queries. Plans are kept with a snapshot that pins nothing: no version must stay because somebody once
    asked something. A Spark job takes so much longer than its plan that those are made anew."""

    def __init__(self, trusted: bool = False) -> None:
        self._trusted = trusted
        self._bound = Cache(_MOST_BYTES)
        self._plans: OrderedDict[tuple[Hashable, Hashable], Plan] = OrderedDict()
        self._times: Counter[tuple[Hashable, Hashable]] = Counter()  # that each kept plan was asked for
        self._next: dict[tuple[Hashable, Hashable], Plan] = {}
        self._looked: Any = None  # for what ``waiting`` looked at last
        self._bytes = 0
        self._lock = threading.Lock()

    def bound(self, sql: str, snapshot: Snapshot) -> BoundQuery:
        state, weight = snapshot.state, _BYTES + 20 * len(sql)
        return self._bound.get((sql, state.schemas), lambda: bind(sql, state.readable, self._trusted), lambda _: weight)

    def get(self, asked: Hashable, snapshot: Snapshot) -> Plan | None:
        """The latest plan, reading at ``snapshot``, if the same tables and views were there to choose from."""
        key = asked, snapshot.choices
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                return None
            self._plans.move_to_end(key)
            self._times[key] += 1
            coming = self._next.get(key)
            if coming is not None and not plan.reads(snapshot) and coming.reads(snapshot):
                self._bytes += _weight(coming) - _weight(plan)
                plan = self._plans[key] = self._next.pop(key)
            times = self._times[key]
        return replace(plan.at(snapshot), times=times)

    def keep(self, asked: Hashable, plan: Plan) -> None:
        if plan.executor != "local":
            return
        key = asked, plan.snapshot.choices
        with self._lock:
            before = self._plans.pop(key, None)
            self._plans[key] = replace(plan, snapshot=Snapshot(plan.snapshot.state))
            self._times[key] = max(self._times[key], 1)
            self._bytes += _weight(plan) - (0 if before is None else _weight(before))
            while self._bytes > _MOST_BYTES:
                gone, least = self._plans.popitem(last=False)
                self._bytes -= _weight(least)
                del self._times[gone]

    def waiting(self, snapshot: Snapshot) -> list[tuple[Hashable, Plan]]:
        """Of those that were asked often, the latest for which no plan reads at ``snapshot`` yet. What was kept for any
        other is forgotten."""
        shown = {name: snapshot.ids(name) for name in snapshot.state.tables}
        with self._lock:
            often = [key for key in self._plans if self._times[key] > _OFTEN][-_MOST_NEXT:]
            if self._looked == (shown, snapshot.choices, len(often)):
                return []
            coming = self._next.items()
            self._next = {key: plan for key, plan in coming if key[1] == snapshot.choices and plan.reads(snapshot)}
            self._looked = shown, snapshot.choices, len(often)
            here = [(key, self._plans[key]) for key in often if key[1] == snapshot.choices and key not in self._next]
        return [(key[0], plan.at(snapshot)) for key, plan in here if not plan.reads(snapshot)]

    def keep_for_later(self, asked: Hashable, plan: Plan) -> None:
        """A plan that reads what a later snapshot will show."""
        with self._lock:
            self._next[asked, plan.snapshot.choices] = replace(plan, snapshot=Snapshot(plan.snapshot.state))


def _weight(plan: Plan) -> int:
    return _BYTES + sum(t.keep.nbytes for t in plan.tables.values() if t.keep is not None)
