"""Reads a view's definition, and refuses with the reason what cannot be kept up from deltas (NA-29)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from parquetry.errors import SchemaError, UnknownColumn
from parquetry.model.distinct import FUNCTION as DISTINCT
from parquetry.model.schema import TableSchema
from parquetry.model.state import State, TableState
from parquetry.model.types import is_nested
from parquetry.model.view import ROWS, ViewColumn, ViewSource, ViewSpec
from parquetry.views.normalize import conjuncts, expression, normal, text_of
from parquetry.workload.allowed import check_allowed
from parquetry.workload.plain_select import (
    NESTED_AGGREGATE,
    NOT_A_TABLE,
    SELF_JOIN,
    NotPlain,
    as_select,
    groups_in,
    items_in,
    kind_of,
    not_a_column,
    tables_in,
    ungrouped,
)
from parquetry.workload.sql_text import parse_query, words_of
from parquetry.workload.understood import not_bound, not_understood

AGGREGATES: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "avg",
    exp.ApproxDistinct: DISTINCT,
}
NO_DISTINCT = f"distinct values of two deltas may be the same; use {DISTINCT}"
_NEVER_LESS = ("min", "max", DISTINCT)  # what they are of no longer shows in them, so rows cannot be taken away
_READ_ARGS = {"expressions", "from_", "where", "group", "joins", "kind"}
_CHANGING = {
    "now", "current_date", "current_timestamp", "current_time", "localtimestamp", "rand", "randn", "random", "uuid",
    "shuffle", "monotonically_increasing_id", "spark_partition_id", "input_file_name", "current_user", "user",
    "session_user", "unix_timestamp", "curdate", "randstr", "uniform", "localtime", "current_database",
    "current_schema", "current_catalog", "current_path", "version",
}  # fmt: skip
"""Functions whose value is another one the next time: what was added could never be found again."""


@dataclass(frozen=True)
class Definition:
    """A definition that can be maintained; types are not known yet. ``key`` is the order of the groups."""

    sql: str
    sources: tuple[ViewSource, ...]
    tables: tuple[TableState, ...]
    columns: tuple[ViewColumn, ...]
    where: str
    key: tuple[str, ...]
    bare: frozenset[str]  # groups selected as plain columns, without AS


def read_definition(sql: str, state: State, order: Sequence[str] = ()) -> Definition:
    """The parts of ``SELECT groups and aggregates FROM table [JOIN …] [WHERE …] GROUP BY groups``."""
    words = words_of(sql)
    check_allowed(words, {name.lower() for name in state.readable})
    query = parse_query(sql, words)
    if doubt := not_understood(words) or not_bound(query, sql, words):
        raise _refused(doubt)
    try:
        select = as_select(query, _READ_ARGS)
    except NotPlain as e:
        raise _refused(f"{e}; a view holds groups of plain tables' rows, put the rest above it") from None
    try:
        return _read(select, sql, state, order)
    except NotPlain as e:
        raise _refused(str(e)) from None


def _read(query: exp.Select, sql: str, state: State, order: Sequence[str]) -> Definition:
    _check_functions(query)
    sources, tables = _sources(query, state)
    _check_columns(query, sources, tables)
    qualifiers = [s.alias.lower() for s in sources] if len(sources) == 1 else []
    if len(sources) > 1:
        # A column that a table gets later must not make the definition ambiguous.
        query = _qualified(query, sources, tables)
        sources = tuple(
            replace(s, on=_join_condition(j)) for s, j in zip(sources, [None, *query.args["joins"]], strict=True)
        )
    where = query.args.get("where")
    groups = _groups(query, qualifiers, tables)
    columns = [_column(e, groups, qualifiers) for e in query.expressions]
    _check_list(columns, groups)
    wanted = [next((c.name for c in columns if c.name.lower() == o.lower()), o) for o in order]
    grouped = [c.name for c in columns if c.function == "group"]
    for o in wanted:
        if o not in grouped:
            raise SchemaError(f"'{o}' of ORDER BY is no group of the view; groups: {', '.join(grouped)}")
    key = tuple(dict.fromkeys([*wanted, *grouped]))
    condition = " AND ".join(f"({text_of(c)})" for c in conjuncts(where.this)) if where is not None else ""
    bare = frozenset(c.name for c, e in zip(columns, query.expressions, strict=True) if not isinstance(e, exp.Alias))
    return Definition(sql, sources, tables, tuple(columns), condition, key, bare)


def how_of(definition: Definition, exact_sums: bool) -> str:
    """What deltas of the sources mean for the view: see ``ViewSpec``. ``exact_sums``: no sum is of floats."""
    if all(_adds_up(t, definition) for t in definition.tables):
        return "merge"
    if exact_sums and all(c.function not in _NEVER_LESS for c in definition.columns):
        return "retract"
    return "replace"


def averages_integers(spec: ViewSpec, rows: Mapping[str, str]) -> bool:
    """Whether every double among the results is an average of integers: their sums are exact.

    ``rows`` are the types of what the aggregates are of, see ``ViewSpec.arguments``.
    """
    doubles = [(i, c) for i, c in enumerate(spec.aggregates) if c.type == "double" and c.function in ("sum", "avg")]
    return all(c.function == "avg" and rows[f"__a{i}"] in ("tinyint", "smallint", "int") for i, c in doubles)


def _adds_up(table: TableState, definition: Definition) -> bool:
    """Whether the definition over a table is the merge of the definition over its deltas."""
    schema = table.schema
    if schema.model == "append":
        return True
    if schema.model != "aggregate" or len(definition.tables) > 1 or (table.view and table.view.spec.hides_rows):
        return False
    key = {k.lower() for k in schema.key}
    values = {n.lower(): how for n, how in schema.values.items()}
    if definition.where and not _columns_of(definition.where) <= key:
        return False
    for c in definition.columns:
        used = _columns_of(c.argument)
        if c.function == "group" or (c.function in _NEVER_LESS and used <= key):
            if not used <= key:
                return False
            continue
        merge = values.get(next(iter(used)), "") if isinstance(expression(c.argument).unnest(), exp.Column) else ""
        if not (c.function == "sum" and merge in ("sum", "count")) and not (c.function == merge in ("min", "max")):
            return False
    return True


def _columns_of(text: str) -> set[str]:
    return {c.name.lower() for c in expression(text).find_all(exp.Column)}


def _sources(query: exp.Select, state: State) -> tuple[tuple[ViewSource, ...], tuple[TableState, ...]]:
    sources: list[ViewSource] = []
    tables: list[TableState] = []
    for item, on in tables_in(query):
        if item.db:
            raise _refused(NOT_A_TABLE)
        t = state.table(item.name)
        alias = item.alias or item.name
        if alias.lower() in (s.alias.lower() for s in sources):
            raise _refused(f"two tables have the name '{alias}'; give them aliases")
        sources.append(ViewSource(t.table_id, alias, _join_condition(on)))
        tables.append(t)
    if len({t.table_id for t in tables}) < len(tables):
        raise _refused(SELF_JOIN)
    return tuple(sources), tuple(tables)


def _qualified(query: exp.Select, sources: Sequence[ViewSource], tables: Sequence[TableState]) -> exp.Select:
    """The query with the table's name before every column."""
    query = query.copy()
    for c in list(query.find_all(exp.Column)):
        owner = [s.alias for s, t in zip(sources, tables, strict=True) if _has(t.readable, c.name)]
        if not c.table and owner:
            c.set("table", exp.to_identifier(owner[0]))
    return query


def _join_condition(join: exp.Join | None) -> str:
    if join is None:
        return ""
    kind = kind_of(join)
    if kind not in ("", "INNER") or join.args.get("using"):
        raise _refused(f"it has {kind or 'JOIN USING'}; views join by INNER JOIN … ON a.x = b.y")
    condition = join.args.get("on")
    if condition is None:
        raise _refused("a join has no ON; views join by INNER JOIN … ON a.x = b.y")
    for part in conjuncts(condition):
        if not isinstance(part, exp.EQ) or not all(isinstance(e.unnest(), exp.Column) for e in part.unnest_operands()):
            raise _refused(f"the join condition {text_of(part)} is not an equality of two columns")
    return text_of(condition)


def _check_functions(query: exp.Select) -> None:
    for f in query.find_all(exp.Func):
        name = (f.name if isinstance(f, exp.Anonymous) else f.sql_name()).lower()
        if name in _CHANGING:
            raise _refused(f"{name}() has another value every time")
    for c in query.find_all(exp.Column):
        if not c.table and c.name.lower() in _CHANGING:
            raise _refused(f"{c.name} has another value every time")


def _check_columns(query: exp.Select, sources: Sequence[ViewSource], tables: Sequence[TableState]) -> None:
    known = {s.alias.lower(): t.readable for s, t in zip(sources, tables, strict=True)}
    aliases = {e.alias.lower() for e in query.expressions if isinstance(e, exp.Alias)}
    for c in query.find_all(exp.Column):
        if isinstance(c.this, exp.Star):
            raise _refused("it selects *; name the columns")
        if len(c.parts) > 2 or (c.table and c.table.lower() not in known):
            raise _refused(not_a_column(c))
        owners = [s for a, s in known.items() if (not c.table or c.table.lower() == a) and _has(s, c.name)]
        if not owners:
            if not c.table and c.name.lower() in aliases and c.find_ancestor(exp.Group):
                continue
            raise UnknownColumn(c.name, ", ".join(t.name for t in tables), [n for s in known.values() for n in s.names])
        if len(owners) > 1:
            raise _refused(f"column {c.name} is in several tables; write which one")
        if is_nested(next(k for k in owners[0].columns if k.name.lower() == c.name.lower()).arrow):
            raise _refused(f"column {c.name} has a nested type")


def _has(schema: TableSchema, name: str) -> bool:
    return name.lower() in (n.lower() for n in schema.names)


def _groups(query: exp.Select, qualifiers: Sequence[str], tables: Sequence[TableState]) -> list[exp.Expr]:
    """The grouping expressions, with positions and names of the SELECT list written out."""
    group = query.args.get("group")
    if group is None:
        raise _refused("it has no GROUP BY; group by at least one column, any coarser total is a roll-up of that")
    if group.args.get("all"):
        return [normal(e.unalias(), qualifiers) for e in query.expressions if not e.find(exp.AggFunc)]
    is_column = partial(_is_column, tables=tables)
    return [normal(e, qualifiers) for e in groups_in(query, items_in(query), is_column)]


def _is_column(c: exp.Column, tables: Sequence[TableState]) -> bool:
    return bool(c.table) or any(_has(t.readable, c.name) for t in tables)


def _column(item: exp.Expr, groups: Sequence[exp.Expr], qualifiers: Sequence[str]) -> ViewColumn:
    e = item.unalias()
    if not isinstance(item, exp.Alias) and not isinstance(e, exp.Column):
        raise _refused(f"{text_of(e)[:60]} has no name; write {text_of(e)[:60]} AS name")
    name = item.alias if isinstance(item, exp.Alias) else e.name
    if normal(e, qualifiers) in groups:
        return ViewColumn(name, "", "group", text_of(normal(e, qualifiers)))
    if isinstance(e, exp.Filter):
        raise _refused(f"{text_of(e)[:60]} has FILTER; aggregate CASE WHEN … THEN … END instead")
    function = AGGREGATES.get(type(e))
    if function is None:
        aggregate = e.find(exp.AggFunc)
        if aggregate is None:
            raise _refused(ungrouped(name))
        if type(aggregate) not in AGGREGATES:
            raise _refused(f"{text_of(aggregate)[:60]} cannot be merged; use {', '.join(AGGREGATES.values())}")
        raise _refused(f"{name} is computed from aggregates; keep the aggregates in the view and compute it above")
    if isinstance(e.this, exp.Distinct):
        raise _refused(f"{text_of(e)[:60]}: {NO_DISTINCT}")
    if any(v for k, v in e.args.items() if k not in ("this", "big_int")):
        more = ", and views keep its default precision" if function == DISTINCT else ""
        raise _refused(f"{text_of(e)[:60]} has more than one argument{more}")
    argument = e.this
    if function == "count" and (isinstance(argument, exp.Star) or _is_constant(argument)):
        return ViewColumn(name, "", function, "*")
    if argument.find(exp.AggFunc):
        raise _refused(NESTED_AGGREGATE)
    return ViewColumn(name, "", function, text_of(normal(argument, qualifiers)))


def _is_constant(e: exp.Expr) -> bool:
    return isinstance(e, exp.Literal | exp.Boolean)


def _check_list(columns: Sequence[ViewColumn], groups: Sequence[exp.Expr]) -> None:
    names = [c.name.lower() for c in columns]
    reserved = {n for c in columns for n in (f"{c.name}__sum", f"{c.name}__count", f"{c.name}__sketch")} | {ROWS}
    for c in columns:
        if names.count(c.name.lower()) > 1:
            raise _refused(f"two columns are called '{c.name}'")
        if c.name in reserved:
            raise _refused(f"the name '{c.name}' is kept for what the view stores; choose another")
    selected = {c.argument for c in columns if c.function == "group"}
    for g in groups:
        if text_of(g) not in selected:
            raise _refused(f"it groups by {text_of(g)[:60]} but does not select it")
    if len(selected) < sum(c.function == "group" for c in columns):
        raise _refused("a group is selected twice")


def _refused(why: str) -> SchemaError:
    return SchemaError(f"this view cannot be maintained: {why}")
