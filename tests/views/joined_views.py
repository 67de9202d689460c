"""A fact table with two dimensions, views over them filled without a JVM, and random queries that join."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot

from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import AddViewDelta, CreateTable, TableState
from parquetry.model.types import arrow_type
from parquetry.model.view import ROWS, ViewColumn, ViewSpec
from parquetry.views.changes import definition_text
from parquetry.views.define import read_definition
from parquetry.warehouse import Warehouse
from tests.views import without_spark
from tests.views.random_views import DDL

SHOPS = "shop int, city string, size int, opened date, rank bigint"
CITIES = "city string, country string, people bigint"
KEYS = {"sales": ["k", "day"], "shops": ["shop"], "cities": ["city"]}
DDLS = {"sales": DDL, "shops": SHOPS, "cities": CITIES}
VIEWS = {
    "by_shop": "SELECT k, c, sum(v) AS v, count(*) AS n, count(v) AS nv, sum(d) AS d, max(w) AS w "
    "FROM sales GROUP BY k, c",
    "by_month": "SELECT k, month(day) AS m, avg(v) AS av, sum(w) AS w, count(*) AS n FROM sales WHERE k < 15 "
    "GROUP BY k, month(day)",
    "by_city": "SELECT s.city, x.c, sum(x.v) AS v, count(*) AS n, min(x.day) AS first, max(s.size) AS size "
    "FROM sales AS x JOIN shops AS s ON x.k = s.shop GROUP BY s.city, x.c",
    "by_country": "SELECT country, size, sum(d) AS d, count(*) AS n, sum(people) AS p FROM sales "
    "JOIN shops ON k = shop JOIN cities ON shops.city = cities.city WHERE v > 0 GROUP BY country, size",
}
FROM = {
    "shops": ["sales x JOIN shops s ON x.k = s.shop", "shops s, sales x"],
    "cities": ["sales x JOIN shops s ON s.shop = x.k INNER JOIN cities AS t ON t.city = s.city"],
}
GROUPS = {
    "shops": ["s.city", "size", "x.c", "month(x.day)", "x.k", "s.shop"],
    "cities": ["country", "s.city", "size", "t.city", "x.k"],
}
AGGREGATES = {
    "shops": ["sum(x.v)", "count(*)", "max(w)", "count(v)", "sum(d)", "max(s.size)", "avg(v)", "min(opened)",
              "count(DISTINCT s.city)", "min(day)", "sum(w)", "max(rank + size)", "sum(size)", "count(k)"],
    "cities": ["sum(d)", "count(*)", "sum(v)", "max(people)", "count(DISTINCT country)", "sum(people)", "max(w)"],
}  # fmt: skip
CONDITIONS = {
    "shops": [
        "s.city = 'b'",
        "size > 2",
        "x.c = 'a'",
        "k < 15",
        "k < 10",
        "s.rank + k > 7",
        "month(day) = 1",
        "v > 0",
        "shop > 3",
        "(s.city = 'a' OR size BETWEEN 1 AND 3)",
        "(size IS NULL OR x.c IN ('a', 'b'))",
        "s.city IS NULL",
        "NOT (s.city = 'c' OR x.c IS NULL)",
    ],
    "cities": [
        "country IN ('x', 'y')",
        "people > 100",
        "size < 4",
        "v > 0",
        "t.city <> 'a'",
        "(country IS NULL OR size NOT BETWEEN 2 AND 3)",
        "country IS NULL",
    ],
}


def rows_of(rng: random.Random, table: str) -> pa.Table:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    if table == "shops":
        found = [
            {
                "shop": i,
                "city": maybe(rng.choice("abcd")),
                "size": maybe(rng.randint(0, 5)),
                "opened": None,
                "rank": i * 2,
            }
            for i in range(0, 25, rng.choice([1, 2]))
        ]
    else:
        found = [{"city": c, "country": rng.choice(["x", "y", None]), "people": rng.randint(0, 300)} for c in "abce"]
    schema = pa.schema([(n, arrow_type(t)) for n, t in (p.split() for p in DDLS[table].split(", "))])
    return pa.Table.from_pylist(found, schema=schema)


def random_join(rng: random.Random) -> str:
    """A query over the fact and one or both dimensions; often one of a view's, rolled up."""
    kind = rng.choice(["shops", "shops", "cities"])
    source = rng.choice(FROM[kind])
    conditions = rng.sample(CONDITIONS[kind], rng.choice([0, 0, 1, 1, 2]))
    if kind == "cities" and rng.random() < 0.5:
        conditions = list(dict.fromkeys([*conditions, "v > 0"]))
    if "," in source:
        conditions.insert(rng.randint(0, len(conditions)), "x.k = s.shop")
    groups = rng.sample(GROUPS[kind], rng.choice([0, 1, 1, 2]))
    aggregates = rng.sample(AGGREGATES[kind], rng.randint(1, 2))
    listed = [*groups, *(f"{a} AS a{i}" if rng.random() < 0.5 else a for i, a in enumerate(aggregates))]
    sql = f"SELECT {', '.join(listed)} FROM {source}"
    sql += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql += f" GROUP BY {', '.join(groups)}" if groups else ""
    if groups and rng.random() < 0.2:
        sql += rng.choice([" HAVING count(*) > 2", f" HAVING {groups[0]} IS NOT NULL AND count(*) < 500"])
    if groups and rng.random() < 0.2 and "HAVING" not in sql:
        sql += f" ORDER BY {', '.join(groups)} LIMIT 4"
    return sql


def over_arrow(sql: str, data: dict[str, pa.Table]) -> pa.Table:
    """The answer by DuckDB over plain tables in memory; NULLs first as in Spark."""
    text = sqlglot.transpile(sql, read="spark", write="duckdb")[0]
    with duckdb.connect(config={"threads": 1, "default_null_order": "nulls_first"}) as connection:
        for name, table in data.items():
            connection.register(name, table)
        return connection.sql(text).to_arrow_table()


def create_view(wh: Warehouse, name: str, sql: str, how: str = "merge") -> None:
    """The view as the warehouse would make it, with Spark's types told here."""
    definition = read_definition(sql, wh.catalog.state())
    columns = tuple(replace(c, type=_type(c, definition.tables)) for c in definition.columns)
    spec = ViewSpec(sql, definition.sources, columns, definition.where, how)
    types = {c.name: c.type for c in spec.groups}
    for c in spec.aggregates:
        stored = spec.stored(c)
        types[stored[0]] = c.type
        types |= dict.fromkeys(stored[1:], "bigint")
    types |= {ROWS: "bigint"} if spec.hides_rows else {}
    kept = tuple(Column(n, t) for n, t in types.items())
    model, merges = ("upsert", {}) if how == "replace" else ("aggregate", spec.merges)
    schema = TableSchema(kept, definition.key, model, merges, null_keys=True)
    wh.catalog.commit([CreateTable(name, schema, Settings(), spec)], kind="create view")


def _type(c: ViewColumn, tables: tuple[TableState, ...]) -> str:
    name = c.argument.rpartition(".")[2].strip("`")
    own = next((k.type for t in tables for k in t.schema.columns if k.name.lower() == name), "int")
    if c.function in ("group", "min", "max"):
        return own
    if c.function == "avg":
        return "double"
    return f"decimal({int(own[8:10]) + 10},2)" if c.function == "sum" and own.startswith("decimal") else "bigint"


def fill(wh: Warehouse, name: str, data: dict[str, pa.Table], parts: list[str]) -> None:
    """Makes the view's deltas, one of each part of the facts' rows."""
    state = wh.catalog.state()
    view = state.table(name)
    assert view.view is not None
    spec = view.view.spec
    names = {t.table_id: t.name for t in state.tables.values()}
    for number, part in enumerate(parts):
        some = {**data, "sales": over_arrow(f"SELECT * FROM sales WHERE {part}", data)}
        stored = replace(spec, columns=tuple(_made_of(spec)))
        made = over_arrow(definition_text(stored, [names[s.table_id] for s in spec.sources]), some)
        made = made.select(view.schema.names).cast(pa.schema([(c.name, c.arrow) for c in view.schema.columns]))
        built = 0 if number == 0 else state.clock - len(parts) + number
        until = state.clock - len(parts) + number + 1
        delta = without_spark.write(wh, view, made, (built + 1, until)) if made.num_rows else None
        wh.catalog.commit([AddViewDelta(view.table_id, built, until, delta)], kind="refresh view")


def _made_of(spec: ViewSpec) -> list[ViewColumn]:
    found = list(spec.groups)
    for c in spec.aggregates:
        stored = spec.stored(c)
        found.append(replace(c, name=stored[0], function="sum" if c.function == "avg" else c.function))
        found += [replace(c, name=s, function="count") for s in stored[1:]]
    return found + ([ViewColumn(ROWS, "bigint", "count", "*")] if spec.hides_rows else [])
