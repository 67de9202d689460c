"""Random queries with joins, subqueries, CTEs, set operations, windows and groups over TPC-H and the zoo."""

from __future__ import annotations

import random
from dataclasses import dataclass

NUMBER, TEXT, DAY, FLAG = "number", "text", "day", "flag"
TABLES: dict[str, dict[str, str]] = {
    "zoo": {
        "name": TEXT,
        "x": NUMBER,
        "n": NUMBER,
        "b": FLAG,
        "i8": NUMBER,
        "i16": NUMBER,
        "i": NUMBER,
        "l": NUMBER,
        "d": NUMBER,
        "dec": NUMBER,
        "s": TEXT,
        "dt": DAY,
    },
    "nation": {"n_nationkey": NUMBER, "n_name": TEXT, "n_regionkey": NUMBER},
    "region": {"r_regionkey": NUMBER, "r_name": TEXT},
    "supplier": {"s_suppkey": NUMBER, "s_name": TEXT, "s_nationkey": NUMBER, "s_acctbal": NUMBER},
    "customer": {"c_custkey": NUMBER, "c_nationkey": NUMBER, "c_acctbal": NUMBER, "c_mktsegment": TEXT},
    "orders": {"o_orderkey": NUMBER, "o_custkey": NUMBER, "o_orderdate": DAY, "o_totalprice": NUMBER},
}
_SMALL = ("nation", "region", "zoo", "supplier")
_KEYS = {
    ("nation", "region"): ("n_regionkey", "r_regionkey"),
    ("supplier", "nation"): ("s_nationkey", "n_nationkey"),
    ("customer", "nation"): ("c_nationkey", "n_nationkey"),
    ("orders", "customer"): ("o_custkey", "c_custkey"),
    ("zoo", "zoo"): ("i8", "i"),
    ("zoo", "nation"): ("l", "n_nationkey"),
    ("zoo", "region"): ("dec", "r_regionkey"),
    ("nation", "nation"): ("n_regionkey", "n_nationkey"),
    ("supplier", "supplier"): ("s_nationkey", "s_suppkey"),
}
_JOINS = ("JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
_CONSTANTS = {
    NUMBER: ("0", "1", "3", "-2", "0.5", "1.25", "7", "10.00", "CAST(2 AS bigint)"),
    TEXT: ("'a'", "''", "'ABC'", "'zé'", "'ASIA'", "'FRANCE'"),
    DAY: ("DATE '1995-03-15'", "DATE '2020-01-01'", "DATE '1997-01-31'"),
    FLAG: ("true", "false"),
}


@dataclass
class Source:
    """An item of FROM with its visible columns by kind."""

    text: str
    alias: str
    columns: dict[str, str]
    table: str = ""


class Generator:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.made = 0

    def alias(self) -> str:
        self.made += 1
        return f"t{self.made}"

    def query(self) -> str:
        kind = self.rng.random()
        if kind < 0.12:
            word = self.rng.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"])
            return f"{self.plain(2)} {word} {self.plain(2)}"
        if kind < 0.25:
            body, columns = self.select(named=True)
            name = self.alias()
            return f"WITH {name} AS ({body}) {self.over(name, columns)}"
        return self.select()[0]

    def plain(self, width: int) -> str:
        source = self.base()
        items = [f"{self.value(NUMBER, [source])} AS u{i}" for i in range(width)]
        return f"SELECT {', '.join(items)} FROM {source.text}{self.where([source], 0.6)}"

    def over(self, name: str, columns: dict[str, str]) -> str:
        a, b = Source(f"{name} AS p", "p", columns), Source(f"{name} AS q", "q", columns)
        column = self.rng.choice(list(columns))
        joined = f"{name} AS p JOIN {name} AS q ON p.{column} = q.{column}"
        return f"SELECT count(*) AS n, {self.aggregate([a, b])} AS m FROM {joined}"

    def base(self, table: str | None = None) -> Source:
        table = table or self.rng.choice(_SMALL)
        alias = self.alias()
        return Source(f"{table} AS {alias}", alias, TABLES[table], table)

    def sources(self) -> tuple[list[Source], str]:
        first = self.base(self.rng.choice([*_SMALL, "customer"]))
        visible, text = [first], first.text
        for _ in range(self.rng.choice([0, 1, 1, 1, 2, 2, 3])):
            left = self.rng.choice(visible)
            pairs = [(k, v) for k, v in _KEYS.items() if k[0] == left.table]
            pairs += [((b, a), (d, c)) for (a, b), (c, d) in _KEYS.items() if b == left.table and a in _SMALL]
            if not pairs:
                break
            (_, table), (mine, theirs) = self.rng.choice(pairs)
            right = self.base(table)
            join = self.rng.choice(_JOINS)
            on = f"{left.alias}.{mine} = {right.alias}.{theirs}"
            if self.rng.random() < 0.3:
                on += f" AND {self.condition([left, right])}"
            text += f" {join} {right.text} ON {on}"
            if "SEMI" not in join and "ANTI" not in join:
                visible.append(right)
        return visible, text

    def select(self, named: bool = False) -> tuple[str, dict[str, str]]:
        visible, text = self.sources()
        where = self.where(visible, 0.7)
        columns: dict[str, str] = {}
        if self.rng.random() < 0.5:
            groups = [
                self.column(visible, self.rng.choice([TEXT, NUMBER, FLAG])) for _ in range(self.rng.choice([0, 1, 2]))
            ]
            items = [f"{g} AS g{i}" for i, g in enumerate(groups)]
            columns |= {f"g{i}": TEXT for i in range(len(groups))}
            for i in range(self.rng.choice([1, 2])):
                items.append(f"{self.aggregate(visible)} AS a{i}")
                columns[f"a{i}"] = NUMBER
            tail = ""
            if groups:
                word = self.rng.choice(["{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})"])
                tail = " GROUP BY " + word.format(", ".join(groups))
                if self.rng.random() < 0.3:
                    tail += f" HAVING {self.aggregate(visible)} > 1"
            return f"SELECT {', '.join(items)} FROM {text}{where}{tail}", columns
        kinds = [self.rng.choice([NUMBER, NUMBER, TEXT, DAY, FLAG]) for _ in range(self.rng.choice([1, 2, 3]))]
        items = [f"{self.value(kind, visible)} AS v{i}" for i, kind in enumerate(kinds)]
        columns = {f"v{i}": kind for i, kind in enumerate(kinds)}
        if self.rng.random() < 0.2 and not named:
            by, order = self.column(visible, NUMBER), self.column(visible, TEXT)
            function = self.rng.choice(["rank()", "dense_rank()", f"count({order})", f"max({order})"])
            items.append(f"{function} OVER (PARTITION BY {by} ORDER BY {order}) AS w")
        distinct = "DISTINCT " if self.rng.random() < 0.2 else ""
        return f"SELECT {distinct}{', '.join(items)} FROM {text}{where}", columns

    def column(self, sources: list[Source], kind: str) -> str:
        found = [(s, c) for s in sources for c, k in s.columns.items() if k == kind]
        if not found:
            found = [(s, c) for s in sources for c in s.columns]
        source, column = self.rng.choice(found)
        return f"{source.alias}.{column}"

    def value(self, kind: str, sources: list[Source]) -> str:
        has = any(k == kind for s in sources for k in s.columns.values())
        if not has:
            return self.rng.choice(_CONSTANTS[kind])
        column = self.column(sources, kind)
        r = self.rng.random()
        if r < 0.55:
            return column
        if kind == NUMBER:
            other = self.value(NUMBER, sources) if r < 0.7 else self.rng.choice(_CONSTANTS[NUMBER])
            op = self.rng.choice(["+", "-", "*", "/"])
            choices = [
                f"({column} {op} {other})",
                f"coalesce({column}, {other})",
                f"CASE WHEN {self.condition(sources)} THEN {column} ELSE {other} END",
                f"abs({column})",
                f"CAST({column} AS decimal(20,3))",
                f"nullif({column}, {other})",
            ]
            return self.rng.choice(choices)
        if kind == TEXT:
            choices = [f"upper({column})", f"substring({column}, 2, 3)", f"concat({column}, '-')", f"lower({column})"]
            return self.rng.choice(choices)
        if kind == DAY:
            return self.rng.choice([f"{column} + INTERVAL 1 MONTH", f"date_add({column}, 3)", f"{column} - 2"])
        return self.rng.choice([f"NOT {column}", f"({column} IS NULL)"])

    def aggregate(self, sources: list[Source]) -> str:
        number = self.value(NUMBER, sources)
        return self.rng.choice(
            [
                f"sum({number})",
                f"avg({number})",
                f"min({number})",
                f"max({self.column(sources, TEXT)})",
                f"count({number})",
                f"count(DISTINCT {self.column(sources, TEXT)})",
                "count(*)",
                f"sum(CASE WHEN {self.condition(sources)} THEN 1 ELSE 0 END)",
            ]
        )

    def where(self, sources: list[Source], chance: float) -> str:
        if self.rng.random() >= chance:
            return ""
        parts = [self.condition(sources) for _ in range(self.rng.choice([1, 1, 2]))]
        if self.rng.random() < 0.35:
            parts.append(self.subquery(sources))
        return f" WHERE {self.rng.choice([' AND ', ' OR ']).join(parts)}"

    def condition(self, sources: list[Source]) -> str:
        kind = self.rng.choice([NUMBER, NUMBER, TEXT, DAY])
        column = self.column(sources, kind)
        kind = next(k for s in sources for c, k in s.columns.items() if f"{s.alias}.{c}" == column)
        constants = _CONSTANTS[kind]
        op = self.rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        choices = [
            f"{column} {op} {self.rng.choice(constants)}",
            f"{column} IS NOT NULL",
            f"{column} IN ({', '.join(self.rng.sample(constants, 2))})",
            f"{column} BETWEEN {constants[0]} AND {constants[-1]}",
        ]
        if kind == TEXT:
            choices.append(f"{column} LIKE '%A%'")
        return self.rng.choice(choices)

    def subquery(self, sources: list[Source]) -> str:
        inner = self.base()
        outer = self.column(sources, NUMBER)
        own = self.column([inner], NUMBER)
        negated = self.rng.choice(["", "NOT "])
        where = self.where([inner], 0.3)
        more = f"{where} AND" if where else " WHERE"
        return self.rng.choice(
            [
                f"{outer} {negated}IN (SELECT {own} FROM {inner.text}{where})",
                f"{negated}EXISTS (SELECT 1 FROM {inner.text}{more} {own} = {outer})",
                f"{outer} > (SELECT avg({own}) FROM {inner.text}{where})",
                f"{outer} <= (SELECT max({own}) FROM {inner.text} WHERE {own} = {outer})",
            ]
        )
