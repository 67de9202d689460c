"""Random steps on tables and views, with the law after each: a view equals its definition at the QT, exactly."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import parquetry
from parquetry.maintain.relayout import RelayoutOptions
from parquetry.model.freshness import ready
from parquetry.query.local_plan import LocalPlan
from parquetry.warehouse import Warehouse
from tests.views.random_views import DDL, random_view, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODELS = {"appended": "append", "upserted": "upsert", "merged": "aggregate", "shops": "upsert"}
_MERGES = {"c": "replace", "g": "min", "v": "max", "w": "sum", "d": "sum", "f": "max"}
_OVER_MERGED = [
    "SELECT day, sum(w) AS w, max(f) AS f FROM merged GROUP BY day",
    "SELECT k, sum(d) AS d, max(day) AS last FROM merged WHERE k < 15 GROUP BY k",
    "SELECT c, count(*) AS n, sum(w) AS w FROM merged GROUP BY c",
    "SELECT g, min(g) AS m, max(v) AS v FROM merged WHERE v > 0 GROUP BY g",
]
_JOINED = [
    "SELECT s.c AS shop, sum(a.v) AS v, count(*) AS n FROM appended a JOIN shops s ON a.k = s.k GROUP BY s.c",
    "SELECT s.g, a.g AS own, max(a.w) AS w, count(a.v) AS n FROM appended a JOIN shops s ON a.k = s.k GROUP BY 1, 2",
]


class ViewMachine:
    """Four tables, up to six views over them and over each other."""

    def __init__(self, rng: random.Random, folder: Path, spark: SparkSession) -> None:
        self._rng, self._folder, self._spark = rng, folder, spark
        self.done: list[str] = []
        self._labels = 0
        self._views: dict[str, str] = {}
        self.checked: dict[str, int] = {}
        self._wh = self._connect()
        for table, model in _MODELS.items():
            values = _MERGES if model == "aggregate" else {}
            key = ["k"] if table == "shops" else ["k", "day"]
            ddl = DDL.replace("v int", "v bigint") if table == "merged" else DDL
            settings = {"max_query_deltas": rng.choice([2, 3, 8]), "compaction_width": rng.choice([2, 4])}
            self._wh.create_table(table, ddl, key=key, model=model, values=values, settings=settings)

    def close(self) -> None:
        self._wh.close()

    def run(self, steps: int) -> None:
        often: dict[Callable[[], None], int] = {
            self._ingest: 10,
            self._maintain: 4,
            self._maintain_partly: 8,
            self._create: 5,
            self._drop: 1,
            self._relayout: 1,
            self._vacuum: 1,
            self._reopen: 1,
        }
        try:
            for _ in range(2):
                self._create()
            for _ in range(steps):
                step = self._rng.choices(list(often), list(often.values()))[0]
                self.done.append(step.__name__.strip("_"))
                step()
                self._check()
            self._maintain()
            self._check(all_of_them=True)
        except Exception as e:
            e.add_note("steps:\n  " + "\n  ".join(self.done))
            raise

    def _connect(self) -> Warehouse:
        return parquetry.connect(self._folder, spark=self._spark)

    def _ingest(self) -> None:
        table = self._rng.choice(list(_MODELS))
        self._labels += 1
        batch = rows(self._rng, self._rng.choice([0, 1, 12, 60]))
        if table == "merged":
            batch = batch.set_column(4, "v", batch["v"].cast(pa.int64()))
        done = self._wh.ingest(table, batch, f"batch {self._labels}", tasks=1)
        self.done[-1] += f": {batch.num_rows} rows into {table} at t = {done.t}"

    def _maintain(self) -> None:
        self.done.append("maintained: " + "; ".join(map(str, self._wh.maintain())))
        told = self._wh.freshness()
        assert told["qt"] == told["clock"], "maintenance leaves nothing hidden"
        assert all(v["ready"] for v in self._wh.views())

    def _maintain_partly(self) -> None:
        planned = self._wh.explain_maintain()
        done = [str(s) for s in islice(self._wh.maintaining(), self._rng.choice([2, 3, 4]))]
        assert [str(p) for p in planned[:1]] == done[:1], "explain names the stage that runs"
        self.done[-1] += ": " + "; ".join(done)

    def _create(self) -> None:
        if len(self._views) >= 6:
            return
        rng, name = self._rng, f"v{len(self.done)}"
        kinds = ["appended", "upserted", "exact", "merged", "joined", "view"]
        kind = rng.choice(kinds if self._views else kinds[:-1])
        if kind == "merged":
            sql = rng.choice(_OVER_MERGED)
        elif kind == "joined":
            sql = rng.choice(_JOINED)
        elif kind == "view":
            sql = self._over_a_view(rng.choice(list(self._views)))
        else:
            sql = random_view(rng, "upserted" if kind == "exact" else kind, exact=kind == "exact", sketches=True)
        self.done.append(f"create {name}: {sql}")
        self._wh.create_view(
            name, sql, settings={"max_query_deltas": rng.choice([2, 4]), "compaction_width": rng.choice([2, 3])}
        )
        self._views[name] = sql

    def _over_a_view(self, name: str) -> str:
        state = self._wh.catalog.state().table(name)
        assert state.view is not None
        group = self._rng.choice(state.view.spec.groups).name
        made = []
        for i, c in enumerate(state.view.spec.aggregates):
            exact = c.type == "bigint" or c.type.startswith("decimal(22")
            fitting = {"sum": "sum", "count": "sum"}.get(c.function, c.function)
            if fitting in ("min", "max") or (fitting == "sum" and exact):
                made.append(f"{fitting}({c.name}) AS b{i}")
        kept = [*made, "count(*) AS n"][: self._rng.randint(1, 3)]
        return f"SELECT {group}, {', '.join(kept)} FROM {name} GROUP BY {group}"

    def _drop(self) -> None:
        below = {s for v in self._wh.views() for s in v["over"]}
        free = [v for v in self._views if v not in below]
        if free:
            name = self._rng.choice(free)
            self.done[-1] += f": {name}"
            self._wh.drop_view(name)
            del self._views[name]

    def _relayout(self) -> None:
        table = self._rng.choice([*_MODELS, *self._views])
        if self._wh.deltas(table):
            key = self._wh.catalog.state().table(table).schema.key
            self.done[-1] += f": {table}"
            options = RelayoutOptions(block_rows=5, columns=[self._rng.choice(key)])
            self._wh.relayout(table, "kdtree", options=options)

    def _vacuum(self) -> None:
        self._wh.vacuum(grace_s=0)
        assert self._wh.verify(quick=True) == []

    def _reopen(self) -> None:
        self._wh.close()
        self._wh = self._connect()

    def _check(self, *, all_of_them: bool = False) -> None:
        """Every view that is ready, or one of them, against its definition over the tables at the same QT."""
        state = self._wh.catalog.state()
        names = [n for n in self._views if ready(state, state.table(n))]
        if not all_of_them:
            names = self._rng.sample(names, min(len(names), 3))
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
            how = state.table(name).view
            assert how is not None
            self.checked[how.spec.how] = self.checked.get(how.spec.how, 0) + 1


def _canonical(table: pa.Table) -> list[str]:
    return sorted(repr(tuple(r)) for r in zip(*(c.to_pylist() for c in table.columns), strict=True))
