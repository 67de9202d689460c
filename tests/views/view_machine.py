"""Random steps on tables and views, with the law after each: a view equals its definition at the QT, exactly."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import parquetry
from parquetry import RelayoutOptions
from parquetry.model.queryable import ready
from parquetry.query.compile.plain_select import LocalPlan
from parquetry.warehouse import Warehouse
from tests.views.machine_views import KINDS, MERGES, MODELS, view_of
from tests.views.random_views import DDL, rows
from tests.views.view_crashes import COMMITTED, dying, end_leases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_VIEWS = 5


class ViewMachine:
    """Four tables, up to five views over them and over each other."""

    def __init__(self, rng: random.Random, folder: Path, catalog: str | None, spark: SparkSession) -> None:
        self._rng, self._folder, self._catalog, self._spark = rng, folder, catalog, spark
        self.done: list[str] = []
        self.met: Counter[str] = Counter()
        """How often what was checked, and what died where."""
        self._labels = self._made = self._qt = 0
        self._views: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._groups: dict[str, set[str]] = {}
        self._wh = self._connect()
        for table, model in MODELS.items():
            values = MERGES if model == "aggregate" else {}
            key = ["k"] if table == "shops" else ["k", "day"]
            ddl = DDL.replace("v int", "v bigint") if table == "merged" else DDL
            settings = {"max_query_deltas": rng.choice([2, 3, 8]), "compaction_width": rng.choice([2, 4])}
            sequence = "w" if table == "upserted" and rng.random() < 0.5 else None
            self._wh.create_table(table, ddl, key=key, model=model, values=values, sequence=sequence, settings=settings)

    def close(self) -> None:
        self._wh.close()

    def run(self, steps: int, crashes: Sequence[tuple[str, str]], first_kind: int) -> None:
        """So many random steps, with all of ``crashes`` between them.

        The views to begin with are of the four kinds from ``first_kind`` on.
        """
        self._first_kind = first_kind
        often: dict[Callable[[], None], int] = {
            self._ingest: 10,
            self._maintain: 3,
            self._maintain_partly: 8,
            self._create: 4,
            self._drop: 2,
            self._relayout: 1,
            self._vacuum: 1,
            self._reopen: 1,
        }
        plan = self._rng.choices(list(often), list(often.values()), k=steps)
        dying_at = list(crashes)
        self._rng.shuffle(dying_at)
        try:
            for _ in range(4):
                self._create()
            for table in MODELS:
                self.done.append("ingest")
                self._ingest(table, 60)
            self.done.append("maintain")
            self._maintain()
            self._check(all_of_them=True)
            for i, step in enumerate(plan):
                self._step(step)
                while len(dying_at) > len(crashes) * (steps - 1 - i) // steps:
                    self._crash(*dying_at.pop())
            self._step(self._maintain)
            self._check(all_of_them=True)
            classes = [(h["detail"] or {}).get("class") for h in self._wh.history(limit=10_000)]
            self.met.update(f"refreshed by class {c}" for c in classes if c)
        except Exception as e:
            e.add_note("steps:\n  " + "\n  ".join(self.done))
            raise

    def _step(self, step: Callable[[], None]) -> None:
        self.done.append(step.__name__.strip("_"))
        step()
        self._check()

    def _connect(self) -> Warehouse:
        return parquetry.connect(self._folder, catalog=self._catalog, spark=self._spark)

    def _reopen(self) -> None:
        self._wh.close()
        self._wh = self._connect()

    # -- what happens -----------------------------------------------------------------------------

    def _ingest(self, table: str = "", count: int | None = None) -> None:
        table = table or self._rng.choice(list(MODELS))
        self._labels += 1
        batch = rows(self._rng, self._rng.choice([0, 1, 12, 60]) if count is None else count)
        if table == "merged":
            batch = batch.set_column(4, "v", batch["v"].cast(pa.int64()))
        self.done[-1] += f": {batch.num_rows} rows into {table} as batch {self._labels}"
        self._last = (table, batch, f"batch {self._labels}")
        self._wh.ingest(*self._last, tasks=1)

    def _maintain(self) -> None:
        """All of it, with a look at one view whenever the QT moves."""
        end_leases(self._wh)
        for stage in self._wh.maintaining():
            self.done[-1] += f"; {stage}"
            if self._wh.catalog.state().qt > self._qt:
                self._check(most=1)
        told = self._wh.freshness()
        assert told["qt"] == told["clock"], "maintenance leaves nothing hidden"
        assert all(v["ready"] for v in self._wh.views())

    def _maintain_partly(self) -> None:
        planned = self._wh.explain_maintain()
        done = [str(s) for s in islice(self._wh.maintaining(), self._rng.choice([2, 3, 4]))]
        assert [str(p) for p in planned[:1]] == done[:1], "explain names the stage that runs"
        self.done[-1] += ": " + "; ".join(done)

    def _create(self) -> None:
        if len(self._views) >= _MOST_VIEWS:
            return
        state = self._wh.catalog.state()
        wanted = KINDS[(self._first_kind + self._made) % len(KINDS)]
        kind, sql = view_of(wanted, self._rng, {n: state.table(n) for n in self._views})
        self._made += 1
        name = f"v{self._made}"
        self.done.append(f"create {name}: {sql}")
        self._views[name], self._kinds[name] = sql, kind
        self._wh.create_view(name, sql, settings=self._settings())

    def _settings(self) -> dict[str, int]:
        """Every other view is always refreshed and compacted by Spark."""
        way = self._rng.choice([{}, {"in_process_bytes": 0}])
        return {"max_query_deltas": self._rng.choice([2, 4]), "compaction_width": 2, **way}

    def _drop(self) -> None:
        below = {s for v in self._wh.views() for s in v["over"]}
        free = [v for v in self._views if v not in below]
        if free:
            name = self._rng.choice(free)
            self.done[-1] += f": {name}"
            self._wh.drop_view(name)
            del self._views[name]

    def _relayout(self) -> None:
        end_leases(self._wh)
        filled = [t for t in (*MODELS, *self._views) if self._wh.deltas(t)]
        if filled:
            table = self._rng.choice(filled)
            key = self._wh.catalog.state().table(table).schema.key
            self.done[-1] += f": {table}"
            options = RelayoutOptions(block_rows=5, columns=[self._rng.choice(key)])
            self._wh.relayout(table, "kdtree", options=options)

    def _vacuum(self) -> None:
        gc.collect()  # frees what results of earlier steps still pin
        self._wh.vacuum(grace_s=0)
        assert self._wh.verify(quick=True) == []

    # -- crashes ----------------------------------------------------------------------------------

    def _crash(self, operation: str, point: str) -> None:
        """The operation dies at the point; whoever comes next finds what it left, and its leases for a while."""
        self._prepare(operation, point)
        self.done.append(f"{operation} dies at {point}")
        seen = len(self._wh.history(limit=10_000))
        times = self._rng.choice([1, 2]) if operation == "maintain" and point.startswith("commit.") else 1
        with dying(self._wh, point, times) as met:
            self._ingest(count=12) if operation == "ingest" else getattr(self, f"_{operation}")()
        assert met, f"{operation} did not come by {point}"
        self.met[f"crash: {operation} at {point}"] += 1
        self._reopen()
        if operation == "ingest":
            assert self._wh.ingest(*self._last, tasks=1).repeated == (point in COMMITTED)
        elif operation in ("create", "drop"):
            there = {t.name for t in self._wh.catalog.state().tables.values() if t.view}
            assert len(self._wh.history(limit=10_000)) == seen + (point in COMMITTED)
            for gone in [v for v in self._views if v not in there]:
                del self._views[gone]
            assert there >= set(self._views), "what the crash made is a view like others"
        if self._rng.random() < 0.5:
            end_leases(self._wh)
        self._check()

    def _prepare(self, operation: str, point: str) -> None:
        """What is needed to come by the failpoint: room for a view, batches to take in or merge, garbage."""
        if operation == "create" and len(self._views) >= _MOST_VIEWS:
            self._step(self._drop)
        if operation in ("drop", "maintain") and not self._views:
            self._step(self._create)
        if operation == "maintain":
            end_leases(self._wh)
            state = self._wh.catalog.state()
            ids = {t.table_id: t.name for t in state.tables.values()}
            over = [ids[s.table_id] for t in state.tables.values() if t.view for s in t.view.spec.sources]
            table = self._rng.choice([t for t in over if t in MODELS])
            for _ in range(4 if point.startswith("compact") else 2):
                self.done.append("before a crash")
                self._ingest(table, 12)
        if operation in ("relayout", "vacuum") and not any(self._wh.deltas(t) for t in MODELS):
            self.done.append("before a crash")
            self._ingest(count=12)
        if operation == "vacuum":
            self._step(self._relayout)

    # -- the law ----------------------------------------------------------------------------------

    def _check(self, *, all_of_them: bool = False, most: int = 3) -> None:
        """Views that are ready, against their definitions over the tables at the same QT."""
        state = self._wh.catalog.state()
        assert state.qt >= self._qt, "the QT never goes back"
        self._qt = state.qt
        names = [n for n in self._views if ready(state, state.table(n))]
        if not all_of_them:
            names = self._rng.sample(names, min(len(names), most))
        for name in names:
            sql = self._views[name]
            definition = self._wh.sql(sql, off=["views"]).plan
            executor = "local" if isinstance(definition.bound.local, LocalPlan) else "spark"
            if executor == "spark" and not all_of_them and self._rng.random() < 0.6:
                continue
            wanted = self._wh.sql(sql, executor=executor, off=["views"]).arrow()
            got = self._wh.sql(f"SELECT * FROM {name}", executor="local").arrow()
            assert got.schema.names == wanted.schema.names
            assert got.schema.types == wanted.schema.types
            assert _canonical(got) == _canonical(wanted), f"{name} at QT {state.qt}: {sql}"
            self._count(name, got)

    def _count(self, name: str, found: pa.Table) -> None:
        view = self._wh.catalog.state().table(name).view
        assert view is not None
        groups = set(_canonical(found.select([c.name for c in view.spec.groups])))
        gone = self._groups.get(name, set()) - groups
        self._groups[name] = groups
        self.met["checked"] += 1
        self.met[f"kind: {self._kinds[name]}"] += 1
        self.met[f"kept by {view.spec.how}"] += 1
        self.met["with a filter"] += bool(view.spec.where)
        self.met["groups gone"] += len(gone)


def _canonical(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(r)) for r in zip(*(c.to_pylist() for c in table.columns), strict=True))
