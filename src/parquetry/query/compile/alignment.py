"""How the rows of a query's tables may be dealt to workers, so that their answers together are the whole one.

One table, the *anchor*, is dealt out: each of its rows goes to one worker. Every row of the query's innermost FROM
has exactly one row of the anchor in it, so that what the workers join is what there is to join. Of another table a
worker needs the rows that can meet its rows of the anchor: where a column must equal one of the anchor's, those whose
values are there; else all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from parquetry.model.schema import TableSchema
from parquetry.query.compile.grouped import has_aggregate
from parquetry.workload.plain_select import NotPlain

_PLAIN = {"expressions", "from_", "joins", "where", "order", "kind", "with_"}
Place = tuple[int, str]
"""A table of the tree, as ``id()`` tells it, and a column of it."""


@dataclass(frozen=True)
class MustEqual:
    """A row of the table ``there`` counts only beside a row of the table ``here`` that has an equal value."""

    here: Place
    there: Place


@dataclass(frozen=True)
class Alignment:
    """The tables that may be the anchor, and which columns must be equal."""

    anchors: tuple[int, ...]
    equal: tuple[MustEqual, ...]

    def columns(self, anchor: int) -> list[str]:
        """The columns of a table that others are compared with."""
        return list(dict.fromkeys(e.here[1] for e in self.equal if e.here[0] == anchor))

    def aligned(self, anchor: int, column: str) -> dict[int, str]:
        """The tables of which a worker needs only the anchor's values, with the column that has them."""
        found = {anchor: column}
        while new := {e.there for e in self.equal if found.get(e.here[0]) == e.here[1] and e.there[0] not in found}:
            found |= dict(sorted(new, reverse=True))
        return found


def find_alignment(query: exp.Select, tables: Mapping[str, TableSchema]) -> Alignment:
    """Raises NotPlain, with the reason, where no table can be dealt out."""
    ctes = {c.alias.lower() for w in query.find_all(exp.With) for c in w.expressions}
    names = {n.lower(): s for n, s in tables.items()}
    return _Finder(names, ctes).found(_core(query))


def _core(query: exp.Select) -> exp.Select:
    """The SELECT whose rows are those of the query before it groups: inside plain subqueries of FROM."""
    while True:
        source = query.args.get("from_")
        inner = source.this if source is not None else None
        if query.args.get("joins") or not (isinstance(inner, exp.Subquery) and isinstance(inner.this, exp.Select)):
            return query
        below = inner.this
        if any(v and k not in _PLAIN for k, v in below.args.items()) or below.args.get("distinct"):
            return query
        listed = [*below.expressions, *(below.args["order"].expressions if below.args.get("order") else [])]
        if any(has_aggregate(e) or e.find(exp.Window) for e in listed):
            return query
        query = below


@dataclass(frozen=True)
class _Source:
    node: exp.Expr
    alias: str
    schema: TableSchema | None  # None: columns that are not known
    preserved: bool  # none of its rows is left out or made up because of another's
    seen: bool = True


class _Finder:
    def __init__(self, tables: Mapping[str, TableSchema], ctes: set[str]) -> None:
        self.tables, self.ctes = tables, ctes
        self.equal: list[MustEqual] = []

    def found(self, core: exp.Select) -> Alignment:
        sources = self._sources(core, note=True)
        where = core.args.get("where")
        if where is not None:
            for e in _conjuncts(where.this):
                self._inner(e, sources)
                self._in_query(e, sources)
            for inner in _subqueries(where.this):
                self._correlated(inner, sources)
        anchors = [id(s.node) for s in sources if s.preserved and s.schema is not None]
        if not anchors:
            raise NotPlain("no table of it can be dealt out row by row")
        return Alignment(tuple(anchors), tuple(dict.fromkeys(self.equal)))

    # -- FROM -------------------------------------------------------------------------------------

    def _sources(self, select: exp.Select, *, note: bool) -> list[_Source]:
        """What a SELECT reads; ``note`` keeps what the joins' own conditions say."""
        clause = select.args.get("from_")
        if clause is None:
            return []
        sources = [self._source(clause.this, "INNER")]
        for join in select.args.get("joins") or []:
            kind = _kind(join)
            right = self._source(join.this, kind)
            if note:
                self._note(join, kind, sources, right)
            sources.append(right)
        return sources

    def _source(self, node: exp.Expr, kind: str) -> _Source:
        alias = node.args.get("alias")
        renamed = alias is not None and alias.args.get("columns")
        schema = None
        plain = isinstance(node.this, exp.Identifier) and not node.args.get("joins") and not renamed
        if plain and isinstance(node, exp.Table) and not (not node.db and node.name.lower() in self.ctes):
            schema = self.tables.get(".".join(p.name for p in node.parts).lower())
        inner = kind in ("INNER", "CROSS")
        return _Source(node, (node.alias or node.name).lower(), schema, inner, kind not in ("SEMI", "ANTI"))

    def _note(self, join: exp.Join, kind: str, left: list[_Source], right: _Source) -> None:
        pairs = []
        for e in _conjuncts(join.args.get("on")):
            if isinstance(e, exp.EQ):
                a, b = (_resolve(side, [*left, right]) for side in (e.this, e.expression))
                pairs.append((a, b))
        for name in join.args.get("using") or []:
            column = exp.column(name.name)
            pairs.append((_resolve(column, left), _resolve(column, [right])))
        for a, b in pairs:
            if a is None or b is None:
                continue
            if kind in ("INNER", "CROSS"):
                self._both(a, b, [*left, right])
            elif (a[0] == id(right.node)) != (b[0] == id(right.node)):
                here, there = (b, a) if a[0] == id(right.node) else (a, b)
                self.equal.append(MustEqual(here, there))

    # -- WHERE ------------------------------------------------------------------------------------

    def _inner(self, e: exp.Expr, sources: list[_Source]) -> None:
        if isinstance(e, exp.EQ):
            a, b = (_resolve(side, sources) for side in (e.this, e.expression))
            if a is not None and b is not None:
                self._both(a, b, sources)

    def _both(self, a: Place, b: Place, sources: list[_Source]) -> None:
        preserved = {id(s.node) for s in sources if s.preserved}
        if a[0] != b[0] and {a[0], b[0]} <= preserved:
            self.equal += [MustEqual(a, b), MustEqual(b, a)]

    def _correlated(self, inner: exp.Select, around: list[_Source]) -> None:
        """A subquery whose WHERE wants a column equal to one of the query around it: rows without do not count."""
        if any(inner.args.get(k) for k in ("group", "having", "limit", "offset", "distinct", "with_")):
            return
        own = self._sources(inner, note=False)
        for e in _conjuncts(inner.args["where"].this if inner.args.get("where") else None):
            if isinstance(e, exp.EQ):
                sides = [(_resolve(side, own), _resolve_outer(side, own, around)) for side in (e.this, e.expression)]
                for (there, _), (_, here) in (sides, sides[::-1]):
                    if there is not None and here is not None and self._preserved(there, own):
                        self.equal.append(MustEqual(here, there))

    def _in_query(self, e: exp.Expr, sources: list[_Source]) -> None:
        """``column IN (SELECT column …)``: only where false and unknown are the same, so not below a NOT."""
        if not isinstance(e, exp.In) or e.args.get("query") is None:
            return
        here, inner = _resolve(e.this, sources), e.args["query"].this
        if here is None or not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
            return
        if any(v and k not in {*_PLAIN, "group", "having"} for k, v in inner.args.items()) or inner.find(exp.Window):
            return
        own = self._sources(inner, note=False)
        there, group = _resolve(inner.expressions[0].unalias(), own), inner.args.get("group")
        grouped = [] if group is None else [_resolve(g, own) for g in group.expressions]
        if there is None or not self._preserved(there, own):
            return
        if group is not None and (there not in grouped or any(v for k, v in group.args.items() if k != "expressions")):
            return
        if group is None and (inner.args.get("having") or any(has_aggregate(x) for x in inner.expressions)):
            return
        self.equal.append(MustEqual(here, there))

    def _preserved(self, place: Place, sources: list[_Source]) -> bool:
        return any(id(s.node) == place[0] and s.preserved for s in sources)


def _kind(join: exp.Join) -> str:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind in ("SEMI", "ANTI"):
        return kind
    if side in ("RIGHT", "FULL"):
        raise NotPlain(f"a {side} JOIN")
    return side or ("CROSS" if kind == "CROSS" else "INNER")


def _conjuncts(e: exp.Expr | None) -> Iterator[exp.Expr]:
    stack = [] if e is None else [e]
    while stack:
        part = stack.pop().unnest()
        if isinstance(part, exp.And):
            stack += [part.expression, part.this]
        else:
            yield part


def _subqueries(e: exp.Expr) -> Iterator[exp.Select]:
    """The queries inside an expression whose value for a row is asked, those inside them left out."""
    stack = [e]
    while stack:
        part = stack.pop()
        if isinstance(part, exp.In) and part.args.get("query") is not None:
            stack.append(part.this)
        elif isinstance(part, exp.Select):
            yield part
        elif not isinstance(part, exp.Query) or isinstance(part, exp.Subquery):
            stack.extend(part.iter_expressions())


def _resolve(e: exp.Expr, sources: list[_Source]) -> Place | None:
    """The base column that a name means; None where that is not certain."""
    e = e.unnest()
    if not isinstance(e, exp.Column) or len(e.parts) > 2 or isinstance(e.this, exp.Star):
        return None
    owners = [s for s in sources if not e.table or s.alias == e.table.lower()]
    found = [
        (id(s.node), c) for s in owners if s.schema is not None for c in s.schema.names if c.lower() == e.name.lower()
    ]
    if len(found) != 1 or (e.table and len(owners) != 1):
        return None
    return found[0]


def _resolve_outer(e: exp.Expr, own: list[_Source], around: list[_Source]) -> Place | None:
    """A column of the query around; None for anything that may be the subquery's own."""
    e = e.unnest()
    if not isinstance(e, exp.Column) or _resolve(e, own) is not None:
        return None
    if any(e.table.lower() == s.alias for s in own) if e.table else any(s.schema is None for s in own):
        return None
    own_names = {c.lower() for s in own if s.schema is not None for c in s.schema.names}
    if not e.table and e.name.lower() in own_names:
        return None
    return _resolve(e, [s for s in around if s.seen])
