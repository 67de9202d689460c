"""Every base-table reference of a query, with the columns it uses and the filters that hold for it.

Reads queries, CTEs, FROM and joins; ``outputs`` says which columns a SELECT passes on, ``conditions`` what its filters
say of the base tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from parquetry.errors import UnknownColumn, UnknownTable
from parquetry.model.schema import TableSchema
from parquetry.query.sql.conditions import Conditions, Equal, equal_columns
from parquetry.query.sql.join_filters import rule_of
from parquetry.query.sql.outputs import both_sides, output_of, without_origins
from parquetry.query.sql.scopes import Origin, Output, Ref, Scope, Source, parts_of

_MAX_REFS = 200
"""CTEs are read once per mention, so that each mention has its own filters; beyond this many, only once."""
_READ_APART = {"from_", "joins", "with_", "laterals", "hint", "kind", "operation_modifiers"}
_LIMITS = ("limit", "offset", "qualify", "sample", "match", "pivots")
_OF_A_CHAIN = ("with_", "order", *_LIMITS)
"""What makes a set operation more than a link in a chain of them."""
_PLAIN_ABOVE = (
    *(exp.Binary, exp.Unary, exp.AggFunc, exp.Alias, exp.Ordered, exp.Between, exp.In, exp.Case, exp.If, exp.Cast),
    *(exp.Coalesce, exp.Order, exp.Group, exp.Where, exp.Having, exp.Distinct, exp.Select),
)
"""What may stand between a SELECT and a name without giving the name another meaning than a column."""


class TooManyRefs(Exception):
    pass


@dataclass(eq=False)
class _Cte:
    body: exp.Query
    columns: list[str]
    env: dict[str, _Cte]
    recursive: bool
    mentioned: bool = False
    reading: bool = False
    read: tuple[Output | None, list[Ref]] | None = field(default=None)


@dataclass(frozen=True)
class References:
    """The base tables' references in reading order, and how often each relation's lowered name was read."""

    refs: list[Ref]
    names: Counter[str]
    complete: bool  # every relation of the tree was read
    equal: list[Equal]


def find_references(query: exp.Query, tables: Mapping[str, TableSchema], opaque: str = "") -> References:
    """All references. ``opaque`` is a reason not to trust the text's constants, if there is one."""
    by_name = {name.lower(): (name, schema) for name, schema in tables.items()}
    try:
        finder = _Finder(by_name, opaque, share_ctes=False)
        finder.query(query, {}, None)
    except TooManyRefs:
        finder = _Finder(by_name, opaque, share_ctes=True)
        finder.query(query, {}, None)
    named = [
        t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier) and not t.find_ancestor(exp.Hint)
    ]
    complete = all(id(t) in finder.read for t in named)
    return References(finder.refs, Counter(_full_name(t).lower() for t in named), complete, finder.equal)


def _full_name(table: exp.Table) -> str:
    return ".".join(p.name for p in table.parts)


class _Finder:
    def __init__(self, tables: dict[str, tuple[str, TableSchema]], opaque: str, share_ctes: bool) -> None:
        self.tables, self.share_ctes = tables, share_ctes
        self.conditions = Conditions(opaque)
        self.refs: list[Ref] = []
        self.equal: list[Equal] = []
        self.read: set[int] = set()  # the tree's mentions of tables and CTEs that were read

    # -- queries ----------------------------------------------------------------------------------

    def query(self, node: exp.Expr, env: dict[str, _Cte], parent: Scope | None) -> Output | None:
        """Reads a query and gives its output columns; None when their names are not known."""
        env, declared = self._with(node, env)
        output: Output | None = None
        match node:
            case exp.Select():
                output = self._select(node, env, parent)
            case exp.SetOperation():
                output = self._set_operation(node, env, parent)
            case exp.Subquery() if isinstance(node.this, exp.Query):
                output = self.query(node.this, env, parent)
            case _:
                scope = Scope(parent)
                for child in node.iter_expressions():
                    scope.sources.extend(self._item(child, env, scope))
        for cte in declared:
            if not cte.mentioned:  # Spark checks it all the same
                self.query(cte.body, cte.env, None)
        if output is not None and any(node.args.get(k) for k in _LIMITS):
            return without_origins(output)
        return output

    def _with(self, node: exp.Expr, env: dict[str, _Cte]) -> tuple[dict[str, _Cte], list[_Cte]]:
        clause = node.args.get("with_")
        declared: list[_Cte] = []
        if clause is None:
            return env, declared
        for c in clause.expressions:
            columns = [i.name for i in c.args["alias"].args.get("columns") or []]
            cte = _Cte(c.this, columns, env, bool(clause.args.get("recursive")))
            if cte.recursive:
                cte.env = {**env, c.alias.lower(): cte}
            env = {**env, c.alias.lower(): cte}
            declared.append(cte)
        return env, declared

    def _set_operation(self, node: exp.SetOperation, env: dict[str, _Cte], parent: Scope | None) -> Output | None:
        spine = [node]  # a chain of a thousand UNIONs is as many levels deep
        while isinstance(left := spine[-1].this, exp.SetOperation) and not any(left.args.get(k) for k in _OF_A_CHAIN):
            spine.append(left)
        output = self.query(spine[-1].this, env, parent)
        for link in reversed(spine):
            output = both_sides(link, output, self.query(link.expression, env, parent))
        for key in ("order", "limit", "offset"):
            if node.args.get(key) is not None:
                for part in parts_of(node.args[key]):
                    if isinstance(part, exp.Query):
                        self.query(part, env, parent)
        return output

    def _select(self, node: exp.Select, env: dict[str, _Cte], parent: Scope | None) -> Output | None:
        scope = Scope(parent)
        scope.aliases = {e.alias.lower() for e in node.expressions if isinstance(e, exp.Alias)}
        generated = bool(node.args.get("laterals"))
        equal: list[Equal] = []
        if node.args.get("from_") is not None:
            scope.sources.extend(self._item(node.args["from_"].this, env, scope))
        for join in node.args.get("joins") or []:
            self._join(join, scope, env, equal)
        for lateral in node.args.get("laterals") or []:
            self._read(lateral, scope, env)
            scope.sources.append(Source(lateral.alias, None, []))
        for key, value in node.args.items():
            if key not in _READ_APART:
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, exp.Expr):
                        self._read(part, scope, env)
        if not generated:
            where = node.args.get("where")
            if where is not None:
                self.conditions.filter(where.this, scope, scope.sources)
                equal += equal_columns(where.this, scope, None)
            self.conditions.filter_by_having(node, scope)
            self.conditions.spread(equal)
            self.equal += equal
        return None if generated else output_of(node, scope)

    # -- FROM -------------------------------------------------------------------------------------

    def _item(self, node: exp.Expr, env: dict[str, _Cte], scope: Scope) -> list[Source]:
        before = len(self.refs)
        renamed = [i.name for i in (node.args["alias"].args.get("columns") or [])] if node.args.get("alias") else []
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            source = self._table(node, env, renamed)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
            output = self.query(node.this, env, None)
            source = Source.of_output(node.alias, output, self.refs[before:], renamed)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias:
            return self._join_group(node.this, env, scope)
        else:
            self._read(node, scope, env)
            source = Source(node.alias, None, self.refs[before:])
        return [source]

    def _join_group(self, table: exp.Table, env: dict[str, _Cte], scope: Scope) -> list[Source]:
        """``(a JOIN b ON …)``: its tables are seen from outside; its own conditions are left to Spark."""
        joins = table.args.get("joins") or []
        sources = self._item(table, env, scope)
        for join in joins:
            sources += self._item(join.this, env, scope)
        inner = Scope(scope)
        inner.sources = sources
        for join in joins:
            for key in ("on", "using"):
                for part in [join.args[key]] if isinstance(join.args.get(key), exp.Expr) else []:
                    self._read(part, inner, env)
            if join.args.get("using") or join.method:
                inner.use_all()
        for source in sources:
            source.nullable = True
        return sources

    def _table(self, node: exp.Table, env: dict[str, _Cte], renamed: list[str]) -> Source:
        self.read.add(id(node))
        alias = node.alias or node.name
        if not node.db and node.name.lower() in env:
            return self._cte(env[node.name.lower()], alias, renamed)
        full = _full_name(node)
        found = self.tables.get(full.lower())
        if found is None:
            raise UnknownTable(full, [name for name, _ in self.tables.values()])
        if len(self.refs) >= _MAX_REFS and not self.share_ctes:
            raise TooManyRefs
        name, schema = found
        ref = Ref(name, schema, alias, {c.name: c.type for c in schema.columns})
        self.refs.append(ref)
        output: Output = [(c, (Origin(ref, c),)) for c in ref.types]
        source = Source.of_output(alias, output, [ref], renamed)
        source.base = ref
        return source

    def _cte(self, cte: _Cte, alias: str, renamed: list[str]) -> Source:
        cte.mentioned = True
        if cte.reading:
            return Source(alias, None, [])  # a recursive CTE's own rows
        if cte.read is None or not self.share_ctes:
            before = len(self.refs)
            cte.reading = cte.recursive
            output = self.query(cte.body, cte.env, None)
            cte.reading = False
            if (cte.recursive or self.share_ctes) and output is not None:
                output = without_origins(output)
            cte.read = output, self.refs[before:]
        output, refs = cte.read
        if output is not None and cte.columns:
            output = [(c, o) for c, (_, o) in zip(cte.columns, output, strict=False)]
        return Source.of_output(alias, output, refs, renamed)

    def _join(self, join: exp.Join, scope: Scope, env: dict[str, _Cte], equal: list[Equal]) -> None:
        rule = rule_of(join)
        left = list(scope.sources)
        right = self._item(join.this, env, scope)
        scope.sources.extend(right)
        if join.args.get("using") or join.method:
            names = [i.name.lower() for i in join.args.get("using") or []]
            for source in scope.sources:
                for name, origins in (source.columns or {}).items():
                    if join.method or name in names:
                        for o in origins:
                            o.ref.used.add(o.column)
        condition = join.args.get("on")
        if condition is not None:
            self._read(condition, scope, env)
            allowed = (left if rule.filters_left else []) + (right if rule.filters_right else [])
            self.conditions.filter(condition, scope, allowed)
            equal += equal_columns(condition, scope, (rule, right))
        for source in left:
            source.nullable = source.nullable or rule.nulls_left
        for source in right:
            source.nullable = source.nullable or rule.nulls_right
            source.visible = not rule.hides_right

    # -- columns ----------------------------------------------------------------------------------

    def _read(self, node: exp.Expr, scope: Scope, env: dict[str, _Cte]) -> None:
        """Marks the columns below ``node`` as used and reads its nested queries."""
        for part in parts_of(node):
            if isinstance(part, exp.Query):
                self.query(part, env, scope)
            elif isinstance(part, exp.Star):
                scope.use_all()
            elif isinstance(part, exp.Column) and isinstance(part.this, exp.Star):
                scope.use_all(part.table)
            elif isinstance(part, exp.Column) and not scope.use(part):
                self._complain(part, scope)

    def _complain(self, column: exp.Column, scope: Scope) -> None:
        """Only where it is certain: one plain table, and nothing around the name that could give it another meaning."""
        only = scope.sources[0] if len(scope.sources) == 1 and scope.parent is None else None
        if (
            only is None
            or only.base is None
            or len(column.parts) > 2
            or (column.table and column.table.lower() != only.alias.lower())
        ):
            return
        above = column.parent
        while above is not None and isinstance(above, _PLAIN_ABOVE):
            above = above.parent
        if above is None or isinstance(above, exp.Subquery):
            raise UnknownColumn(column.name, only.base.table, list(only.base.types))
