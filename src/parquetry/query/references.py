"""Every base-table reference of a query, with the columns it uses and the filters that hold for it.

Conditions are carried to the base tables through CTEs, subqueries and set operations along columns that are passed on
unchanged, and across joins along equal columns. Each step is one that Spark's own optimiser may take, so reading only
rows that satisfy a reference's predicate gives the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from parquetry.errors import UnknownColumn, UnknownTable
from parquetry.model.predicate import Anything, OneOf, Predicate, Range
from parquetry.model.schema import TableSchema
from parquetry.query.joins import JoinRule, rule_of
from parquetry.query.opaque import opaque, says_more
from parquetry.query.scopes import Origin, Output, Ref, Scope, Source, parts_of
from parquetry.workload.predicates import predicate
from parquetry.workload.simplify import conjuncts, rejects_nulls

_MAX_REFS = 200
"""CTEs are read once per mention, so that each mention has its own filters; beyond this many, only once."""
_SHOWN = 200  # characters of a filter that its note repeats
_READ_APART = {"from_", "joins", "with_", "laterals", "hint", "kind", "operation_modifiers"}
_LIMITS = ("limit", "offset", "qualify", "sample", "match", "pivots")
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
class _Edge:
    """What is known of ``source`` holds for ``target`` as well: an equality that every surviving row satisfies."""

    source: Origin
    target: Origin


def find_references(query: exp.Query, tables: Mapping[str, TableSchema], opaque: str = "") -> list[Ref]:
    """All references in reading order. ``opaque`` is a reason not to trust the text's constants, if there is one."""
    by_name = {name.lower(): (name, schema) for name, schema in tables.items()}
    try:
        finder = _Finder(by_name, opaque, share_ctes=False)
        finder.query(query, {}, None)
    except TooManyRefs:
        finder = _Finder(by_name, opaque, share_ctes=True)
        finder.query(query, {}, None)
    return finder.refs


class _Finder:
    def __init__(self, tables: dict[str, tuple[str, TableSchema]], opaque: str, share_ctes: bool) -> None:
        self.tables, self.opaque, self.share_ctes = tables, opaque, share_ctes
        self.refs: list[Ref] = []

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
            return [(name, ()) for name, _ in output]
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
        left = self.query(node.this, env, parent)
        right = self.query(node.expression, env, parent)
        for key in ("order", "limit", "offset"):
            if node.args.get(key) is not None:
                for part in parts_of(node.args[key]):
                    if isinstance(part, exp.Query):
                        self.query(part, env, parent)
        if left is None or right is None or len(left) != len(right) or node.args.get("by_name"):
            return None if left is None else [(name, ()) for name, _ in left]
        if not isinstance(node, exp.Union):
            return left  # EXCEPT and INTERSECT give rows of their left side
        output: Output = []
        for (name, a), (_, b) in zip(left, right, strict=True):
            same = len({o.type for o in (*a, *b)}) == 1 and bool(a) and bool(b)
            output.append((name, tuple(Origin(o.ref, o.column, o.nullable, False) for o in (*a, *b)) if same else ()))
        return output

    def _select(self, node: exp.Select, env: dict[str, _Cte], parent: Scope | None) -> Output | None:
        scope = Scope(parent)
        scope.aliases = {e.alias.lower() for e in node.expressions if isinstance(e, exp.Alias)}
        generated = bool(node.args.get("laterals"))
        edges: list[_Edge] = []
        if node.args.get("from_") is not None:
            scope.sources.extend(self._item(node.args["from_"].this, env, scope))
        for join in node.args.get("joins") or []:
            self._join(join, scope, env, edges)
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
                self._filter(where.this, scope, scope.sources)
                edges += self._edges(where.this, scope, None)
            self._having(node, scope)
            self._spread(edges)
        return None if generated else self._output(node, scope)

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
        if node.args.get("sample") or node.args.get("pivots") or node.args.get("joins"):
            source = Source(source.alias, None, self.refs[before:])
            for ref in source.refs:
                ref.frozen = "the table is sampled, pivoted or joined before it is filtered"
                ref.used.update(ref.types)
            for join in node.args.get("joins") or []:
                self._read(join, scope, env)
        return [source]

    def _join_group(self, table: exp.Table, env: dict[str, _Cte], scope: Scope) -> list[Source]:
        """``(a JOIN b ON …)``: its tables are seen from outside; its own conditions are left to Spark."""
        joins = table.args.get("joins") or []
        table = table.copy()
        table.set("joins", None)
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
        alias = node.alias or node.name
        if not node.db and node.name.lower() in env:
            return self._cte(env[node.name.lower()], alias, renamed)
        full = ".".join(p.name for p in node.parts)
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
                output = [(name, ()) for name, _ in output]
            cte.read = output, self.refs[before:]
        output, refs = cte.read
        if output is not None and cte.columns:
            output = [(c, o) for c, (_, o) in zip(cte.columns, output, strict=False)]
        return Source.of_output(alias, output, refs, renamed)

    def _join(self, join: exp.Join, scope: Scope, env: dict[str, _Cte], edges: list[_Edge]) -> None:
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
            self._filter(condition, scope, allowed)
            edges += self._edges(condition, scope, (rule, right))
        for source in left:
            source.nullable = source.nullable or rule.nulls_left
        for source in right:
            source.nullable = source.nullable or rule.nulls_right
            source.visible = not rule.hides_right

    # -- columns and conditions -------------------------------------------------------------------

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

    def _filter(self, condition: exp.Expr, scope: Scope, allowed: list[Source]) -> None:
        refs = {id(r) for s in allowed for r in s.refs}
        for part in _conjuncts(condition):
            origins: dict[int, tuple[Ref, bool]] = {}
            for e in parts_of(part):
                for o in scope.resolve(e) if isinstance(e, exp.Column) else ():
                    if id(o.ref) in refs:
                        origins[id(o.ref)] = o.ref, origins.get(id(o.ref), (o.ref, False))[1] or o.nullable
            for ref, nullable in origins.values():
                self._add(ref, part, scope, nullable)

    def _add(self, ref: Ref, part: exp.Expr, scope: Scope, nullable: bool) -> None:
        def resolve(column: exp.Column) -> str | None:
            own = [o.column for o in scope.resolve(column) if o.ref is ref]
            return own[0] if len(own) == 1 else None

        text = part.sql("spark")
        text = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        if self.opaque or ref.frozen:
            ref.notes.append(f"not used: {text} ({self.opaque or ref.frozen})")
            return
        made = predicate(part, ref.types, resolve)
        if not nullable and says_more(part, ref.types, resolve):
            evaluated = opaque(part, ref.types, resolve)
            ref.opaque += [evaluated] if evaluated is not None else []
        if isinstance(made, Anything):
            ref.notes.append(f"not used: {text} ({made.why or 'always true'})")
        elif nullable and not rejects_nulls(made):
            ref.notes.append(f"not used: {text} (an outer join may add nulls below it)")
        else:
            ref.notes.append(f"used: {text}")
            ref.found.append(made)

    def _having(self, node: exp.Select, scope: Scope) -> None:
        """HAVING on grouping columns filters whole groups, so it filters the rows as well."""
        having, keys = node.args.get("having"), _group_keys(node)
        if having is None or not keys:
            return
        for part in _conjuncts(having.this):
            names = {e.name.lower() for e in parts_of(part) if isinstance(e, exp.Column)}
            nested = any(not isinstance(e, exp.Column) for e in parts_of(part)) or part.find(exp.AggFunc, exp.Anonymous)
            if names and names <= keys and not names & scope.aliases and not nested:
                self._filter(part, scope, scope.sources)

    def _edges(self, condition: exp.Expr, scope: Scope, join: tuple[JoinRule, list[Source]] | None) -> list[_Edge]:
        edges = []
        for part in _conjuncts(condition):
            if not (isinstance(part, exp.EQ) and isinstance(part.this, exp.Column)):
                continue
            if not isinstance(part.expression, exp.Column):
                continue
            a, b = scope.resolve(part.this), scope.resolve(part.expression)
            if len(a) != 1 or len(b) != 1 or a[0].ref is b[0].ref or a[0].type != b[0].type:
                continue
            if not (a[0].total and b[0].total):
                continue
            if join is None:
                edges += [_Edge(a[0], b[0]), _Edge(b[0], a[0])]
                continue
            rule, right = join
            new = {id(r) for s in right for r in s.refs}
            if (id(a[0].ref) in new) == (id(b[0].ref) in new):
                continue
            left, added = (b[0], a[0]) if id(a[0].ref) in new else (a[0], b[0])
            edges += [_Edge(left, added)] if rule.equal_to_right else []
            edges += [_Edge(added, left)] if rule.equal_to_left else []
        return edges

    def _spread(self, edges: list[_Edge]) -> None:
        """Carries ranges and value sets along equal columns until nothing is new."""
        changed = True
        while changed and not self.opaque:
            changed = False
            for edge in edges:
                target = edge.target.ref
                for leaf in _leaves(edge.source):
                    moved = _moved(leaf, edge.target.column)
                    if target.frozen or any(moved in conjuncts(p) for p in target.found):
                        continue
                    target.found.append(moved)
                    other = f"{edge.source.ref.alias}.{edge.source.column}"
                    target.notes.append(f"used: {edge.target.column} equals {other}, which is filtered")
                    changed = True

    # -- outputs ----------------------------------------------------------------------------------

    def _output(self, node: exp.Select, scope: Scope) -> Output | None:
        """Names and origins of the projections: what a condition above this SELECT may be pushed to."""
        grouped = node.args.get("group") is not None or node.args.get("having") is not None
        keys = _group_keys(node)
        blocked = bool(node.args.get("windows")) or any(e.find(exp.Window) for e in node.expressions)
        output: Output = []
        for e in node.expressions:
            inner = e.unalias()
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                starred = self._star(node, inner, scope)
                if starred is None or grouped:
                    return None
                output += starred
                continue
            passed = isinstance(inner, exp.Column) and (not grouped or inner.name.lower() in keys)
            output.append((e.alias_or_name, scope.resolve(inner) if passed else ()))
        return [(name, ()) for name, _ in output] if blocked else output

    def _star(self, node: exp.Select, inner: exp.Expr, scope: Scope) -> Output | None:
        star = inner if isinstance(inner, exp.Star) else inner.this
        if any(star.args.values()) or any(j.args.get("using") or j.method for j in node.args.get("joins") or []):
            return None
        qualifier = inner.table.lower() if isinstance(inner, exp.Column) else ""
        output: Output = []
        for s in scope.sources:
            if s.visible and (not qualifier or s.alias.lower() == qualifier):
                if s.columns is None:
                    return None
                output += [(name, s.origins(name)) for name in s.columns]
        return output


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    condition = condition.unnest()
    if not isinstance(condition, exp.And):
        return [condition]
    return [c for part in condition.flatten() for c in _conjuncts(part)]


def _group_keys(node: exp.Select) -> set[str]:
    """Lowered names of the plain columns that every group has one value of; empty when not certain."""
    group = node.args.get("group")
    if group is None or any(v for k, v in group.args.items() if k != "expressions") or not group.expressions:
        return set()
    keys = set()
    for e in group.expressions:
        if isinstance(e, exp.Rollup | exp.Cube | exp.GroupingSets):
            return set()
        if isinstance(e, exp.Literal) and not e.is_string and 0 < int(e.this) <= len(node.expressions):
            e = node.expressions[int(e.this) - 1].unalias()
        if isinstance(e, exp.Column):
            keys.add(e.name.lower())
    return keys


def _leaves(origin: Origin) -> list[Range | OneOf]:
    found = [leaf for p in origin.ref.found for leaf in conjuncts(p)]
    return [x for x in found if isinstance(x, Range | OneOf) and x.column == origin.column]


def _moved(leaf: Range | OneOf, column: str) -> Predicate:
    if isinstance(leaf, OneOf):
        return OneOf(column, leaf.values)
    return Range(column, leaf.lo, leaf.hi, leaf.lo_open, leaf.hi_open)
