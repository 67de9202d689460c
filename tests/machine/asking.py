"""Random queries with their answers from the in-memory model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.machine.memory import MemoryTable, Row

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Question:
    sql: str
    answer: Callable[[list[Row]], Rows]  # from the table's content


def label_question(table: MemoryTable) -> Question:
    """Every batch with rows has one row with k = -1 and its label in s."""
    return Question(f"SELECT s FROM {table.name} WHERE k = -1", lambda rows: [(r["s"],) for r in rows if r["k"] == -1])


def everything(table: MemoryTable) -> Question:
    return Question(f"SELECT * FROM {table.name}", lambda rows: [tuple(r.values()) for r in rows])


def random_question(rng: random.Random, table: MemoryTable) -> Question:
    shapes = [_point, _range, _by_value, _strings, _nulls, _groups, _total, _extremes]
    return everything(table) if rng.random() < 0.25 else rng.choice(shapes)(rng, table)


def canonical(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def _where(table: MemoryTable, text: str, test: Callable[[Row], bool]) -> Question:
    return Question(
        f"SELECT * FROM {table.name} WHERE {text}", lambda rows: [tuple(r.values()) for r in rows if test(r)]
    )


def _point(rng: random.Random, table: MemoryTable) -> Question:
    k, s = rng.randint(0, 30), rng.choice("abcd")
    return _where(table, f"k = {k} AND s = '{s}'", lambda r: r["k"] == k and r["s"] == s)


def _range(rng: random.Random, table: MemoryTable) -> Question:
    low = rng.randint(-2, 30)
    high = low + rng.randint(0, 8)
    return _where(table, f"k BETWEEN {low} AND {high}", lambda r: low <= r["k"] <= high)


def _by_value(rng: random.Random, table: MemoryTable) -> Question:
    v = rng.randint(-40, 90)
    return _where(table, f"v > {v}", lambda r: r["v"] is not None and r["v"] > v)


def _strings(rng: random.Random, table: MemoryTable) -> Question:
    wanted = rng.sample(["a", "b", "c", "d", "é", "\U0001f600", ""], 2)
    listed = ", ".join(f"'{w}'" for w in wanted)
    return _where(table, f"s IN ({listed}) AND k >= 3", lambda r: r["s"] in wanted and r["k"] >= 3)


def _nulls(rng: random.Random, table: MemoryTable) -> Question:
    name = rng.choice([n for n in table.columns if n not in ("k", "s")])
    if rng.random() < 0.5:
        return _where(table, f"{name} IS NULL", lambda r: r[name] is None)
    return _where(table, f"{name} IS NOT NULL AND k < 20", lambda r: r[name] is not None and r["k"] < 20)


def _groups(rng: random.Random, table: MemoryTable) -> Question:
    def answer(rows: list[Row]) -> Rows:
        found = []
        for k in {r["k"] for r in rows}:
            group = [r for r in rows if r["k"] == k]
            values = _values(group, "v")
            found.append((k, len(group), len(values), _sum(values), min(r["s"].encode() for r in group).decode()))
        return found

    return Question(
        f"SELECT k, count(*) AS n, count(v) AS nv, sum(v) AS v, min(s) AS s FROM {table.name} GROUP BY k", answer
    )


def _total(rng: random.Random, table: MemoryTable) -> Question:
    """On aggregate tables this one needs no merge."""
    k = rng.randint(0, 35)
    return Question(
        f"SELECT sum(v) AS v FROM {table.name} WHERE k < {k}",
        lambda rows: [(_sum(_values([r for r in rows if r["k"] < k], "v")),)],
    )


def _extremes(rng: random.Random, table: MemoryTable) -> Question:
    def answer(rows: list[Row]) -> Rows:
        lo, hi = _values(rows, "lo"), _values(rows, "hi")
        return [(min(lo, default=None), max(hi, default=None), max((r["k"] for r in rows), default=None))]

    return Question(f"SELECT min(lo) AS lo, max(hi) AS hi, max(k) AS k FROM {table.name}", answer)


def _values(rows: list[Row], name: str) -> list[Any]:
    return [r[name] for r in rows if r[name] is not None]


def _sum(values: list[Any]) -> Any:
    return sum(values) if values else None
