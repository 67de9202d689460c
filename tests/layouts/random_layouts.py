"""Random tables of every flat type, random tree layouts over their values, and a plain walk of a layout's tree."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from parquetry.model.box import Box, Interval
from parquetry.model.layout import Cut, Groups, Leaf, Node, TreeLayout
from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.model.values import order_key

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [-5, -1, 0, 1, 2, 7, 2**40]),
    "f": (pa.float64(), [float("-inf"), -1.5, -0.0, 0.0, 2.25, float("inf"), float("nan")]),
    "g": (pa.float32(), [-1.5, 0.0, 0.25, 1e10, float("nan")]),
    "d": (pa.decimal128(10, 2), [Decimal("-3.50"), Decimal("0.00"), Decimal("0.01"), Decimal("99999.99")]),
    "e": (pa.decimal128(38, 4), [Decimal("-1E20"), Decimal("0.0001"), Decimal("12345678901234567890.1234")]),
    "s": (pa.string(), ["", "a", "it's", "back\\slash", "z", "é", "日本", "\U0001f600"]),
    "b": (pa.binary(), [b"", b"\x00", b"a", b"\xff\x00"]),
    "t": (pa.bool_(), [False, True]),
    "day": (pa.date32(), [date(1900, 1, 1), date(1969, 12, 31), date(1994, 1, 1), date(2099, 1, 1)]),
    "at": (
        pa.timestamp("us", tz="UTC"),
        [datetime(1960, 5, 5, tzinfo=UTC), datetime(2020, 3, 29, 2, 30, 0, 123456, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), [datetime(1960, 5, 5), datetime(2020, 3, 29, 2, 30, 0, 1), datetime(2021, 1, 1)]),
}


def random_table(rng: random.Random, rows: int, columns: list[str] | None = None) -> pa.Table:
    names = columns or list(POOLS)
    arrays = {}
    for name in names:
        kind, pool = POOLS[name]
        values = [None if rng.random() < 0.1 else _near(rng, rng.choice(pool)) for _ in range(rows)]
        arrays[name] = pa.array(values, kind)
    return pa.table(arrays)


def _near(rng: random.Random, value: Any) -> Any:
    """A value at a boundary or right beside it."""
    if rng.random() < 0.6:
        return value
    match value:
        case bool() | bytes():
            return value
        case int():
            return value + rng.choice([-1, 1])
        case float():
            return value + rng.choice([-0.5, 0.5])
        case str():
            return value + rng.choice(["", "0", "é"])
        case Decimal():
            return value + rng.choice([Decimal("0.01"), Decimal("-0.01")])
        case datetime():
            return value + rng.choice([-1, 1]) * timedelta(microseconds=1)
        case date():
            return value + rng.choice([-1, 1]) * timedelta(days=1)
    return value


def random_interval(rng: random.Random, name: str) -> Interval:
    pool = sorted(POOLS[name][1], key=order_key)
    lo, hi = sorted((rng.choice(pool), rng.choice(pool)), key=order_key)
    if rng.random() < 0.2:
        return Interval(None, hi, False, rng.random() < 0.3, nulls=rng.random() < 0.5)
    if rng.random() < 0.2:
        return Interval(lo, None, rng.random() < 0.3)
    return Interval(lo, hi, rng.random() < 0.3, rng.random() < 0.3)


def random_tree(rng: random.Random, names: list[str], depth: int = 4) -> TreeLayout:
    nodes: list[Node | None] = []
    blocks = 0

    def build(level: int) -> int:
        nonlocal blocks
        here = len(nodes)
        nodes.append(None)
        if level == 0 or rng.random() < 0.15:
            nodes[here] = Leaf(blocks)
            blocks += 1
        elif rng.random() < 0.7:
            name = rng.choice(names)
            op, value = rng.choice(["<", "<="]), rng.choice(POOLS[name][1])
            left = build(level - 1)
            nodes[here] = Cut(name, op, value, left, build(level - 1))
        else:
            boxes = tuple(
                Box({n: random_interval(rng, n) for n in rng.sample(names, k=min(len(names), rng.randint(1, 2)))})
                for _ in range(rng.randint(1, 3))
            )
            inner = tuple(build(level - 1) for _ in boxes)
            nodes[here] = Groups(boxes, inner, build(level - 1))
        return here

    build(depth)
    return TreeLayout("test", tuple(names), tuple(n for n in nodes if n is not None))


def walk(spec: TreeLayout, row: Mapping[str, Any]) -> int:
    """The block of one row, by the words of the spec alone."""
    node = spec.nodes[0]
    while not isinstance(node, Leaf):
        if isinstance(node, Cut):
            value = row[node.column]
            key, bound = value if value is None else order_key(value), order_key(node.value)
            left = key is None or (key < bound if node.op == "<" else key <= bound)
            node = spec.nodes[node.left if left else node.right]
        else:
            inside = (c for box, c in zip(node.boxes, node.children, strict=True) if box.contains(row))
            node = spec.nodes[next(inside, node.rest)]
    return node.block


def random_predicate(rng: random.Random, names: list[str], depth: int = 2) -> Predicate:
    kind = rng.random()
    if depth and kind < 0.5:
        parts = tuple(random_predicate(rng, names, depth - 1) for _ in range(rng.randint(1, 3)))
        return And(parts) if rng.random() < 0.6 else Or(parts)
    name = rng.choice(names)
    if kind < 0.75:
        i = random_interval(rng, name)
        return Range(name, i.lo, i.hi, i.lo_open, i.hi_open)
    if kind < 0.85:
        return OneOf(name, frozenset(v for v in rng.choices(POOLS[name][1], k=3)))
    others: list[Predicate] = [IsNull(name), NotNull(name), Anything("no idea"), Nothing()]
    return rng.choice(others)


def satisfies(predicate: Predicate, row: Mapping[str, Any]) -> bool:
    match predicate:
        case And(parts):
            return all(satisfies(p, row) for p in parts)
        case Or(parts):
            return any(satisfies(p, row) for p in parts)
        case Range(c, lo, hi, lo_open, hi_open):
            return Interval(lo, hi, lo_open, hi_open).contains(row[c])
        case OneOf(c, values):
            return row[c] is not None and order_key(row[c]) in {order_key(v) for v in values}
        case IsNull(c):
            return row[c] is None
        case NotNull(c):
            return row[c] is not None
        case Anything():
            return True
    return False
