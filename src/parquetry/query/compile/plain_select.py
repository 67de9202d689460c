"""Plans for the local executor: one DuckDB statement over one table that answers exactly as Spark would (PP-14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from parquetry.errors import UnknownColumn
from parquetry.model.distinct import SKETCH
from parquetry.model.schema import TableSchema
from parquetry.model.types import arrow_type
from parquetry.query.compile.aggregates import AggregateCall, GroupedExpressions, normal
from parquetry.query.compile.plain_expressions import Expressions, RowSource
from parquetry.query.compile.typed import Refused, Typed, quote, signless_zero
from parquetry.workload.plain_select import NotPlain, SelectList, as_select, groups_in, tables_in

_ROWS = "__rows"  # the source's alias; no column of a table may start with two underscores
_READ_ARGS = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct", "kind"}


@dataclass(frozen=True)
class Refusal:
    """The query goes to Spark, for this reason."""

    reason: str


@dataclass(frozen=True)
class Conjunct:
    """One condition of WHERE as DuckDB text over bare column names, and the columns it reads."""

    sql: str
    columns: frozenset[str]


@dataclass(frozen=True)
class JoinedTable:
    """A table whose rows meet those of the plan's own table: its columns, and what the plan's texts call them."""

    table_id: int
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LocalPlan:
    """One SELECT over one table, and over others that its WHERE joins.

    ``schema`` is what Spark's ``toArrow()`` would give, nullability aside.
    """

    columns: tuple[str, ...]
    schema: pa.Schema
    outputs: tuple[str, ...]
    where: tuple[Conjunct, ...]
    groups: tuple[str, ...]
    group_columns: frozenset[str]
    aggregates: tuple[AggregateCall, ...]
    aggregated: bool
    having: str | None
    order: tuple[str, ...]
    limit: int | None
    offset: int
    distinct: bool
    filters_values: bool  # WHERE touches columns outside the key
    joined: tuple[JoinedTable, ...] = ()

    @property
    def joined_ids(self) -> set[int]:
        return {j.table_id for j in self.joined}

    def sql(self, source: str) -> str:
        """The DuckDB statement over ``source``, a relation or table function with the table's columns.

        Its result is to be cast to ``schema``, which changes only the spelling of time zones and string layouts.
        """
        named = zip(self.outputs, self.schema.names, strict=True)
        listed = ", ".join(f"{text} AS {quote(name)}" for text, name in named)
        parts = [f"SELECT {'DISTINCT ' if self.distinct else ''}{listed} FROM {source} AS {quote(_ROWS)}"]
        if self.where:
            parts.append("WHERE " + " AND ".join(c.sql for c in self.where))
        if self.groups:
            parts.append("GROUP BY " + ", ".join(self.groups))
        if self.having:
            parts.append("HAVING " + self.having)
        if self.order:
            parts.append("ORDER BY " + ", ".join(self.order))
        if self.limit is not None:
            parts.append(f"LIMIT {self.limit}")
        if self.offset:
            parts.append(f"OFFSET {self.offset}")
        return " ".join(parts)

    def key_filter(self, schema: TableSchema) -> str | None:
        """The conditions on key columns alone, which may be applied before deltas are merged (NA-47)."""
        key = frozenset(schema.key)
        texts = [c.sql for c in self.where if c.columns and c.columns <= key]
        return " AND ".join(texts) or None

    def can_skip_merge(self, schema: TableSchema) -> tuple[bool, str]:
        """Whether rows of equal keys may stay unmerged below this query, and why (NA-54, 3.2-5)."""
        if not schema.keyed:
            return True, "an append table has nothing to merge"
        if not self.aggregated:
            return False, "rows are returned as they are"
        key = frozenset(schema.key)
        if self.filters_values:
            return False, "WHERE reads a value column, which is known only after merging"
        if not self.group_columns <= key:
            return False, "GROUP BY reads a value column"
        for call in self.aggregates:
            if call.function in ("min", "max") and call.columns <= key and not call.distinct:
                continue
            merge = "" if call.column is None else schema.values.get(call.column, "")
            same = (call.function == "sum" and merge in ("sum", "count")) or (
                call.function in ("min", "max", SKETCH) and call.function == merge
            )
            if not same or call.distinct:
                what = f"{call.function}({call.column or '…'})"
                return False, f"{what} of unmerged rows would differ from that of merged ones"
        return True, "every aggregate merges as its column does"


def plan_locally(query: exp.Query, table: str, schema: TableSchema, sql: str) -> LocalPlan | Refusal:
    """The local plan of a query that reads ``table`` once, or why there is none."""
    try:
        return Planner(query, table, schema, sql).plan()
    except NotPlain as e:
        return Refusal(str(e))
    except UnknownColumn as e:
        raise UnknownColumn(e.column, table, schema.names) from None


class Planner:
    """Reads one SELECT over one table; raises Refused at what only Spark can answer."""

    def __init__(self, query: exp.Query, table: str, schema: TableSchema, sql: str) -> None:
        query = as_select(query, _READ_ARGS)
        ((source, _),) = tables_in(query)
        self.query, self.schema = query, schema
        self.name = source.alias or source.name
        # The parser drops a plus sign before an expression, which Spark keeps in the column's name.
        self.named = sql.count("+") == len(list(query.find_all(exp.Add))) if "+" in sql else True
        self.sql = sql
        self.items = self._items()
        self.list = SelectList(self.items)
        args = query.args
        self.aggregated = (
            args.get("group") is not None
            or args.get("having") is not None
            or any(i.find(exp.AggFunc) for i in (*query.expressions, *([args["order"]] if args.get("order") else [])))
        )
        self.groups = groups_in(query, self.items, lambda c: bool(c.table) or c.name.lower() in self.known)
        aliases = tuple(a for a, _ in self.items if a is not None)
        rows = RowSource(schema, self.name, quote(_ROWS) + ".", sql, aliases)
        self.stored = self.stored_schema()
        self.rows = self.row_expressions(rows)
        self.grouped = self.grouped_expressions(rows)
        self.expressions: Expressions = self.grouped if self.aggregated else self.rows

    def stored_schema(self) -> TableSchema:
        """The schema whose columns the compiled texts name."""
        return self.schema

    def row_expressions(self, source: RowSource) -> Expressions:
        return Expressions(source)

    def grouped_expressions(self, source: RowSource) -> GroupedExpressions:
        return GroupedExpressions(source, self.groups)

    def plan(self) -> LocalPlan:
        query = self.query
        distinct = query.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise Refused("it has DISTINCT ON")
        outputs = [self.expressions.compile(e) for _, e in self.items]
        names = [self._name(i, t) for i, t in enumerate(outputs)]
        for t in outputs:
            if t.type == "void":
                raise Refused("a column of NULL without a type")
        where = self._where()
        groups = [self.rows.compile(g) for g in self.groups]
        having = query.args.get("having")
        condition = self.expressions.boolean(self.without_aliases(having.this, prefer_output=False)) if having else None
        order, sorted_by = self._order(outputs, distinct is not None)
        used = frozenset().union(
            *(t.columns for t in (*outputs, *groups, *sorted_by, *([condition] if condition else []))),
            *(c.columns for c in where),
        )
        key = frozenset(self.stored.key)
        plain = distinct is None
        return LocalPlan(
            columns=tuple(c for c in self.stored.names if c in used),
            schema=pa.schema([pa.field(n, arrow_type(t.type)) for n, t in zip(names, outputs, strict=True)]),
            outputs=tuple(t.sql if plain else signless_zero(t) for t in outputs),
            where=where,
            groups=tuple(signless_zero(g) for g in groups),
            group_columns=frozenset().union(*(g.columns for g in groups)),
            aggregates=tuple(dict.fromkeys(self.grouped.calls)),
            aggregated=self.aggregated,
            having=condition.sql if condition else None,
            order=order,
            limit=self._count("limit"),
            offset=self._count("offset") or 0,
            distinct=not plain,
            filters_values=any(not c.columns <= key for c in where),
        )

    def _items(self) -> list[tuple[str | None, exp.Expr]]:
        """The SELECT list as (alias, expression), with * written out."""
        items: list[tuple[str | None, exp.Expr]] = []
        for e in self.query.expressions:
            inner = e.unalias()
            star = inner.this if isinstance(inner, exp.Column) else inner
            if isinstance(star, exp.Star):
                qualifier = inner.table.lower() if isinstance(inner, exp.Column) else ""
                if any(star.args.values()) or qualifier not in ("", self.name.lower()):
                    raise Refused("it has a star with exceptions")
                items += [(None, exp.column(exp.to_identifier(n, quoted=True))) for n in self.schema.names]
            elif isinstance(e, exp.Alias):
                items.append((e.alias, inner))
            else:
                items.append((None, e))
        return items

    def written(self, e: exp.Column) -> str:
        """A column's name as the query spells it."""
        return e.name

    def _name(self, i: int, t: Typed) -> str:
        alias, e = self.items[i]
        e = e.unnest()
        while isinstance(e, exp.Cast) and isinstance(e.this.unnest(), exp.Column | exp.Cast):
            e = e.this.unnest()  # Spark names a cast column after the column
        if alias is not None:
            return alias
        if isinstance(e, exp.Column):
            return self.written(e)
        if t.name is None or not self.named:
            raise Refused(f"Spark's name for the column {e.sql('spark')[:60]} is not certain; give it an alias")
        return t.name

    def _where(self) -> tuple[Conjunct, ...]:
        where = self.query.args.get("where")
        if where is None:
            return ()
        bare = self.row_expressions(RowSource(self.schema, self.name, "", self.sql))
        whole = where.this.unnest()
        parts = list(whole.flatten()) if isinstance(whole, exp.And) else [whole]
        compiled = [bare.boolean(p) for p in parts]
        if [t.type for t in compiled] == ["void"]:
            raise Refused("WHERE NULL has no type")
        return tuple(Conjunct(t.sql, t.columns) for t in compiled)

    @property
    def known(self) -> set[str]:
        return {n.lower() for n in self.schema.names}

    def ordered_by(self, e: exp.Expr) -> exp.Expr:
        """What ORDER BY means: a position, or an expression over outputs and columns."""
        meant = self.list.meant_by(e) if isinstance(e, exp.Literal) else None
        return meant or self.without_aliases(e, prefer_output=True)

    def without_aliases(self, e: exp.Expr, *, prefer_output: bool) -> exp.Expr:
        """``e`` with names of the SELECT list replaced by what they stand for."""

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and not node.table:
                aliased = self.list.meant_by(node)
                if aliased is None:
                    return node
                twofold = node.name.lower() in self.known and normal(aliased) != normal(node)
                if twofold and not prefer_output:
                    raise Refused(f"the name {node.name} is both a column and an alias")
                return exp.Paren(this=aliased.copy())
            return node

        return e.transform(replaced)

    def _order(self, outputs: Sequence[Typed], distinct: bool) -> tuple[tuple[str, ...], list[Typed]]:
        order = self.query.args.get("order")
        texts, sorted_by = [], []
        for o in order.expressions if order is not None else []:
            if not isinstance(o, exp.Ordered) or o.args.get("with_fill") or isinstance(o.this, exp.Var):
                raise Refused("it orders by ALL")
            e = self.ordered_by(o.this)
            if not e.find(exp.Column, exp.AggFunc):
                raise Refused("it orders by a constant")
            if distinct and all(normal(e) != normal(item) for _, item in self.items):
                raise Refused("it orders DISTINCT rows by something that is not selected")
            t = self.expressions.compile(e)
            direction = "DESC" if o.args.get("desc") else "ASC"
            nulls = "FIRST" if o.args.get("nulls_first") else "LAST"
            texts.append(f"{signless_zero(t)} {direction} NULLS {nulls}")
            sorted_by.append(t)
        return tuple(texts), sorted_by

    def _count(self, clause: str) -> int | None:
        node = self.query.args.get(clause)
        if node is None:
            return None
        e = node.expression
        if not (isinstance(node, exp.Limit | exp.Offset) and isinstance(e, exp.Literal) and e.this.isdigit()):
            raise Refused(f"{clause.upper()} is not a plain number")
        if any(v for k, v in node.args.items() if k != "expression"):
            raise Refused(f"{clause.upper()} has options")
        return int(e.this)
