"""Plans for the local executor: one DuckDB statement over one table that answers exactly as Spark would (PP-14)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from parquetry.errors import UnknownColumn
from parquetry.model.distinct import SKETCH
from parquetry.model.schema import TableSchema
from parquetry.query.compile.aggregates import AggregateCall, GroupedExpressions
from parquetry.query.compile.clauses import (
    answer_schema,
    direction,
    is_distinct,
    items_of,
    named_after,
    not_constant,
    row_count,
    sort_key,
    sorts_selected,
    tells_names,
    without_aliases,
)
from parquetry.query.compile.plain_expressions import Expressions, RowSource
from parquetry.query.compile.typed import Refused, Typed, quote, signless_zero
from parquetry.views.normalize import key_of
from parquetry.workload.plain_select import Item, NotPlain, SelectList, as_select, groups_in, tables_in

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
        self.named = tells_names(query, sql)
        self.sql = sql
        self.items = items_of(query, self._star)
        self.list = SelectList(self.items)
        args = query.args
        self.aggregated = (
            args.get("group") is not None
            or args.get("having") is not None
            or any(i.find(exp.AggFunc) for i in (*query.expressions, *([args["order"]] if args.get("order") else [])))
        )
        self.groups = groups_in(query, self.items, self._is_column)
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
        distinct = is_distinct(query)
        outputs = [self.expressions.compile(e) for _, e in self.items]
        schema = answer_schema((self._name(i, t), t.type) for i, t in enumerate(outputs))
        where = self._where()
        groups = [self.rows.compile(g) for g in self.groups]
        having = query.args.get("having")
        condition = self.expressions.boolean(self.without_aliases(having.this, prefer_output=False)) if having else None
        order, sorted_by = self._order(distinct)
        used = frozenset().union(
            *(t.columns for t in (*outputs, *groups, *sorted_by, *([condition] if condition else []))),
            *(c.columns for c in where),
        )
        key = frozenset(self.stored.key)
        return LocalPlan(
            columns=tuple(c for c in self.stored.names if c in used),
            schema=schema,
            outputs=tuple(signless_zero(t) if distinct else t.sql for t in outputs),
            where=where,
            groups=tuple(signless_zero(g) for g in groups),
            group_columns=frozenset().union(*(g.columns for g in groups)),
            aggregates=tuple(dict.fromkeys(self.grouped.calls)),
            aggregated=self.aggregated,
            having=condition.sql if condition else None,
            order=order,
            limit=row_count(query, "limit"),
            offset=row_count(query, "offset") or 0,
            distinct=distinct,
            filters_values=any(not c.columns <= key for c in where),
        )

    def _star(self, qualifier: str) -> list[Item[exp.Expr]]:
        foreign = None if qualifier.lower() in ("", self.name.lower()) else qualifier
        return [(None, exp.column(exp.to_identifier(n, quoted=True), table=foreign)) for n in self.schema.names]

    def written(self, e: exp.Column) -> str:
        """A column's name as the query spells it."""
        return e.name

    def _name(self, i: int, t: Typed) -> str | None:
        alias, e = self.items[i]
        if alias is not None:
            return alias
        column = named_after(e)
        if column is not None:
            return self.written(column)
        return t.name if self.named else None

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
        return without_aliases(e, self.list.meant_by, self._is_column, prefer_output=prefer_output)

    def _is_column(self, e: exp.Column) -> bool:
        return bool(e.table) or e.name.lower() in self.known

    def same(self, e: exp.Expr) -> Hashable:
        """Equal for expressions that mean the same."""
        return key_of(e, self.name.lower())

    def _order(self, distinct: bool) -> tuple[tuple[str, ...], list[Typed]]:
        order = self.query.args.get("order")
        texts, sorted_by = [], []
        for o in map(sort_key, order.expressions if order is not None else []):
            e = not_constant(self.ordered_by(o.this))
            sorts_selected(any(self.same(e) == self.same(item) for _, item in self.items), distinct)
            t = self.expressions.compile(e)
            texts.append(f"{signless_zero(t)} {direction(o)}")
            sorted_by.append(t)
        return tuple(texts), sorted_by
