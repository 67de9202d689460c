"""FROM with joins as one relation in DuckDB's words: every kind of join, ON, USING and NATURAL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from parquetry.query.compile.decimals import brought_to, wider_type
from parquetry.query.compile.expressions import Context, ScopedExpressions
from parquetry.query.compile.scope import Field, Relation, Scope
from parquetry.query.compile.typed import Refused, Typed, signless_zero

_WORDS = {"INNER": "JOIN", "CROSS": "CROSS JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "FULL": "FULL JOIN"}
_WORDS |= {"SEMI": "SEMI JOIN", "ANTI": "ANTI JOIN"}
_READ_ARGS = {"this", "on", "using", "side", "kind", "method"}

Source = Callable[[exp.Expr], Relation]


def joined(first: exp.Expr, joins: list[exp.Join], source: Source, context: Context) -> Relation:
    """The relation of ``first`` and what is joined with it, from left to right."""
    relation = source(first)
    crossed = 0  # columns that stand before a comma or CROSS JOIN, which the parser does not tell apart
    for join in joins:
        kind = _kind(join)
        right = source(join.this)
        if kind in ("RIGHT", "FULL") and crossed:
            raise Refused("an outer join behind a comma")
        on, using = _condition(join, relation, right, context, hidden=crossed)
        text = f"{relation.sql} {_WORDS[kind]} {right.sql}{f' ON {on}' if on else ''}"
        if kind in ("SEMI", "ANTI"):
            relation = replace(relation, sql=text)
        elif using:
            relation = _merged(relation, right, using, kind, text)
        else:
            relation = relation.beside(right, text)
        if kind == "CROSS":
            crossed = len(relation.visible) - len(right.visible)
    return relation


def _kind(join: exp.Join) -> str:
    unread = [k for k, v in join.args.items() if v and k not in _READ_ARGS]
    side, kind, method = ((join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    if unread or method not in ("", "NATURAL"):
        raise Refused(f"the join {join.sql('spark')[:60]} is left to Spark")
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        found = kind
    elif side in ("LEFT", "RIGHT", "FULL") and kind in ("", "OUTER"):
        found = side
    elif not side and kind in ("", "INNER", "CROSS"):
        found = kind or "INNER"
    else:
        raise Refused(f"a {side} {kind} JOIN")
    has = bool(join.args.get("on") or join.args.get("using") or method)
    if found == "CROSS" and has:
        raise Refused("a CROSS JOIN with a condition")
    if not has and found != "CROSS":
        raise Refused(f"a {found} JOIN without a condition")
    return found


def _condition(
    join: exp.Join, left: Relation, right: Relation, context: Context, hidden: int
) -> tuple[str, list[tuple[Field, Field, str]]]:
    """The text of ON, and the columns of USING on both sides with their common type."""
    on = join.args.get("on")
    if on is not None:
        scope = Scope(left.beside(right, ""))
        expressions = ScopedExpressions(scope, context)
        if hidden:
            # Behind a comma Spark's ON sees only what stands after it, behind CROSS JOIN everything.
            before = {f.sql for f in left.visible[:hidden]}
            named = {scope.find(c).sql for c in on.find_all(exp.Column)}
            if named & before:
                raise Refused("a join condition that names what stands before a comma")
        condition = expressions.boolean(on)
        return (condition.sql if condition.type == "boolean" else "false"), []
    names = [i.name for i in join.args.get("using") or []]
    if join.args.get("method"):
        theirs = {f.name.lower() for f in right.visible if f.name}
        names = [f.name for f in left.visible if f.name and f.name.lower() in theirs]
    if not names:
        if join.args.get("method"):
            raise Refused("a NATURAL JOIN without common columns")
        return "", []
    pairs = [(_one(left, n), _one(right, n)) for n in names]
    texts, using = [], []
    for a, b in pairs:
        common = wider_type(a.type, b.type)
        if common is None or common == "void":
            raise Refused(f"a join of {a.type} with {b.type}")
        for f in (a, b):
            context.use(f)
        sides = [signless_zero(Typed(common, brought_to(Typed(f.type, f.sql, None), common), None)) for f in (a, b)]
        texts.append(f"{sides[0]} = {sides[1]}")
        using.append((a, b, common))
    return " AND ".join(texts), using


def _one(relation: Relation, name: str) -> Field:
    found = [f for f in relation.visible if f.name is not None and f.name.lower() == name.lower()]
    if len(found) != 1:
        raise Refused(f"USING ({name}) is not one column of each side")
    return found[0]


def _merged(left: Relation, right: Relation, using: list[tuple[Field, Field, str]], kind: str, text: str) -> Relation:
    """Columns of USING come first and once: the left side's, the right side's, or whichever is there."""
    merged = []
    for a, b, common in using:
        if kind == "FULL":
            sides = [brought_to(Typed(f.type, f.sql, None), common) for f in (a, b)]
            merged.append(Field(a.name, common, f"coalesce({', '.join(sides)})"))
        else:
            merged.append(b if kind == "RIGHT" else a)
    once = {f.sql for a, b, _ in using for f in (a, b)}
    rest = [f for f in (*left.visible, *right.visible) if f.sql not in once]
    return Relation(text, (*merged, *rest), (*left.named, *right.named))
