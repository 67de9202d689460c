"""A grouped query in two parts: what scan workers aggregate of their own rows, and what Spark makes of that (PP-14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from parquetry.model.schema import TableSchema
from parquetry.query.compile.aggregates import sum_of
from parquetry.query.compile.clauses import direction, is_distinct, limits, sort_key
from parquetry.query.compile.plain_select import LocalPlan, Planner, Refusal
from parquetry.query.compile.typed import Refused, Typed, left_to_spark, signless_zero
from parquetry.storage.spark_text import quote
from parquetry.workload.coercion import MAX_PRECISION, decimal, decimal_of
from parquetry.workload.plain_select import NotPlain

PARTIALS = "__partials"
"""The view over the workers' rows that the final statement reads."""
_QUOTIENT_SCALE = 6  # digits behind the point that Spark keeps of a decimal quotient in any case
_COUNT_DIGITS = 20  # of a bigint as a decimal


@dataclass(frozen=True)
class Partial:
    """One column that workers give: its DuckDB text over the table's rows, and its Spark type."""

    name: str
    sql: str
    type: str


@dataclass(frozen=True)
class PartialPlan:
    """Workers group by ``groups`` and compute ``sums``; ``final`` is Spark text over their rows together."""

    groups: tuple[Partial, ...]
    sums: tuple[Partial, ...]
    final: str

    @property
    def columns(self) -> tuple[Partial, ...]:
        return (*self.groups, *self.sums)

    def worker_sql(self, local: LocalPlan, source: str) -> str:
        """The DuckDB statement of a worker over ``source``, a relation with the table's columns."""
        listed = ", ".join(f'{p.sql} AS "{p.name}"' for p in self.columns)
        parts = [f'SELECT {listed} FROM {source} AS "__rows"']
        if local.where:
            parts.append("WHERE " + " AND ".join(c.sql for c in local.where))
        if self.groups:
            parts.append("GROUP BY " + ", ".join(p.sql for p in self.groups))
        return " ".join(parts)


def plan_in_parts(
    query: exp.Query | None, sql: str, table: str, schema: TableSchema, local: LocalPlan, rows: int
) -> PartialPlan | Refusal:
    """The two parts of a grouped query that reads at most ``rows`` rows, or why it has none."""
    if not local.aggregated:
        return Refusal("it returns rows as they are")
    assert isinstance(query, exp.Select)
    try:
        return _Parts(Planner(query, table, schema, sql), local, rows).plan()
    except NotPlain as e:
        return Refusal(str(e))


def final_sql(
    select: exp.Select,
    items: Sequence[str],
    groups: Sequence[Partial],
    having: Callable[[exp.Expr], str],
    sort: Callable[[exp.Ordered], str],
) -> str:
    """Spark's statement over the workers' rows together; ``having`` and ``sort`` give its expressions."""
    parts = [f"SELECT {'DISTINCT ' if is_distinct(select) else ''}{', '.join(items)} FROM {PARTIALS}"]
    if groups:
        parts.append("GROUP BY " + ", ".join(g.name for g in groups))
    if condition := select.args.get("having"):
        parts.append("HAVING " + having(condition.this))
    if order := select.args.get("order"):
        parts.append("ORDER BY " + ", ".join(sort(sort_key(o)) for o in order.expressions))
    return " ".join([*parts, *limits(select)])


@dataclass
class MergedAggregates:
    """Aggregates of at most ``rows`` rows as Spark text over what workers aggregate; ``sums`` are the workers' columns.

    ``compile`` gives an expression over a single row."""

    compile: Callable[[exp.Expr], Typed]
    rows: int
    sums: list[Partial] = field(default_factory=list)

    def merged(self, e: exp.AggFunc) -> exp.Expr:
        if isinstance(e.this, exp.Distinct):
            raise Refused("a DISTINCT aggregate needs all rows of a group in one place")
        if isinstance(e, exp.Count):
            if isinstance(e.this, exp.Star):
                return exp.maybe_parse(f"coalesce(sum({self._sum('count(*)', 'bigint')}), 0L)", dialect="spark")
            return exp.maybe_parse(f"coalesce(sum({self._count(e.this)}), 0L)", dialect="spark")
        t = self.compile(e.this)
        match e:
            case exp.Min() | exp.Max():
                word = "min" if isinstance(e, exp.Min) else "max"
                text = f"{word}({self._sum(f'{word}({t.sql})', t.type)})"
            case exp.Sum():
                text = self._whole_sum(t)
            case exp.Avg():
                text = self._average(e, t)
            case _:
                raise left_to_spark(e)
        return exp.maybe_parse(text, dialect="spark")

    def _whole_sum(self, t: Typed) -> str:
        type_, sql = sum_of(t, "")
        merged = f"sum({self._sum(sql, type_)})"
        return f"CAST({merged} AS {type_.upper()})" if decimal_of(type_) else merged

    def _average(self, e: exp.Avg, t: Typed) -> str:
        count = f"nullif(sum({self._count(e.this)}), 0L)"
        digits = decimal_of(t.type)
        if digits is None:
            return f"(sum({self._sum(f'sum(CAST({t.sql} AS DOUBLE))', 'double')}) / {count})"
        precision, scale = digits
        # Spark rounds the quotient once more than avg does. That changes nothing while the quotient keeps enough
        # digits to tell every tie apart, which is a matter of how many rows are averaged.
        whole = min(MAX_PRECISION, precision + 10) - scale
        wanted = max(_QUOTIENT_SCALE, scale + _COUNT_DIGITS + 1)
        kept = wanted if whole + wanted <= MAX_PRECISION else max(MAX_PRECISION - whole, min(wanted, _QUOTIENT_SCALE))
        if self.rows >= 10 ** (kept - scale - 4):
            raise Refused(f"an average of {t.type} over so many rows: too few digits to be exact")
        return f"CAST({self._whole_sum(t)} / {count} AS {decimal(precision + 4, scale + 4).upper()})"

    def _count(self, argument: exp.Expr) -> str:
        return self._sum(f"count({self.compile(argument).sql})", "bigint")

    def _sum(self, sql: str, type_: str) -> str:
        """The name of the worker's column with this text; the same text is computed once."""
        for p in self.sums:
            if p.sql == sql:
                return p.name
        self.sums.append(Partial(f"p{len(self.sums)}", sql, type_))
        return self.sums[-1].name


@dataclass
class _Parts:
    planner: Planner
    local: LocalPlan
    rows: int

    def plan(self) -> PartialPlan:
        query, compile_ = self.planner.query, self.planner.rows.compile
        groups = []
        for i, g in enumerate(self.planner.groups):
            t = compile_(g)
            groups.append(Partial(f"g{i}", signless_zero(t), t.type))
        self._aggregates = MergedAggregates(compile_, self.rows)
        self._group_at = {self.planner.same(g): i for i, g in reversed(list(enumerate(self.planner.groups)))}
        named = zip(self.planner.items, self.local.schema.names, strict=True)
        items = [f"{self._final(e)} AS {quote(name)}" for (_, e), name in named]
        final = final_sql(query, items, groups, self._having, self._sorted)
        return PartialPlan(tuple(groups), tuple(self._aggregates.sums), final)

    def _having(self, e: exp.Expr) -> str:
        return self._final(self.planner.without_aliases(e, prefer_output=False))

    def _sorted(self, o: exp.Ordered) -> str:
        e, same = self.planner.ordered_by(o.this), self.planner.same
        # By its place where it is selected: behind DISTINCT Spark knows nothing else.
        selected = [str(i) for i, (_, item) in enumerate(self.planner.items, 1) if same(item) == same(e)]
        return f"{(selected or [self._final(e)])[0]} {direction(o)}"

    def _final(self, e: exp.Expr) -> str:
        """Spark text in which groups and aggregates are taken from the workers' columns."""

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.AggFunc):
                return self._aggregates.merged(node)
            if isinstance(node, exp.Condition) and (i := self._group_at.get(self.planner.same(node))) is not None:
                return exp.column(f"g{i}")
            return node

        return e.copy().transform(replaced).sql(dialect="spark")
