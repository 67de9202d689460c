"""The columns that a query gives, and which of them come unchanged from a base table.

Only along those may a condition of the query around it be carried down.
"""

from __future__ import annotations

from sqlglot import exp

from parquetry.query.sql.scopes import Origin, Output, Scope


def without_origins(output: Output) -> Output:
    """The same names, with nothing known of where their values come from."""
    return [(name, ()) for name, _ in output]


def output_of(node: exp.Select, scope: Scope) -> Output | None:
    """Names and origins of the projections; None when the names are not known."""
    grouped = node.args.get("group") is not None or node.args.get("having") is not None
    keys = group_keys(node)
    blocked = bool(node.args.get("windows")) or any(e.find(exp.Window) for e in node.expressions)
    output: Output = []
    for e in node.expressions:
        inner = e.unalias()
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            starred = _star(node, inner, scope)
            if starred is None or grouped:
                return None
            output += starred
            continue
        passed = isinstance(inner, exp.Column) and (not grouped or inner.name.lower() in keys)
        output.append((e.alias_or_name, scope.resolve(inner) if passed else ()))
    return without_origins(output) if blocked else output


def _star(node: exp.Select, inner: exp.Expr, scope: Scope) -> Output | None:
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


def both_sides(node: exp.SetOperation, left: Output | None, right: Output | None) -> Output | None:
    """What a set operation gives: a column of UNION has the origins of both sides if they agree in type."""
    if left is None or right is None or len(left) != len(right) or node.args.get("by_name"):
        return None if left is None else without_origins(left)
    if not isinstance(node, exp.Union):
        return left  # EXCEPT and INTERSECT give rows of their left side
    output: Output = []
    for (name, a), (_, b) in zip(left, right, strict=True):
        same = len({o.type for o in (*a, *b)}) == 1 and bool(a) and bool(b)
        output.append((name, tuple(Origin(o.ref, o.column, o.nullable, False) for o in (*a, *b)) if same else ()))
    return output


def group_keys(node: exp.Select) -> set[str]:
    """Lowered names of the plain columns that every group has one value of; empty when not certain."""
    group = node.args.get("group")
    if group is None or any(v for k, v in group.args.items() if k != "expressions") or not group.expressions:
        return set()
    keys = set()
    for e in group.expressions:
        if isinstance(e, exp.Rollup | exp.Cube | exp.GroupingSets):
            return set()
        if isinstance(e, exp.Literal) and str(e.this).isdecimal() and 0 < int(e.this) <= len(node.expressions):
            e = node.expressions[int(e.this) - 1].unalias()
        if isinstance(e, exp.Column):
            keys.add(e.name.lower())
    return keys
