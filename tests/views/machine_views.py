"""Definitions for the view machine: over every table model, over joins, and over other views."""

from __future__ import annotations

import random

from parquetry.model.state import TableState
from tests.views.random_views import random_view

MODELS = {"appended": "append", "upserted": "upsert", "merged": "aggregate", "shops": "upsert"}
MERGES = {"c": "replace", "g": "min", "v": "max", "w": "sum", "d": "sum", "f": "max"}
_PREFIXED = [
    "SELECT k, day, sum(v) AS v, count(*) AS n, max(f) AS f FROM appended GROUP BY k, day",
    "SELECT k, sum(d) AS d, min(c) AS c FROM appended WHERE v > 0 GROUP BY k",
    "SELECT k, c, avg(v) AS v, approx_count_distinct(w) AS w FROM appended GROUP BY k, c",
]
_OVER_MERGED = [
    "SELECT day, sum(w) AS w, max(f) AS f FROM merged GROUP BY day",
    "SELECT k, sum(d) AS d, max(day) AS last FROM merged WHERE k < 15 GROUP BY k",
    "SELECT c, count(*) AS n, sum(w) AS w FROM merged GROUP BY c",
    "SELECT g, min(g) AS m, max(v) AS v FROM merged WHERE v > 0 GROUP BY g",
    "SELECT k, year(day) AS y, avg(d) AS d, approx_count_distinct(c) AS c FROM merged GROUP BY k, year(day)",
]
_JOINED = [
    "SELECT s.c AS shop, sum(a.v) AS v, count(*) AS n FROM appended a JOIN shops s ON a.k = s.k GROUP BY s.c",
    "SELECT s.g, a.g AS own, max(a.w) AS w, count(a.v) AS n FROM appended a JOIN shops s ON a.k = s.k GROUP BY 1, 2",
    "SELECT s.c, u.day, sum(u.d) AS d, avg(u.v) AS v FROM upserted u JOIN shops s ON u.k = s.k "
    "WHERE s.g > 0 AND u.v < 30 GROUP BY s.c, u.day",
    "SELECT u.k, min(u.v) AS v, sum(s.d) AS d FROM upserted u JOIN shops s ON u.k = s.k AND u.g = s.g GROUP BY u.k",
    "SELECT s.c, sum(m.w) AS w, count(m.d) AS n FROM merged m JOIN shops s ON m.k = s.k WHERE m.v > 0 GROUP BY s.c",
    "SELECT s.g, u.c, sum(a.w) AS w, count(*) AS n FROM appended a JOIN shops s ON a.k = s.k "
    "JOIN upserted u ON s.k = u.k AND a.day = u.day GROUP BY s.g, u.c",
]


KINDS = ("prefix", "exact", "joined", "view", "merged", "upserted", "joined", "view", "appended")
"""What views are over, or how: one that shares its table's key order, sums of exact values that can be taken away, …"""


def view_of(kind: str, rng: random.Random, views: dict[str, TableState]) -> tuple[str, str]:
    """A definition of the kind, over the tables or ``views``; and the kind, which may turn out more special."""
    match kind:
        case "prefix":
            return kind, rng.choice(_PREFIXED)
        case "merged":
            return kind, rng.choice(_OVER_MERGED)
        case "joined":
            return kind, rng.choice(_JOINED)
        case "view" if views:
            return _over_a_view(rng, *rng.choice(list(views.items())))
        case "exact" | "upserted":
            # Most batches give shops other values for all its keys, so its groups come and go.
            return kind, random_view(rng, rng.choice(["upserted", "shops"]), exact=kind == "exact", sketches=True)
    return "appended", random_view(rng, "appended", sketches=True)


def _over_a_view(rng: random.Random, name: str, state: TableState) -> tuple[str, str]:
    assert state.view is not None
    spec = state.view.spec
    group = rng.choice(spec.groups).name
    made = [f"max(x.{c.name}) AS m{i}" for i, c in enumerate(spec.aggregates)]
    made += [f"sum(x.{c.name}) AS b{i}" for i, c in enumerate(spec.aggregates) if _added_exactly(c.type)]
    kept = [*rng.sample(made, rng.randint(0, min(2, len(made)))), "count(*) AS n"][: rng.randint(1, 3)]
    joined = " JOIN shops s ON x.k = s.k" if any(c.name == "k" for c in spec.groups) and rng.random() < 0.5 else ""
    groups = [f"x.{group}", *(["s.c AS shop"] if joined else [])]
    values = [c.name for c in spec.aggregates if c.type == "bigint"]
    where = rng.choice(["", "", f" WHERE x.{group} IS NOT NULL", *(f" WHERE x.{v} > 2" for v in values)])
    by = ", ".join(g.partition(" AS ")[0] for g in groups)
    sql = f"SELECT {', '.join([*groups, *kept])} FROM {name} x{joined}{where} GROUP BY {by}"
    return "view joined" if joined else "view", sql


def _added_exactly(type_: str) -> bool:
    return type_ == "bigint" or type_.startswith("decimal(22")
