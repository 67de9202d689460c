"""What the conditions of a query say about its base tables.

They are carried to the tables along columns that are passed on unchanged, and across joins along equal columns. Each
step is one that Spark's own optimiser may take, so reading only rows that satisfy a reference's predicate gives the
same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from parquetry.model.predicate import Anything, OneOf, Predicate, Range
from parquetry.query.sql.join_filters import JoinRule
from parquetry.query.sql.opaque import opaque, says_more
from parquetry.query.sql.outputs import group_keys
from parquetry.query.sql.scopes import Origin, Ref, Scope, Source, parts_of
from parquetry.workload.predicates import predicate
from parquetry.workload.simplify import conjuncts, rejects_nulls

NOT_USED = "not used: "  # how the note of such a filter begins
_SHOWN = 200  # characters of a filter that its note repeats


@dataclass(frozen=True)
class Equal:
    """What is known of ``source`` holds for ``target`` as well: an equality that every surviving row satisfies."""

    source: Origin
    target: Origin


@dataclass(frozen=True)
class Conditions:
    """Notes on the references what a query's conditions say of them; ``distrust`` is a reason to use none."""

    distrust: str

    def filter(self, condition: exp.Expr, scope: Scope, allowed: list[Source]) -> None:
        """``condition`` holds for every row that the ``allowed`` sources contribute."""
        refs = {id(r) for s in allowed for r in s.refs}
        for part in _parts(condition):
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
        if self.distrust:
            ref.notes.append(f"{NOT_USED}{text} ({self.distrust})")
            return
        made = predicate(part, ref.types, resolve)
        if not nullable and says_more(part, ref.types, resolve):
            evaluated = opaque(part, ref.types, resolve)
            ref.opaque += [evaluated] if evaluated is not None else []
        if isinstance(made, Anything):
            ref.notes.append(f"{NOT_USED}{text} ({made.why or 'always true'})")
        elif nullable and not rejects_nulls(made):
            ref.notes.append(f"{NOT_USED}{text} (an outer join may add nulls below it)")
        else:
            ref.notes.append(f"used: {text}")
            ref.found.append(made)

    def filter_by_having(self, node: exp.Select, scope: Scope) -> None:
        """HAVING on grouping columns filters whole groups, so it filters the rows as well."""
        having, keys = node.args.get("having"), group_keys(node)
        if having is None or not keys:
            return
        for part in _parts(having.this):
            names = {e.name.lower() for e in parts_of(part) if isinstance(e, exp.Column)}
            nested = any(not isinstance(e, exp.Column) for e in parts_of(part)) or part.find(exp.AggFunc, exp.Anonymous)
            if names and names <= keys and not names & scope.aliases and not nested:
                self.filter(part, scope, scope.sources)

    def spread(self, equal: list[Equal]) -> None:
        """Carries ranges and value sets along equal columns until nothing is new."""
        changed = True
        while changed and not self.distrust:
            changed = False
            for edge in equal:
                target = edge.target.ref
                for leaf in _leaves(edge.source):
                    moved = _moved(leaf, edge.target.column)
                    if any(moved in conjuncts(p) for p in target.found):
                        continue
                    target.found.append(moved)
                    other = f"{edge.source.ref.alias}.{edge.source.column}"
                    target.notes.append(f"used: {edge.target.column} equals {other}, which is filtered")
                    changed = True


def equal_columns(condition: exp.Expr, scope: Scope, join: tuple[JoinRule, list[Source]] | None) -> list[Equal]:
    """The equal columns of ``condition``, each way that its ``join``, if it belongs to one, lets pass."""
    found: list[Equal] = []
    for part in _parts(condition):
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
            found += [Equal(a[0], b[0]), Equal(b[0], a[0])]
            continue
        rule, right = join
        new = {id(r) for s in right for r in s.refs}
        if (id(a[0].ref) in new) == (id(b[0].ref) in new):
            continue
        left, added = (b[0], a[0]) if id(a[0].ref) in new else (a[0], b[0])
        found += [Equal(left, added)] if rule.equal_to_right else []
        found += [Equal(added, left)] if rule.equal_to_left else []
    return found


def _parts(condition: exp.Expr) -> list[exp.Expr]:
    """The conditions that all have to hold."""
    condition = condition.unnest()
    if not isinstance(condition, exp.And):
        return [condition]
    return [c for part in condition.flatten() for c in _parts(part)]


def _leaves(origin: Origin) -> list[Range | OneOf]:
    found = [leaf for p in origin.ref.found for leaf in conjuncts(p)]
    return [x for x in found if isinstance(x, Range | OneOf) and x.column == origin.column]


def _moved(leaf: Range | OneOf, column: str) -> Predicate:
    if isinstance(leaf, OneOf):
        return OneOf(column, leaf.values)
    return Range(column, leaf.lo, leaf.hi, leaf.lo_open, leaf.hi_open)
