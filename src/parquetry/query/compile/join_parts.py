"""A query over joined tables in two parts: what a worker makes of some rows of each, and what Spark makes of that.

Workers filter, join, project and aggregate. Which rows of which table a worker gets is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from parquetry.model.schema import TableSchema
from parquetry.query.compile.clauses import direction, known_type
from parquetry.query.compile.expressions import ScopedExpressions
from parquetry.query.compile.grouped import RowExpressions
from parquetry.query.compile.partials import PARTIALS, MergedAggregates, Partial, final_sql
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.compile.scope import Relation
from parquetry.query.compile.select import SelectCompiler
from parquetry.query.compile.typed import Refused, Typed, signless_zero
from parquetry.query.compile.whole import Mention, QueryCompiler, WholeQuery
from parquetry.storage.spark_text import quote
from parquetry.workload.plain_select import NotPlain, ungrouped

_WHOLE = (exp.Window, exp.Filter, exp.Grouping, exp.GroupingId)


@dataclass(frozen=True)
class JoinParts:
    """``text`` is the workers' statement, with a mark for each mention of a table; ``final`` Spark's over their rows.

    ``nodes`` are the mentions by the place in the query's tree, as ``id()`` tells it.
    """

    text: str
    columns: tuple[Partial, ...]
    final: str
    mentions: tuple[Mention, ...]
    nodes: Mapping[int, int] = field(default_factory=dict)

    @property
    def stops(self) -> bool:
        """Whether DuckDB stops at values that Spark treats otherwise."""
        return "error('" in self.text

    def sql(self, rows: Mapping[int, str]) -> str:
        """The workers' statement over these relations, by the mention's number."""
        text = self.text
        for m in self.mentions:
            text = text.replace(m.mark, rows[m.number])
        return text


def compile_parts(
    query: exp.Query | None, tables: Mapping[str, TableSchema], text: str, whole: WholeQuery, rows: int
) -> JoinParts | Refusal:
    """The two parts of a query that joins at most to ``rows`` rows, or why it has none."""
    if not isinstance(query, exp.Select):
        return Refusal("it is not one SELECT")
    compiler = _Placed({n.lower(): (n, s) for n, s in tables.items()}, text)
    try:
        select = _PartsCompiler(query, compiler.source(query), None, compiler)
        statement, columns, final = select.parts(whole.schema.names, rows)
    except NotPlain as e:
        return Refusal(str(e))
    statement = compiler.with_ctes(statement)
    named = tuple(m for m in compiler.mentions() if m.mark in statement)
    return JoinParts(statement, columns, final, named, compiler.places)


def in_one_part(whole: WholeQuery, types: tuple[str, ...]) -> JoinParts:
    """The whole query as the part of one worker."""
    columns = tuple(Partial(f"c{i}", f"c{i}", t) for i, t in enumerate(types))
    named = zip(columns, whole.schema.names, strict=True)
    final = f"SELECT {', '.join(f'{c.name} AS {quote(name)}' for c, name in named)} FROM {PARTIALS}"
    return JoinParts(whole.text, columns, final, whole.mentions)


class _Placed(QueryCompiler):
    """Remembers which mention each table of the tree became."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.places: dict[int, int] = {}

    def source(self, node: exp.Select) -> Relation:
        self.env = self._with(node, {})
        return self._from(node, self.env)

    def _table(self, node: exp.Table, env: dict[str, object], names: list[str]) -> Relation:  # type: ignore[override]
        before = set(self.read)
        found = super()._table(node, env, names)  # type: ignore[arg-type]
        self.places |= {id(node): number for number in self.read.keys() - before}
        return found


class _PartsCompiler(SelectCompiler):
    def parts(self, names: list[str], rows: int) -> tuple[str, tuple[Partial, ...], str]:
        """The workers' statement and its columns, and Spark's statement over them."""
        group = self.node.args.get("group")
        if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
            raise Refused("grouping sets")
        for key in ("expressions", "having", "order"):
            value = self.node.args.get(key)
            for e in value if isinstance(value, list) else [value]:
                if isinstance(e, exp.Expr) and e.find(*_WHOLE, exp.Query):
                    raise Refused("a window, a filtered aggregate or a subquery above the joined rows")
        plain = ScopedExpressions(self.scope, self.context)
        where = self._where(plain)
        self._aggregates = MergedAggregates(plain.compile, rows)
        self._rows = RowExpressions(self.scope, self.context)
        self._hidden: list[Partial] = []
        _, self._groups_found, self._kinds = self._groups(plain)
        self._group_at = {sql: i for i, sql in enumerate(self._groups_found)}
        found = enumerate(self._groups_found.values())
        groups = [Partial(f"g{i}", signless_zero(t), known_type(t.type)) for i, t in found]
        items = [f"{text} AS {quote(name)}" for text, name in zip(self._final_items(), names, strict=True)]
        final = final_sql(self.node, items, groups, self._final_having, self._final_order)
        columns = (*groups, *self._aggregates.sums, *self._hidden)
        listed = ", ".join(f'{c.sql} AS "{c.name}"' for c in columns)
        statement = [f"SELECT {listed or '1 AS one'} FROM {self.relation.sql}", where]
        if groups:
            statement.append("GROUP BY " + ", ".join(g.sql for g in groups))
        if not columns:
            raise Refused("it gives constants only")
        return " ".join(filter(None, statement)), columns, final

    def _final_items(self) -> list[str]:
        if self.aggregated:
            return [self._final(e) for _, e in self.items if isinstance(e, exp.Expr)]
        return [self._hide(self._output(e, self._rows)) for _, e in self.items]

    def _hide(self, t: Typed) -> str:
        """The workers' column with this value."""
        self._hidden.append(Partial(f"c{len(self._hidden)}", t.sql, known_type(t.type)))
        return self._hidden[-1].name

    def _final_having(self, e: exp.Expr) -> str:
        return self._final(self._without_aliases(e, prefer_output=False))

    def _final_order(self, o: exp.Ordered) -> str:
        by = self._sorted_by(o)
        if isinstance(by, int):
            return f"{by + 1} {direction(o)}"
        if self.distinct:
            raise Refused("it orders DISTINCT rows by something that has no name")
        return f"{self._final(by) if self.aggregated else self._hide(self._rows.compile(by))} {direction(o)}"

    def _final(self, e: exp.Expr) -> str:
        """Spark text in which groups and aggregates are taken from the workers' columns."""

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.AggFunc):
                return self._aggregates.merged(node)
            if type(node) in self._kinds or isinstance(node, exp.Column):
                try:
                    at = self._group_at.get(self._rows.compile(node).sql)
                except Refused:
                    at = None
                if at is not None:
                    return exp.column(f"g{at}")
                if isinstance(node, exp.Column):
                    raise Refused(ungrouped(node.name))
            return node

        return e.copy().transform(replaced).sql(dialect="spark")
