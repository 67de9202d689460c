"""Whole queries for the local executor: any number of tables, as one DuckDB statement that answers as Spark would.

The text names every mention of a base table by a mark, which whoever runs it replaces by a relation with that table's
rows. Relations are called r1, r2 … throughout, so that a correlated subquery names what it means.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from parquetry.model.schema import TableSchema
from parquetry.model.types import arrow_type, is_nested
from parquetry.query.compile.clauses import answer_schema, limits, tells_names
from parquetry.query.compile.decimals import brought_to, wider_type
from parquetry.query.compile.expressions import Rows, ScopedExpressions
from parquetry.query.compile.grouped import ordered
from parquetry.query.compile.joins import joined
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.compile.scope import Field, Relation, Scope, renamed
from parquetry.query.compile.select import SelectCompiler
from parquetry.query.compile.typed import Refused, Typed, convert, merged_type, quote, signless_zero
from parquetry.workload.plain_select import NotPlain, SelectList, check_table

_MOST_NESTED = 40


@dataclass(frozen=True)
class Mention:
    """One place where the query names a base table, with the columns it reads there."""

    number: int
    table: str
    columns: tuple[str, ...]

    @property
    def mark(self) -> str:
        return f"\0{self.number}\0"  # no constant may hold a zero byte


@dataclass(frozen=True)
class WholeQuery:
    """``schema`` is what Spark's ``toArrow()`` would give, nullability aside."""

    text: str
    schema: pa.Schema
    mentions: tuple[Mention, ...]

    def sql(self, rows: Mapping[int, str]) -> str:
        """The statement over these relations, by the mention's number. Its columns are to be renamed, and cast."""
        text = self.text
        for m in self.mentions:
            text = text.replace(m.mark, rows[m.number])
        return text


@dataclass(eq=False)
class _Cte:
    body: exp.Query
    names: list[str]
    env: dict[str, _Cte]
    number: int
    rows: Rows | None = None


def compile_query(query: exp.Query, tables: Mapping[str, TableSchema], text: str) -> WholeQuery | Refusal:
    """The statement of a query, or the first reason why only Spark can answer it."""
    compiler = QueryCompiler({n.lower(): (n, s) for n, s in tables.items()}, text)
    compiler.named = tells_names(query, text)
    try:
        rows = compiler.query(query, {}, None)
        schema = answer_schema((f.name, f.type) for f in rows.fields)
    except NotPlain as e:
        return Refusal(str(e))
    return WholeQuery(compiler.with_ctes(rows.sql), schema, compiler.mentions())


@dataclass(eq=False)
class QueryCompiler:
    tables: Mapping[str, tuple[str, TableSchema]]
    sql: str
    ctes: list[tuple[str, str]] = field(default_factory=list)  # in the order in which they may name each other
    read: dict[int, tuple[str, TableSchema, set[str]]] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    depth: int = 0
    named: bool = True  # whether the parsed text tells how Spark names expressions
    env: dict[str, _Cte] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = self.sql.lower()

    # -- what expressions ask ---------------------------------------------------------------------

    def rows(self, query: exp.Query, around: Scope) -> Rows:
        return self.query(query, self.env, around)

    def use(self, field: Field) -> None:
        if field.type != "void" and is_nested(arrow_type(field.type)):
            raise Refused(f"column {field.name} has the nested type {field.type}")
        if field.base is not None:
            self.read[field.base[0]][2].add(field.base[1])

    # -- queries ----------------------------------------------------------------------------------

    def query(self, node: exp.Expr, env: dict[str, _Cte], parent: Scope | None) -> Rows:
        self.depth += 1
        before = self.env
        try:
            if self.depth > _MOST_NESTED:
                raise Refused("queries are nested too deeply")
            self.env = env = self._with(node, env)
            match node:
                case exp.Select():
                    return SelectCompiler(node, self._from(node, env), parent, self).rows()
                case exp.SetOperation():
                    return self._set_operation(node, env)
                case exp.Subquery() if isinstance(node.this, exp.Query):
                    if any(v for k, v in node.args.items() if k not in ("this", "with_")):
                        raise Refused("a query in parentheses with more than its query")
                    return self.query(node.this, env, parent)
            raise Refused(f"it has {type(node).__name__}")
        finally:
            self.depth -= 1
            self.env = before

    def _with(self, node: exp.Expr, env: dict[str, _Cte]) -> dict[str, _Cte]:
        clause = node.args.get("with_")
        if clause is None:
            return env
        if clause.args.get("recursive"):
            raise Refused("it has a recursive CTE")
        for c in clause.expressions:
            if any(v for k, v in c.args.items() if k not in ("this", "alias")):
                raise Refused("a CTE with options")
            names = [i.name for i in c.args["alias"].args.get("columns") or []]
            cte = _Cte(c.this, names, env, next(self.numbers))
            cte.rows = self.query(c.this, env, None)  # once: Spark checks it even if nobody names it
            renamed(cte.rows.fields, names)
            self.ctes.append((f"q{cte.number}", cte.rows.sql))
            env = {**env, c.alias.lower(): cte}
        return env

    def with_ctes(self, sql: str) -> str:
        named = [(name, text) for name, text in self.ctes if self._is_named(name, sql)]
        return f"WITH {', '.join(f'{name} AS ({text})' for name, text in named)} {sql}" if named else sql

    def _is_named(self, name: str, sql: str) -> bool:
        return any(f"{name} AS r" in text for text in (sql, *(t for _, t in self.ctes)))

    def _set_operation(self, node: exp.SetOperation, env: dict[str, _Cte]) -> Rows:
        read = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}
        if any(v for k, v in node.args.items() if k not in read):
            raise Refused("a set operation with options")
        left, right = self.query(node.this, env, None), self.query(node.expression, env, None)
        if len(left.fields) != len(right.fields):
            raise Refused("a set operation of different numbers of columns")
        distinct = bool(node.args.get("distinct"))
        word = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}[type(node)]
        types = []
        for a, b in zip(left.fields, right.fields, strict=True):
            type_ = wider_type(a.type, b.type)
            if type_ is None or type_ == "void":
                raise Refused(f"a set operation of {a.type} and {b.type}")
            types.append(type_)
        compared = distinct or word != "UNION"
        sides = [_retyped(rows, types, compared) for rows in (left, right)]
        text = f"{sides[0]} {word}{'' if distinct else ' ALL'} {sides[1]}"
        fields = tuple(Field(a.name, t, f"c{i}") for i, (a, t) in enumerate(zip(left.fields, types, strict=True)))
        tail = limits(node)
        if order := node.args.get("order"):
            tail.insert(0, "ORDER BY " + ", ".join(self._ordered(o, fields) for o in order.expressions))
        if tail:
            text = f"SELECT * FROM ({text}) {' '.join(tail)}"
        return Rows(text, fields)

    def _ordered(self, o: exp.Expr, fields: tuple[Field, ...]) -> str:
        expressions = ScopedExpressions(Scope(Relation("", fields)), self)
        selected = SelectList([(None, f) for f in fields])

        def compile_(e: exp.Expr) -> Typed:
            f = selected.meant_by(e)
            return expressions.compile(e) if f is None else Typed(f.type, f.sql, f.name)

        return ordered(o, compile_)

    # -- FROM -------------------------------------------------------------------------------------

    def _from(self, node: exp.Select, env: dict[str, _Cte]) -> Relation:
        clause = node.args.get("from_")
        if clause is None:
            if node.args.get("joins"):
                raise Refused("joins without FROM")
            return Relation("", ())
        return joined(clause.this, node.args.get("joins") or [], lambda e: self._source(e, env), self)

    def _source(self, node: exp.Expr, env: dict[str, _Cte]) -> Relation:
        alias = node.args.get("alias")
        names = [i.name for i in alias.args.get("columns") or []] if alias is not None else []
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                check_table(node)
                return self._table(node, env, names)
            case exp.Subquery() if isinstance(node.this, exp.Query):
                if any(v for k, v in node.args.items() if k not in ("this", "alias", "with_")):
                    raise Refused("a subquery in FROM with options")
                rows = self.query(node.this, self._with(node, env), None)
                return self._named(f"({rows.sql})", node.alias, rows.fields, names)
            case exp.Subquery() if isinstance(node.this, exp.Table) and not node.alias:
                inner, joins = node.this.copy(), node.this.args.get("joins") or []
                inner.set("joins", None)
                found = joined(inner, joins, lambda e: self._source(e, env), self)
                return replace(found, sql=f"({found.sql})")
            case exp.Values():
                return self._values(node, names)
        raise Refused("it reads something other than tables and queries")

    def _table(self, node: exp.Table, env: dict[str, _Cte], names: list[str]) -> Relation:
        if not node.db and node.name.lower() in env:
            cte = env[node.name.lower()]
            assert cte.rows is not None
            fields = renamed(cte.rows.fields, cte.names)
            return self._named(f"q{cte.number}", node.alias or node.name, fields, names)
        full = ".".join(p.name for p in node.parts)
        found = self.tables.get(full.lower())
        if found is None:
            raise Refused(f"it reads {full}, which is no table")
        name, schema = found
        number = next(self.numbers)
        self.read[number] = name, schema, set()
        fields = [Field(c.name, c.type, f"r{number}.{quote(c.name)}", (number, c.name)) for c in schema.columns]
        return Relation.of(f"\0{number}\0 AS r{number}", node.alias or name, renamed(fields, names))

    def _named(self, sql: str, alias: str, fields: tuple[Field, ...] | list[Field], names: list[str]) -> Relation:
        number = next(self.numbers)
        seen = [replace(f, sql=f"r{number}.c{i}", base=None) for i, f in enumerate(renamed(fields, names))]
        return Relation.of(f"{sql} AS r{number}", alias, seen)

    def _values(self, node: exp.Values, names: list[str]) -> Relation:
        plain = ScopedExpressions(Scope(Relation("", ())), self)
        lines = [
            [plain.compile(x) for x in (line.expressions if isinstance(line, exp.Tuple) else [line])]
            for line in node.expressions
        ]
        if len({len(line) for line in lines}) != 1:
            raise Refused("VALUES of different lengths")
        types = [merged_type(column) for column in zip(*lines, strict=True)]
        texts = (", ".join(convert(t, ty) for t, ty in zip(line, types, strict=True)) for line in lines)
        listed = ", ".join(f"c{i}" for i in range(len(types)))
        number = next(self.numbers)
        fields = [Field(f"col{i + 1}", t, f"r{number}.c{i}") for i, t in enumerate(types)]
        text = f"(VALUES {', '.join(f'({line})' for line in texts)}) AS r{number}({listed})"
        return Relation.of(text, node.alias, renamed(fields, names))

    def mentions(self) -> tuple[Mention, ...]:
        return tuple(
            Mention(number, name, tuple(c for c in schema.names if c in used))
            for number, (name, schema, used) in self.read.items()
        )


def _retyped(rows: Rows, types: list[str], compared: bool) -> str:
    """The query's columns in other types; floats that are compared have no negative zero."""
    same = all(f.type == t for f, t in zip(rows.fields, types, strict=True))
    if same and not (compared and any(t in ("float", "double") for t in types)):
        return f"({rows.sql})"
    texts = []
    for i, (f, t) in enumerate(zip(rows.fields, types, strict=True)):
        made = Typed(t, brought_to(Typed(f.type, f"c{i}", None), t), None)
        texts.append(f"{signless_zero(made) if compared else made.sql} AS c{i}")
    return f"(SELECT {', '.join(texts)} FROM ({rows.sql}))"
