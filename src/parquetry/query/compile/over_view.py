"""The local plan of a query that a view answers: the query's own expressions, compiled to what the view stores."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.distinct import SKETCH, estimate_text, merged_text
from parquetry.model.schema import TableSchema
from parquetry.model.types import arrow_type, is_float
from parquetry.model.visible import average
from parquetry.query.compile.aggregates import AggregateCall, GroupedExpressions
from parquetry.query.compile.plain_expressions import Expressions, RowSource
from parquetry.query.compile.plain_select import JoinedTable, LocalPlan, Planner, Refusal
from parquetry.query.compile.typed import Refused, Typed, duck_type, quote
from parquetry.views.asked import Source, name_of, written
from parquetry.views.match import Match, Rollup
from parquetry.workload.plain_select import NotPlain


def plan_over_view(match: Match, sql: str) -> LocalPlan | Refusal:
    """The plan whose answer has the names and types that ``sql`` has over its tables; or why there is none."""
    conditions = [*match.residual, *match.meeting]
    query = exp.Select()  # of the same parts: a plan only reads them
    query.args |= match.asked.query.args
    query.args |= {"joins": None, "where": exp.Where(this=exp.and_(*conditions)) if conditions else None}
    if any(is_float(arrow_type(match.asked.types[side.name])) for m in match.meeting for side in m.unnest_operands()):
        return Refusal("it joins by floats")
    try:
        plan = _ViewPlanner(match, query, sql).plan()
    except NotPlain as e:
        return Refusal(str(e))
    if not match.others:
        return plan
    joined = tuple(_joined(match, s) for s in match.others)
    theirs = {name for j in joined for _, name in j.columns}
    key = frozenset(match.view.schema.key) | theirs
    return replace(
        plan,
        joined=joined,
        group_columns=plan.group_columns - theirs,
        filters_values=any(not c.columns <= key for c in plan.where),
    )


def _joined(match: Match, source: Source) -> JoinedTable:
    """The columns that the query names of a table which is joined with the view."""
    own = {name_of(source.table_id, c): c for c in source.schema.names}
    named = [(own[n], _local_name(n)) for n in match.asked.types if n in own]
    key = source.schema.key[0]
    return JoinedTable(source.table_id, tuple(named) or ((key, _local_name(name_of(source.table_id, key))),))


def _local_name(name: str) -> str:
    return f"__{name}"  # as no stored column is called


class _ViewPlanner(Planner):
    def __init__(self, match: Match, query: exp.Expr, sql: str) -> None:
        self.match = match
        assert isinstance(query, exp.Query)
        super().__init__(query, match.asked.sources[0].table, match.asked.columns, sql)

    def stored_schema(self) -> TableSchema:
        return self.match.view.schema

    def written(self, e: exp.Column) -> str:
        return written(e)

    def row_expressions(self, source: RowSource) -> Expressions:
        return _ViewRows(source, self.match)

    def grouped_expressions(self, source: RowSource) -> GroupedExpressions:
        return _ViewGroups(source, self.groups, self.match)


class _AsWritten(Expressions):
    """Expressions over the query's tables, which name columns as the query does."""

    def column(self, e: exp.Column) -> Typed:
        return replace(super().column(e), name=written(e))


class _ViewRows(Expressions):
    """Expressions over the rows of the view: those that are its groups become columns of it."""

    def __init__(self, source: RowSource, match: Match) -> None:
        super().__init__(source)
        self.match = match
        self.plain = _AsWritten(source)

    def compile(self, e: exp.Expr | None) -> Typed:
        group = None if e is None else self.match.group_of(e)
        if e is None or group is None:
            return super().compile(e)
        try:
            name = self.plain.compile(e).name
        except Refused:
            name = None
        return Typed(group.type, self.source.prefix + quote(group.name), name, frozenset([group.name]))

    def column(self, e: exp.Column) -> Typed:
        found = super().column(e)
        if self.match.of_another(e):
            name = _local_name(e.name)
            return replace(found, sql=self.source.prefix + quote(name), name=written(e), columns=frozenset([name]))
        raise Refused(f"the view does not keep {written(e)}")


class _ViewGroups(GroupedExpressions):
    """Expressions above GROUP BY, whose aggregates roll up those of the view."""

    def __init__(self, source: RowSource, groups: list[exp.Expr], match: Match) -> None:
        super().__init__(source, groups)
        self.match = match
        self.rows = _ViewRows(source, match)
        self.over_table = GroupedExpressions(source, groups)
        self.over_table.rows = _AsWritten(source)

    def _aggregate(self, e: exp.AggFunc) -> Typed:
        made = self.match.rollup(e)
        if made is None:
            return super()._aggregate(e)
        plain = self._over_table(e, made)
        if plain.type != made.type:
            raise Refused(f"{e.sql('spark')[:60]} has another type over the view")
        for column in made.columns:
            function = {"min": "min", "max": "max", DISTINCT: SKETCH}.get(made.function, "sum")
            self.calls.append(AggregateCall(function, column, frozenset([column]), False))
        return Typed(made.type, self._text(made), plain.name, frozenset(made.columns))

    def _over_table(self, e: exp.AggFunc, made: Rollup) -> Typed:
        """The aggregate's type and name over the table; refuses what Spark and DuckDB do not compute alike."""
        if made.function != DISTINCT:
            return self.over_table.compile(e)
        try:
            inner = self.over_table.rows.compile(e.this).name
        except Refused:
            inner = None  # only Spark hashes values, so whatever they are, the view's registers say it all
        return Typed(made.type, "", inner and f"{DISTINCT}({inner})")

    def _text(self, made: Rollup) -> str:
        columns = [self.source.prefix + quote(c) for c in made.columns]
        match made.function:
            case "approx_count_distinct":
                return estimate_text(merged_text(columns[0], duck=True), duck=True)
            case "count":
                return f"CAST(coalesce(sum({columns[0]}), 0) AS BIGINT)"
            case "sum":
                total = f"CAST(sum({columns[0]}) AS {duck_type(made.type)})"
                return total if len(columns) == 1 else f"CASE WHEN sum({columns[1]}) > 0 THEN {total} END"
            case "avg":
                stored = self.match.view.schema.column(made.columns[0]).type
                total = f"CAST(sum({columns[0]}) AS {duck_type(stored)})"
                return average(made.type, total, f"CAST(sum({columns[1]}) AS BIGINT)", duck=True)
        return f"{made.function}({columns[0]})"
