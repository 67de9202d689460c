"""Random steps on a warehouse and on the in-memory model, with what must hold after each."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import parquetry
from parquetry import RelayoutOptions
from parquetry.errors import LabelConflict, ParquetryError, UnknownTable
from parquetry.layouts.registry import LEARNERS
from parquetry.model.types import arrow_type
from parquetry.query.result import Result
from parquetry.query.rules import RULE_NAMES as RULES
from parquetry.warehouse import Warehouse
from tests.machine.asking import Question, Rows, canonical, everything, label_question, random_question
from tests.machine.memory import KEY, MemoryTable, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES = ("t0", "t1", "t2", "t3")
_VALUES = {"v": "bigint", "lo": "bigint", "hi": "double", "d": "decimal(12,2)", "r": "string"}
_MERGES = {"v": "sum", "lo": "min", "hi": "max", "d": "sum", "r": "replace"}
_ADDED = {"bigint": ("sum", "min", "max", "count", "replace"), "string": ("min", "replace"), "double": ("max", "sum")}


@dataclass(frozen=True)
class Held:
    """A reader that fixed its snapshot some steps ago and has not read yet."""

    connection: Warehouse
    result: Result
    expected: Rows


class Machine:
    """Two connections to one warehouse, and the model of what they should answer."""

    def __init__(self, rng: random.Random, folder: Path, catalog: str | None, spark: SparkSession) -> None:
        self._rng, self._folder, self._catalog, self._spark = rng, folder, catalog, spark
        self.done: list[str] = []
        self._qt = 0
        self._clock = 0
        self._labels = 0
        self._tables: dict[str, MemoryTable] = {}
        self._held: list[Held] = []
        self._open = [self._connect(), self._connect()]

    @property
    def main(self) -> Warehouse:
        return self._open[0]

    def close(self) -> None:
        self._held.clear()
        for connection in self._open:
            connection.close()

    def run(self, steps: int) -> None:
        """Every kind of step in a random order; raises what went wrong with the steps so far as a note."""
        try:
            for model in ("append", "upsert", "aggregate"):
                self._create(model)
            for step in self._steps(steps):
                self.done.append(step.__name__.strip("_"))
                step()
                self._check_laws()
            self._maintain()
            for table in self._tables.values():
                self._compare(self.main, everything(table))
            self._vacuum()
        except Exception as e:
            e.add_note("steps:\n  " + "\n  ".join(self.done))
            raise

    def _steps(self, steps: int) -> list[Callable[[], None]]:
        """So many in a random order, every kind among them if there is room."""
        often: dict[Callable[[], None], int] = {
            self._ingest: 26,
            self._query: 24,
            self._query_on_spark: 2,
            self._maintain: 8,
            self._maintain_partly: 10,
            self._hold_a_reader: 5,
            self._read_what_was_held: 5,
            self._ingest_again: 3,
            self._ingest_other_rows_under_a_used_label: 3,
            self._ingest_bad_rows: 1,
            self._add_column: 3,
            self._change_settings: 4,
            self._reopen: 3,
            self._vacuum: 5,
            self._drop_and_create: 2,
            self._relayout: 3,
        }
        more = self._rng.choices(list(often), list(often.values()), k=max(0, steps - len(often)))
        return self._rng.sample([*often, *more], steps)

    def _note(self, text: str) -> None:
        self.done[-1] += f": {text}"

    def _connect(self) -> Warehouse:
        return parquetry.connect(self._folder, catalog=self._catalog, spark=self._spark)

    def _some_table(self) -> MemoryTable:
        return self._rng.choice(list(self._tables.values()))

    # -- definitions ------------------------------------------------------------------------------

    def _create(self, model: str) -> None:
        rng = self._rng
        name = next(n for n in _NAMES if n not in self._tables)
        table = MemoryTable(name, model, {"k": "int", "s": "string", **_VALUES})
        if model == "aggregate":
            table.columns["c"] = "bigint"
            table.merges = {**_MERGES, "c": "count"}
        if model != "append" and rng.random() < 0.5:
            table.columns["q"] = "int"
            table.sequence = "q"
            if model == "aggregate":
                table.merges["q"] = "max"
        settings = self._random_settings()
        self.done.append(f"create {name}: {model}, sequence {table.sequence}, {settings}")
        self.main.create_table(
            name, table.ddl, key=KEY, model=model, values=table.merges, sequence=table.sequence, settings=settings
        )
        self._tables[name] = table

    def _random_settings(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "max_query_deltas": rng.choice([2, 3, 4, 16]),
            "compaction_width": rng.choice([2, 3, 8]),
            "compaction_fan_in": rng.choice([2, 4, 1000]),
            "row_group_rows": rng.choice([3, 7, 1000]),
            "file_bytes": rng.choice([1000, 1 << 20]),
            "leaf_capacity": rng.choice([2, 10]),
            "inner_capacity": rng.choice([2, 1000]),
            "compression": rng.choice(["snappy", "zstd", "none"]),
            "in_process_bytes": rng.choice([0, 2000, 1 << 25, 1 << 25]),
        }

    def _change_settings(self) -> None:
        table, settings = self._some_table(), self._random_settings()
        self._note(f"{table.name} {settings}")
        self.main.change_settings(table.name, **settings)

    def _add_column(self) -> None:
        table = self._some_table()
        name = f"x{len(table.columns)}"
        type_ = self._rng.choice(list(_ADDED))
        merge = self._rng.choice(_ADDED[type_]) if table.model == "aggregate" else None
        self._note(f"{table.name}.{name} {type_} {merge or ''}")
        self.main.add_column(table.name, name, type_, merge)
        table.columns[name] = type_
        if merge:
            table.merges[name] = merge

    def _drop_and_create(self) -> None:
        table = self._some_table()
        self._note(table.name)
        self.main.drop_table(table.name)
        del self._tables[table.name]
        with pytest.raises(UnknownTable):
            self.main.sql(f"SELECT * FROM {table.name}")
        self._create(table.model)

    # -- data in ----------------------------------------------------------------------------------

    def _ingest(self) -> None:
        rng, table = self._rng, self._some_table()
        self._labels += 1
        label = f"batch {self._labels}"
        rows = [] if rng.random() < 0.08 else self._random_rows(table, label)
        given = table.batch_table(rows)
        tasks = rng.choice([1, 1, 1, 1, 2])
        done = self.main.ingest(table.name, given, label, tasks=tasks)
        self._note(f"{len(rows)} rows into {table.name} as {label!r} in {tasks} tasks at t = {done.t}")
        assert (done.rows, done.repeated, done.label) == (len(rows), False, label)
        assert done.t > self._clock
        self._clock = done.t
        table.commit(label, done.t, rows, given)

    def _random_rows(self, table: MemoryTable, label: str) -> list[Row]:
        rng = self._rng
        left_out = {n for n in table.columns if n not in KEY and n != "v" and rng.random() < 0.1}
        names = [n for n in table.columns if n not in KEY and n not in left_out]
        rows: list[Row] = [{"k": -1, "s": label} | {n: self._random_value(table.columns[n]) for n in names}]
        for _ in range(rng.choice([0, 3, 10, 40])):
            key = {"k": rng.randint(0, 30), "s": rng.choice(["a", "b", "c", "d", "é", "\U0001f600", ""])}
            rows.append(key | {n: self._random_value(table.columns[n]) for n in names})
        rng.shuffle(rows)
        return rows

    def _random_value(self, type_: str) -> Any:
        rng = self._rng
        if rng.random() < 0.15:
            return None
        if type_ == "double":
            return rng.randint(-40, 40) / 4  # sums of quarters are exact in any order
        if type_.startswith("decimal"):
            return Decimal(rng.randint(-5000, 5000)).scaleb(-2)
        return rng.choice(["x", "yy", "ß", "", "\U0001f680"]) if type_ == "string" else rng.randint(-50, 99)

    def _ingest_again(self) -> None:
        table = self._some_table()
        if not table.batches:
            return
        batch = self._rng.choice(table.batches)
        order = list(range(batch.given.num_rows))
        self._rng.shuffle(order)
        self._note(f"{table.name} {batch.label!r}")
        done = self.main.ingest(table.name, batch.given.take(pa.array(order, pa.int64())), batch.label, tasks=1)
        assert (done.repeated, done.t, done.rows) == (True, batch.t, len(batch.rows))

    def _ingest_other_rows_under_a_used_label(self) -> None:
        table = self._some_table()
        if not table.batches:
            return
        batch = self._rng.choice(table.batches)
        other = self._with_one_value_moved(batch.given)
        if other is None or self._rng.random() < 0.3:
            other = table.batch_table(self._random_rows(table, f"never {len(self.done)}"))
        self._note(f"{table.name} {batch.label!r}")
        with pytest.raises(LabelConflict):
            self.main.ingest(table.name, other, batch.label, tasks=1)

    def _with_one_value_moved(self, given: pa.Table) -> pa.Table | None:
        """The batch with a value of ``v`` and a null of ``lo`` exchanged in one row: nearly the same batch."""
        rows = given.to_pylist()
        for row in rows:
            if "lo" in row and (row["v"] is None) != (row["lo"] is None):
                row["v"], row["lo"] = row["lo"], row["v"]
                return pa.Table.from_pylist(rows, schema=given.schema)
        return None

    def _ingest_bad_rows(self) -> None:
        table = self._some_table()
        rows: list[Row] = [{"k": 1, "s": "a", "v": 1}, {"k": None, "s": "a", "v": 2}]
        self._note(table.name)
        with pytest.raises(ParquetryError, match="null in key column 'k'"):
            self.main.ingest(table.name, table.batch_table(rows), f"bad {len(self.done)}", tasks=1)

    # -- maintenance ------------------------------------------------------------------------------

    def _maintain(self) -> None:
        stages = self.main.maintain()
        self.done.append("maintained: " + "; ".join(map(str, stages)))
        assert self.main.freshness()["qt"] == self._clock, "maintenance leaves nothing hidden"
        for table in self._tables:
            allowed = self.main.catalog.state().table(table).settings.max_query_deltas
            assert len(self.main.deltas(table)) <= allowed

    def _maintain_partly(self) -> None:
        planned = self.main.explain_maintain()
        # A stage is performed when the next one is asked for.
        done = [str(stage) for stage in islice(self.main.maintaining(), self._rng.choice([2, 2, 3]))]
        assert [str(p) for p in planned[:1]] == done[:1], "explain names the stage that runs"
        self._note("; ".join(done))

    def _vacuum(self) -> None:
        gc.collect()  # frees what results of earlier steps still pin
        alone = not self._held and self._rng.random() < 0.5
        if alone:
            self._open[1].close()
        removed = self.main.vacuum(grace_s=0)
        if alone:
            on_disk = {os.path.relpath(p, self._folder / "data") for p in (self._folder / "data").rglob("*.*")}
            state = self.main.catalog.state()
            assert on_disk == {f.path for t in state.tables.values() for d in t.deltas for f in (*d.files, d.index)}
            self._open[1] = self._connect()
        self.done.append(f"vacuumed: {removed}")
        assert self.main.verify() == []

    def _relayout(self) -> None:
        rng, table = self._rng, self._some_table()
        if not self.main.deltas(table.name):
            return
        learner = rng.choice(list(LEARNERS))
        columns = rng.choice(
            [["k"], ["k", "s"], ["s"]] if table.model != "append" else [["v"], ["k", "d"], ["hi", "s"]]
        )
        self._note(f"{table.name} by {learner} on {columns}")
        self.main.relayout(table.name, learner, options=RelayoutOptions(block_rows=5, columns=columns))

    def _reopen(self) -> None:
        which = self._rng.randrange(2)
        self._note(f"connection {which}")
        for held in [h for h in self._held if h.connection is self._open[which]]:
            self._read(held)
        self._open[which].close()
        self._open[which] = self._connect()

    # -- queries ----------------------------------------------------------------------------------

    def _query(self) -> None:
        question = random_question(self._rng, self._some_table())
        off = self._rng.choice([(), (), RULES, (self._rng.choice(RULES),)])
        self._note(f"{question.sql}, off {off}")
        self._compare(self._rng.choice(self._open), question, off=off)

    def _query_on_spark(self) -> None:
        question = random_question(self._rng, self._some_table())
        self._note(question.sql)
        self._compare(self._rng.choice(self._open), question, executor="spark")

    def _hold_a_reader(self) -> None:
        connection = self._rng.choice(self._open)
        table = self._some_table()
        question = random_question(self._rng, table)
        executor = self._rng.choice(["local", "local", "local", "spark"])
        self._note(f"{question.sql} on {executor}")
        result = connection.sql(question.sql, executor=executor)
        qt = result.plan.snapshot.qt
        self._held.append(Held(connection, result, question.answer(table.content(qt))))

    def _read_what_was_held(self) -> None:
        if self._held:
            self._read(self._rng.choice(self._held))

    def _read(self, held: Held) -> None:
        self._held.remove(held)
        self.done.append(f"read what was held: {held.result.plan.bound.sql} at QT {held.result.plan.snapshot.qt}")
        assert canonical(_tuples(held.result.arrow())) == canonical(held.expected)

    def _compare(self, connection: Warehouse, question: Question, *, executor: str = "local", off: Any = ()) -> int:
        """Asks the warehouse and the model at the warehouse's QT; gives that QT."""
        result = connection.sql(question.sql, executor=executor, off=off)
        table = next(t for t in self._tables.values() if f"FROM {t.name}" in question.sql)
        got, qt = result.arrow(), int(result.stats["qt"])
        expected = canonical(question.answer(table.content(qt)))
        assert canonical(_tuples(got)) == expected, f"{question.sql} on {executor} at QT {qt}, {off=}"
        if question.sql.startswith("SELECT * "):
            assert got.schema.names == list(table.columns)
            assert got.schema.types == [arrow_type(t) for t in table.columns.values()]
        return qt

    # -- what always holds ------------------------------------------------------------------------

    def _check_laws(self) -> None:
        for connection in self._open:
            qt = connection.freshness()["qt"]
            assert qt >= self._qt, "the QT never goes back"
            assert qt <= self._clock
            self._qt = qt
        for name, table in self._tables.items():
            spans = [(d["t_lo"], d["t_hi"]) for d in self.main.deltas(name)]
            assert all(lo <= hi for lo, hi in spans)
            assert all(a[1] < b[0] for a, b in pairwise(spans)), "deltas never overlap"
            result = self._rng.choice(self._open).sql(label_question(table).sql, executor="local")
            visible = sorted(s for (s,) in _tuples(result.arrow()))
            assert visible == table.labels(result.stats["qt"]), "a query sees exactly the labels up to its QT"
            assert result.stats["qt"] == self._qt
        if len(self.done) % 10 == 0:
            assert self.main.verify(quick=True) == []


def _tuples(table: pa.Table) -> Rows:
    return [tuple(r.values()) for r in table.to_pylist()]
