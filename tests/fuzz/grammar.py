"""Random SQL texts that Spark mostly understands: typed expressions over every way to name a relation.

A text says nothing whose answer Spark leaves open: rows are limited only after all columns have been sorted, and no
function depends on the order of rows. So any two right answers are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.fuzz.expressions import KINDS, ORDERED, Column, Env, Expressions

_JOINS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")


@dataclass(frozen=True)
class Relation:
    sql: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Text:
    sql: str
    ordered: bool = False  # sorted by all columns


class Grammar(Expressions):
    """Texts of one random generator. Names of relations and columns are never used twice.

    ``tame`` texts name relations by plain names and say nothing that other settings would read differently.
    """

    def text(self) -> Text:
        rng = self.rng
        kind = rng.random()
        if kind < 0.12 and not self.tame:
            return Text(self._piped())
        if kind < 0.35:
            return self._one_table()
        env: dict[str, tuple[tuple[str, str], ...]] = {}
        head = self._with(env, 2) if rng.random() < 0.45 else ""
        query = self._set_operation(env, 2) if rng.random() < 0.15 else self._select(env, rng.choice([1, 2, 2, 3]))
        listed = ", ".join(str(i + 1) for i in range(len(query.columns)))
        if rng.random() < 0.25:
            limit = f" LIMIT {rng.randint(0, 9)}" if rng.random() < 0.5 else ""
            return Text(f"{head}{query.sql} ORDER BY {listed}{limit}", ordered=True)
        return Text(f"{head}{query.sql}")

    def nested_condition(self, scope: Sequence[Column], depth: int, env: Env) -> str:
        rng = self.rng
        inner = self._relation(env, depth - 1)
        outer = [c for c in scope if any(i.kind == c.kind for i in inner.columns)]
        if not outer:
            return "true"
        c = rng.choice(outer)
        i = rng.choice([i for i in inner.columns if i.kind == c.kind])
        more = f" AND {self.condition(inner.columns, depth - 1)}" if rng.random() < 0.6 else ""
        no = rng.choice(["", "", "NOT "])
        shapes = [
            lambda: f"{c.text} {no}IN (SELECT {i.text} FROM {inner.sql} WHERE true{more})",
            lambda: f"{no}EXISTS (SELECT 1 FROM {inner.sql} WHERE {i.text} = {c.text}{more})",
            lambda: f"{c.text} <= (SELECT max({i.text}) FROM {inner.sql} WHERE true{more})",
            lambda: f"{c.text} >= (SELECT min({i.text}) FROM {inner.sql} WHERE {i.text} = {c.text}{more})",
        ]
        return str(rng.choice(shapes)())

    # -- relations --------------------------------------------------------------------------------

    def _relation(self, env: Env, depth: int) -> Relation:
        """Something for FROM, under a name of its own."""
        rng = self.rng
        choices: list[Callable[[], Relation]] = [lambda: self._table()] * 6
        if env:
            choices += [lambda: self._cte(env)] * 4
        if depth > 0:
            choices += [lambda: self._derived(env, depth - 1)] * 3 + [lambda: self._values()]
            choices += [lambda: self._pivot()] + ([] if self.tame else [lambda: self._odd_table(env)] * 3)
        return rng.choice(choices)()

    def _aliased(self, sql: str, columns: Sequence[tuple[str, str]]) -> Relation:
        alias = self.name("r")
        return Relation(f"{sql} AS {alias}", tuple(Column(f"{alias}.{n}", n, k) for n, k in columns))

    def _columns_of(self, table: str) -> list[tuple[str, str]]:
        return [(n, KINDS[t]) for n, t in self.tables[table].items()]

    def _table(self) -> Relation:
        name = self.rng.choice(list(self.tables))
        spelt = self.rng.choice([name, name, name, f"`{name}`", name.upper()])
        return self._aliased(spelt, self._columns_of(name))

    def _odd_table(self, env: Env) -> Relation:
        rng, name = self.rng, self.rng.choice(list(self.tables))
        columns = self._columns_of(name)
        renamed = [(self.name(), k) for _, k in columns]
        listed = ", ".join(n for n, _ in renamed)
        alias = self.name("r")
        shapes: list[Callable[[], Relation]] = [
            lambda: self._aliased(f"(TABLE {name})", columns),
            lambda: self._aliased(f"IDENTIFIER('{name}')", columns),
            lambda: self._aliased(f"IDENTIFIER('{name[:1]}' || '{name[1:]}')", columns),
            lambda: self._aliased(f"{name} TABLESAMPLE (100 PERCENT)", columns),
            lambda: Relation(f"{name} AS {alias}({listed})", tuple(Column(f"{alias}.{n}", n, k) for n, k in renamed)),
            lambda: self._aliased(f"(FROM {name})", columns),
            lambda: self._aliased(f"(SELECT * FROM {name} UNION ALL TABLE {name})", columns),
            lambda: self._aliased(f"(FROM {name} |> WHERE {self._bare_condition(columns)})", columns),
            lambda: self._aliased("range(5)", [("id", "int")]),
        ]
        if env:
            cte = rng.choice(list(env))
            shapes += [
                lambda: self._aliased(f"(TABLE {cte})", env[cte]),
                lambda: self._aliased(f"IDENTIFIER('{cte}')", env[cte]),
            ]
        return rng.choice(shapes)()

    def _bare_condition(self, columns: Sequence[tuple[str, str]]) -> str:
        return self.condition([Column(n, n, k) for n, k in columns], 1)

    def _values(self) -> Relation:
        rows = ", ".join(f"({self.literal('int')}, {self.literal('string')})" for _ in range(self.rng.randint(1, 3)))
        alias, a, b = self.name("r"), self.name(), self.name()
        columns = (Column(f"{alias}.{a}", a, "int"), Column(f"{alias}.{b}", b, "string"))
        return Relation(f"(VALUES {rows}) AS {alias}({a}, {b})", columns)

    def _cte(self, env: Env) -> Relation:
        name = self.rng.choice(list(env))
        return self._aliased(name, env[name])

    def _derived(self, env: Env, depth: int) -> Relation:
        made = self._set_operation(env, depth) if self.rng.random() < 0.2 else self._select(env, depth)
        return self._aliased(f"({made.sql})", [(c.name, c.kind) for c in made.columns])

    def _pivot(self) -> Relation:
        alias, rng = self.name("r"), self.rng
        if rng.random() < 0.5:
            lo = rng.randint(0, 180)
            inner = f"SELECT k, s, l FROM t WHERE k BETWEEN {lo} AND {lo + 30}" if rng.random() < 0.5 else "t"
            source = f"({inner})" if inner != "t" else "(SELECT k, s, l FROM t)"
            sql = f"{source} PIVOT (count(l) FOR s IN ('a' AS pa, 'é' AS pe)) AS {alias}"
            return Relation(sql, tuple(Column(f"{alias}.{n}", n, "int") for n in ("k", "pa", "pe")))
        sql = f"(SELECT k, x, CAST(k AS DOUBLE) AS y FROM w) UNPIVOT (val FOR col IN (x, y)) AS {alias}"
        kinds = {"k": "int", "col": "string", "val": "float"}
        return Relation(sql, tuple(Column(f"{alias}.{n}", n, k) for n, k in kinds.items()))

    def _from(self, env: Env, depth: int) -> Relation:
        """One relation or several joined ones."""
        rng = self.rng
        made = self._relation(env, depth)
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2]) if depth > 0 else 0):
            other = self._relation(env, depth - 1)
            kind = rng.choice(
                ["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
            )
            pairs = [(a, b) for a in made.columns for b in other.columns if a.kind == b.kind and a.kind in ORDERED]
            both = (*made.columns, *other.columns)
            if not pairs:
                made = Relation(f"{made.sql} CROSS JOIN {other.sql}", both)
                continue
            a, b = rng.choice(pairs)
            on = f"{a.text} {rng.choice(['=', '=', '=', '<=>'])} {b.text}"
            if rng.random() < 0.4:
                on += f" AND {self.condition(both, 1)}"
            hidden = "SEMI" in kind or "ANTI" in kind
            made = Relation(f"{made.sql} {kind} {other.sql} ON {on}", made.columns if hidden else both)
        if depth > 0 and rng.random() < 0.08:
            alias, n = self.name("r"), self.name()
            shape = f"{made.sql} LATERAL VIEW explode(array(1, 2)) {alias} AS {n}"
            made = Relation(shape, (*made.columns, Column(f"{alias}.{n}", n, "int")))
        elif depth > 0 and rng.random() < 0.08:
            alias, n = self.name("r"), self.name()
            inner = self._table()
            same = [(a, b) for a in made.columns for b in inner.columns if a.kind == b.kind]
            on = " = ".join(c.text for c in rng.choice(same)) if same else "true"
            shape = f"{made.sql}, LATERAL (SELECT count(*) AS {n} FROM {inner.sql} WHERE {on}) AS {alias}"
            made = Relation(shape, (*made.columns, Column(f"{alias}.{n}", n, "int")))
        return made

    # -- queries ----------------------------------------------------------------------------------

    def _with(self, env: dict[str, tuple[tuple[str, str], ...]], depth: int) -> str:
        parts = []
        for _ in range(self.rng.choice([1, 1, 2])):
            name = self.name("cte")
            roll = self.rng.random()
            if roll < 0.15 and not self.tame:
                table = self.rng.choice(list(self.tables))
                body, columns = f"TABLE {table}", tuple(self._columns_of(table))
            elif roll < 0.3 and not self.tame:
                table = self.rng.choice(list(self.tables))
                body, columns = f"SELECT * FROM IDENTIFIER('{table}')", tuple(self._columns_of(table))
            else:
                inner: dict[str, tuple[tuple[str, str], ...]] = dict(env)
                head = self._with(inner, depth - 1) if depth > 1 and self.rng.random() < 0.15 else ""
                made = self._select(inner, depth - 1)
                body, columns = head + made.sql, tuple((c.name, c.kind) for c in made.columns)
            env[name] = columns
            parts.append(f"{name} AS ({body})")
        return f"WITH {', '.join(parts)} "

    def _select(self, env: Env, depth: int) -> Relation:
        """A SELECT; its columns are named as they are seen from outside."""
        rng = self.rng
        source = self._from(env, depth)
        scope = source.columns
        where = f" WHERE {self.condition(scope, min(depth, 2), env)}" if rng.random() < 0.75 else ""
        if rng.random() < 0.35:
            return self._grouped(source, where, depth)
        outputs: list[tuple[str, str]] = []
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.65:
                c = rng.choice(scope)
                outputs.append((c.text, c.kind))
            elif rng.random() < 0.1:
                c = rng.choice(scope)
                outputs.append((f"rank() OVER (PARTITION BY {c.text} ORDER BY {rng.choice(scope).text})", "int"))
            elif rng.random() < 0.15 and depth > 0:
                inner = self._relation(env, depth - 1)
                i = rng.choice(inner.columns)
                test = self.condition(inner.columns, 0)
                outputs.append((f"(SELECT count({i.text}) FROM {inner.sql} WHERE {test})", "int"))
            else:
                kind = rng.choice(ORDERED)
                outputs.append((self.expression(kind, scope, 2), kind))
        distinct = "DISTINCT " if rng.random() < 0.12 else ""
        return self._listed(f"SELECT {distinct}", outputs, f" FROM {source.sql}{where}")

    def _listed(self, head: str, outputs: Sequence[tuple[str, str]], tail: str) -> Relation:
        named = [(text, self.name(), kind) for text, kind in outputs]
        listed = ", ".join(f"{text} AS {name}" for text, name, _ in named)
        return Relation(f"{head}{listed}{tail}", tuple(Column(name, name, kind) for _, name, kind in named))

    def _grouped(self, source: Relation, where: str, depth: int) -> Relation:
        rng, scope = self.rng, source.columns
        groups = [rng.choice(scope) for _ in range(rng.choice([0, 1, 1, 2]))]
        groups = [g for g in groups if g.kind != "other"]
        aggregates = [self.aggregate(scope, rng.choice([0, 0, 1])) for _ in range(rng.randint(1, 3))]
        outputs = [(g.text, g.kind) for g in groups] + aggregates
        by = f" GROUP BY {', '.join(g.text for g in groups)}" if groups else ""
        having = f" HAVING count(*) > {rng.randint(0, 2)}" if groups and rng.random() < 0.15 else ""
        if groups and rng.random() < 0.1:
            having = f" HAVING {self.condition(groups, 0)}"
        return self._listed("SELECT ", outputs, f" FROM {source.sql}{where}{by}{having}")

    def _set_operation(self, env: Env, depth: int) -> Relation:
        rng = self.rng
        kinds = [rng.choice(ORDERED) for _ in range(rng.randint(1, 2))]
        sides = []
        for _ in range(2):
            source = self._from(env, depth - 1)
            where = f" WHERE {self.condition(source.columns, 1, env)}"
            outputs = [(self.expression(k, source.columns, 1), k) for k in kinds]
            sides.append(self._listed("SELECT ", outputs, f" FROM {source.sql}{where}"))
        operator = rng.choice(["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "MINUS", "EXCEPT ALL"])
        return Relation(f"{sides[0].sql} {operator} {sides[1].sql}", sides[0].columns)

    def _one_table(self) -> Text:
        """What the local executor mostly answers itself: one table by its own name, columns without a qualifier."""
        rng, name = self.rng, self.rng.choice(list(self.tables))
        scope = [Column(n, n, k) for n, k in self._columns_of(name)]
        where = f" WHERE {self.condition(scope, 2)}" if rng.random() < 0.85 else ""
        source = Relation(name, tuple(scope))
        if rng.random() < 0.4:
            made = self._grouped(source, where, 1)
        else:
            kinds = [rng.choice(ORDERED) for _ in range(rng.randint(1, 3))]
            distinct = "DISTINCT " if rng.random() < 0.15 else ""
            outputs = [(self.expression(k, scope, 1), k) for k in kinds]
            made = self._listed(f"SELECT {distinct}", outputs, f" FROM {name}{where}")
        if rng.random() < 0.3:
            listed = ", ".join(f"{i + 1}{rng.choice(['', ' DESC', ' NULLS LAST'])}" for i in range(len(made.columns)))
            limit = f" LIMIT {rng.randint(0, 9)}" if rng.random() < 0.5 else ""
            return Text(f"{made.sql} ORDER BY {listed}{limit}", ordered=True)
        return Text(made.sql)

    def _piped(self) -> str:
        rng, name = self.rng, self.rng.choice(list(self.tables))
        columns = [Column(n, n, k) for n, k in self._columns_of(name)]
        parts = [rng.choice([f"FROM {name}", f"TABLE {name}", f"SELECT * FROM {name}"])]
        for _ in range(rng.randint(1, 4)):
            step = rng.choice(["where", "where", "extend", "select", "aggregate", "union", "join", "drop", "distinct"])
            if step == "where":
                parts.append(f"WHERE {self.condition(columns, 1)}")
            elif step == "extend":
                n, kind = self.name(), rng.choice(ORDERED)
                parts.append(f"EXTEND {self.expression(kind, columns, 1)} AS {n}")
                columns = [*columns, Column(n, n, kind)]
            elif step == "select":
                made = self._listed(
                    "SELECT ", [(c.text, c.kind) for c in rng.sample(columns, min(3, len(columns)))], ""
                )
                parts.append(made.sql)
                columns = list(made.columns)
            elif step == "aggregate":
                g = rng.choice(columns)
                text, kind = self.aggregate(columns, 0)
                n = self.name()
                parts.append(f"AGGREGATE {text} AS {n} GROUP BY {g.text}")
                columns = [Column(g.name, g.name, g.kind), Column(n, n, kind)]
            elif step == "union" and [c.name for c in columns] == list(self.tables[name]):
                parts.append(rng.choice([f"UNION ALL TABLE {name}", f"UNION ALL SELECT * FROM {name}"]))
            elif step == "drop" and len(columns) > 1:
                gone = rng.choice(columns)
                parts.append(f"DROP {gone.name}")
                columns = [c for c in columns if c is not gone]
            elif step == "distinct":
                listed = ", ".join(c.name for c in columns)
                parts.append(f"SELECT DISTINCT {listed}" if rng.random() < 0.5 else f"ORDER BY {columns[0].name}")
            elif step == "join":
                other = self._table()
                own = {c.name for c in other.columns}
                pairs = [(a, b) for a in columns for b in other.columns if a.kind == b.kind and a.name not in own]
                if pairs:
                    a, b = rng.choice(pairs)
                    parts.append(
                        f"{rng.choice(['LEFT SEMI JOIN', 'LEFT ANTI JOIN'])} {other.sql} ON {a.text} = {b.text}"
                    )
        return " |> ".join(parts)
