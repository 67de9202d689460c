"""Random tables, view definitions and queries, of what the views rule should and should not match."""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

DDL = "k int, day date, c string, g int, v int, w bigint, d decimal(12,2), f double"
ARROW = pa.schema(
    [
        ("k", pa.int32()),
        ("day", pa.date32()),
        ("c", pa.string()),
        ("g", pa.int32()),
        ("v", pa.int32()),
        ("w", pa.int64()),
        ("d", pa.decimal128(12, 2)),
        ("f", pa.float64()),
    ]
)
GROUPS = {"day": "day", "c": "c", "g": "g", "k": "k", "y": "year(day)", "m": "month(day)", "g1": "g + 1"}
AGGREGATES = [
    "sum(v)", "count(*)", "count(v)", "min(v)", "max(w)", "avg(v)", "avg(d)", "sum(d)", "sum(w)", "min(c)", "sum(f)",
    "max(day)", "sum(v * 2)", "count(k)", "avg(w)", "max(f)", "min(d)",
]  # fmt: skip
SKETCHES = ["approx_count_distinct(v)", "approx_count_distinct(c)", "approx_count_distinct(f)"]
CONDITIONS = ["g > 1", "c = 'a'", "day >= DATE '2020-01-20'", "v > 0", "c IS NOT NULL", "g IN (1, 2, 3)", "k < 12"]


def rows(rng: random.Random, count: int) -> pa.Table:
    """Rows with nulls everywhere but in the key; sums of quarters are exact in any order."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    found = [
        {
            "k": rng.randint(0, 20),
            "day": date(2019, 12, 20) + timedelta(days=rng.randint(0, 60)),
            "c": maybe(rng.choice(["a", "b", "é", ""])),
            "g": maybe(rng.randint(0, 4)),
            "v": maybe(rng.randint(-50, 50)),
            "w": maybe(rng.randint(-(2**40), 2**40)),
            "d": maybe(Decimal(rng.randint(-5000, 5000)).scaleb(-2)),
            "f": maybe(rng.randint(-40, 40) / 4),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(found, schema=ARROW)


def random_view(rng: random.Random, table: str, *, exact: bool = False, sketches: bool = False) -> str:
    """A definition over ``table``; with ``exact`` one whose change can be added and taken away."""
    groups = rng.sample(list(GROUPS), rng.randint(1, 3))
    allowed = [a for a in AGGREGATES if not exact or (a.startswith(("sum", "count", "avg")) and "(f)" not in a)]
    allowed = [a for a in allowed if not exact or a != "avg(w)"]
    chosen = rng.sample(allowed, rng.randint(1, 5))
    if sketches and not exact:
        chosen += rng.sample(SKETCHES, rng.randint(0, 2))
    listed = [f"{GROUPS[g]} AS {g}" if GROUPS[g] != g else g for g in groups]
    listed += [f"{a} AS a{i}" for i, a in enumerate(chosen)]
    where = f" WHERE {' AND '.join(rng.sample(CONDITIONS, rng.randint(1, 2)))}" if rng.random() < 0.4 else ""
    return f"SELECT {', '.join(listed)} FROM {table}{where} GROUP BY {', '.join(GROUPS[g] for g in groups)}"


def random_condition(rng: random.Random, groups: list[str]) -> str:
    """A condition on what is grouped by, or on anything."""
    on = rng.choice(groups)
    low, high = _VALUES.get(on, ("1", "3"))
    simple = [
        f"{on} IS NOT NULL",
        f"{on} IS NULL",
        f"{on} BETWEEN {low} AND {high}",
        f"{on} NOT BETWEEN {low} AND {high}",
        f"{on} IN ({low}, {high})",
        f"NOT ({on} = {low})",
        f"{on} >= {low}",
        f"{on} <=> {high}",
        rng.choice(CONDITIONS),
    ]
    if rng.random() < 0.35:
        return f"({rng.choice(simple)} OR {rng.choice(simple)})"
    return rng.choice(simple)


_VALUES = {
    "day": ("DATE '2020-01-01'", "DATE '2020-01-25'"),
    "c": ("'a'", "'b'"),
    "k": ("3", "11"),
    "year(day)": ("2019", "2020"),
    "month(day)": ("1", "2"),
}
_AROUND = ["{} + 1", "coalesce({}, 0)", "CASE WHEN count(*) > 3 THEN {} END", "0 - {}"]


def random_query(rng: random.Random, table: str, views: list[str]) -> str:
    """A query over ``table``: often a coarser form of one of the views, sometimes anything."""
    near = rng.choice(views) if views and rng.random() < 0.8 else random_view(rng, table)
    head, _, groups = near.partition(" GROUP BY ")
    head, _, where = head.partition(" WHERE ")
    items = head.removeprefix("SELECT ").removesuffix(f" FROM {table}").split(", ")
    aggregates = [i.rpartition(" AS ")[0] for i in items if i.rpartition(" AS ")[2].startswith("a")]
    kept = [g for g in groups.split(", ") if rng.random() < 0.6]
    chosen = [a for a in aggregates if rng.random() < 0.7] or aggregates[:1]
    if rng.random() < 0.1:
        chosen.append(rng.choice(AGGREGATES))
    if kept and rng.random() < 0.15:
        chosen.append(rng.choice([f"count(DISTINCT {kept[0]})", f"max({kept[0]})"]))
    if kept and rng.random() < 0.1:
        return f"SELECT DISTINCT {', '.join(kept)} FROM {table}" + (f" WHERE {where}" if where else "")
    named = [f"{a} AS x{i}" if rng.random() < 0.4 else a for i, a in enumerate(chosen)]
    if chosen[0].startswith(("sum(v", "sum(w", "count", "avg(v")) and rng.random() < 0.25:
        named.append(rng.choice(_AROUND).format(chosen[0]) + " AS y")
    conditions = [where] if where and rng.random() < 0.95 else []
    while rng.random() < 0.4:
        conditions.append(random_condition(rng, groups.split(", ")))
    sql = f"SELECT {', '.join([*kept, *named])} FROM {table}"
    sql += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql += f" GROUP BY {', '.join(kept)}" if kept else ""
    if kept and rng.random() < 0.25:
        sql += " HAVING " + rng.choice([f"{chosen[0]} IS NOT NULL", f"NOT ({chosen[0]} IS NULL OR {kept[0]} IS NULL)"])
        sql += rng.choice(["", "", " AND count(*) > 1"])
    if kept and rng.random() < 0.3:
        # Spark finds a grouping expression in ORDER BY only where there is no HAVING.
        by = [str(i + 1) for i in range(len(kept))] if "HAVING" in sql else kept
        first = f"{len(kept) + 1} DESC, " if rng.random() < 0.5 else ""
        sql += f" ORDER BY {first}{', '.join(by)}" + (" LIMIT 5" if rng.random() < 0.5 else "")
    return sql


FEATURES = {
    "OR": r" OR ",
    "IN": r" IN \(",
    "BETWEEN": r" BETWEEN ",
    "IS NULL": r"IS NULL",
    "null-safe": r"<=>",
    "HAVING": r" HAVING ",
    "ORDER BY": r" ORDER BY ",
    "LIMIT": r" LIMIT ",
    "DISTINCT": r"SELECT DISTINCT|count\(DISTINCT",
    "an expression in GROUP BY": r"GROUP BY .*(year|month|g \+ 1)",
    "no GROUP BY": r"^(?!.*(GROUP BY|DISTINCT))",
    "avg": r"avg\(",
    "around an aggregate": r" AS y\b",
}
"""What queries answered by views must have been among them, by a pattern of their text."""
