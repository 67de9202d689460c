"""The local plan of a query that a view answers: the query's own expressions, compiled to what the view stores."""

from __future__ import annotations

from sqlglot import exp

from parquetry.model.schema import TableSchema
from parquetry.query.aggregates import AggregateCall, GroupedExpressions
from parquetry.query.duck_sql import Expressions, RowSource
from parquetry.query.local_plan import LocalPlan, Planner, Refusal
from parquetry.query.typed import Refused, Typed, duck_type, quote
from parquetry.views.match import Match, NoMatch, Rollup
from parquetry.views.project import average


def plan_over_view(match: Match, table: str, sql: str) -> LocalPlan | Refusal:
    """The plan whose answer has the names and types that the query has over ``table``; or why there is none."""
    query = match.asked.query.copy()
    query.set("where", exp.Where(this=exp.and_(*match.residual)) if match.residual else None)
    try:
        return _ViewPlanner(match, query, table, sql).plan()
    except (Refused, NoMatch) as e:
        return Refusal(str(e))


class _ViewPlanner(Planner):
    def __init__(self, match: Match, query: exp.Expr, table: str, sql: str) -> None:
        self.match = match
        assert isinstance(query, exp.Query)
        super().__init__(query, table, match.asked.base, sql)

    def stored_schema(self) -> TableSchema:
        return self.match.view.schema

    def row_expressions(self, source: RowSource) -> Expressions:
        return _ViewRows(source, self.match)

    def grouped_expressions(self, source: RowSource) -> GroupedExpressions:
        return _ViewGroups(source, self.groups, self.match)


class _ViewRows(Expressions):
    """Expressions over the rows of the view: those that are its groups become columns of it."""

    def __init__(self, source: RowSource, match: Match) -> None:
        super().__init__(source)
        self.match = match
        self.plain = Expressions(source)

    def compile(self, e: exp.Expr) -> Typed:
        group = self.match.group_of(e)
        if group is None:
            return super().compile(e)
        try:
            name = self.plain.compile(e).name
        except Refused:
            name = None
        return Typed(group.type, self.source.prefix + quote(group.name), name, frozenset([group.name]))

    def column(self, e: exp.Column) -> Typed:
        super().column(e)
        raise Refused(f"the view does not keep {e.name}")


class _ViewGroups(GroupedExpressions):
    """Expressions above GROUP BY, whose aggregates roll up those of the view."""

    def __init__(self, source: RowSource, groups: list[exp.Expr], match: Match) -> None:
        super().__init__(source, groups)
        self.match = match
        self.rows = _ViewRows(source, match)
        self.over_table = GroupedExpressions(source, groups)

    def _aggregate(self, e: exp.AggFunc) -> Typed:
        made = self.match.rollup(e)
        if made is None:
            return super()._aggregate(e)
        plain = self.over_table.compile(e)  # refuses what Spark and DuckDB do not compute alike
        if plain.type != made.type:
            raise Refused(f"{e.sql('spark')[:60]} has another type over the view")
        for column in made.columns:
            function = made.function if made.function in ("min", "max") else "sum"
            self.calls.append(AggregateCall(function, column, frozenset([column]), False))
        return Typed(made.type, self._text(made), plain.name, frozenset(made.columns))

    def _text(self, made: Rollup) -> str:
        columns = [self.source.prefix + quote(c) for c in made.columns]
        match made.function:
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
