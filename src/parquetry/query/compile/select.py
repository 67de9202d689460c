"""One SELECT of any shape as DuckDB text: joins, groups, windows, order."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from parquetry.query.compile.clauses import (
    direction,
    is_distinct,
    items_of,
    limits,
    named_after,
    not_constant,
    sort_key,
    sorts_selected,
    without_aliases,
)
from parquetry.query.compile.expressions import Context, Rows, ScopedExpressions
from parquetry.query.compile.grouped import GroupExpressions, RowExpressions, has_aggregate
from parquetry.query.compile.scope import Field, Relation, Scope
from parquetry.query.compile.typed import Refused, Typed, signless_zero
from parquetry.workload.plain_select import Item, SelectList

_SETS = re.compile(r"^GROUP BY (.*, )?(ROLLUP|CUBE|GROUPING SETS) \(", re.S)
_READ_ARGS = {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct"}
_READ_ARGS |= {"with_", "kind"}


class SelectCompiler:
    """Compiles ``node``; ``relation`` is what its FROM reads, ``parent`` the SELECT around a correlated subquery."""

    def __init__(self, node: exp.Select, relation: Relation, parent: Scope | None, context: Context) -> None:
        unread = sorted(k for k, v in node.args.items() if v and k not in _READ_ARGS)
        if unread:
            raise Refused(f"it has {unread[0].strip('_').upper()}")
        self.node, self.relation, self.context = node, relation, context
        self.distinct = is_distinct(node)
        aliases = frozenset(e.alias.lower() for e in node.expressions if isinstance(e, exp.Alias))
        self.scope = Scope(relation, parent, aliases)
        self.items = items_of(node, self._star)
        args = node.args
        self.aggregated = (
            args.get("group") is not None
            or args.get("having") is not None
            or any(has_aggregate(e) for _, e in self.items if isinstance(e, exp.Expr))
            or (args.get("order") is not None and has_aggregate(args["order"]))
        )

    def rows(self) -> Rows:
        args = self.node.args
        plain = ScopedExpressions(self.scope, self.context)
        where = self._where(plain)
        group_text, groups, kinds = self._groups(plain)
        expressions: ScopedExpressions
        if self.aggregated:
            expressions = GroupExpressions(self.scope, self.context, groups, kinds)
        else:
            expressions = RowExpressions(self.scope, self.context)
        outputs = [self._output(e, expressions) for _, e in self.items]
        texts = [signless_zero(t) if self.distinct else t.sql for t in outputs]
        listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(texts))
        parts = [f"SELECT {'DISTINCT ' if self.distinct else ''}{listed}"]
        if self.relation.sql:
            parts.append(f"FROM {self.relation.sql}")
        parts += [where] if where else []
        parts += [group_text] if group_text else []
        # Of no rows, Spark makes no grand total where there are grouping sets.
        conditions = ["count(*) > 0"] if _SETS.search(group_text) else []
        if having := args.get("having"):
            conditions.append(expressions.boolean(self._without_aliases(having.this, prefer_output=False)).sql)
        parts += [f"HAVING {' AND '.join(conditions)}"] if conditions else []
        if order := args.get("order"):
            parts.append(
                "ORDER BY " + ", ".join(self._sorted(o, outputs, texts, expressions) for o in order.expressions)
            )
        parts += limits(self.node)
        fields = [Field(self._name(i, t), t.type, f"c{i}") for i, t in enumerate(outputs)]
        grouped = args.get("group") is not None or args.get("having") is not None
        one_row = self.aggregated and not grouped and not any(args.get(k) for k in ("limit", "offset"))
        plain_rows = not self.aggregated and not self.distinct and not any(args.get(k) for k in ("limit", "offset"))
        if self.scope.correlated and not (one_row or plain_rows):
            raise Refused("a correlated subquery with groups or a limit")
        return Rows(" ".join(parts), tuple(fields), self.scope.correlated, one_row)

    def _star(self, qualifier: str) -> list[Item[Field]]:
        return [(f.name, f) for f in self.scope.star(qualifier)]

    def _output(self, e: exp.Expr | Field, expressions: ScopedExpressions) -> Typed:
        if isinstance(e, Field):
            if self.aggregated:
                raise Refused("it has a star above groups")
            self.context.use(e)
            return Typed(e.type, e.sql, e.name, frozenset([e.sql]))
        return expressions.compile(e)

    def _name(self, i: int, t: Typed) -> str | None:
        alias, e = self.items[i]
        if alias is not None or isinstance(e, Field):
            return alias
        column = named_after(e)
        if column is not None:
            return column.name
        return t.name if self.context.named else None

    def _where(self, plain: ScopedExpressions) -> str:
        where = self.node.args.get("where")
        if where is None:
            return ""
        if has_aggregate(where.this):
            raise Refused("an aggregate in WHERE")
        self.scope.outer_allowed = True
        try:
            condition = plain.boolean(where.this)
        finally:
            self.scope.outer_allowed = False
        return f"WHERE {condition.sql}" if condition.type == "boolean" else "WHERE false"

    # -- groups -----------------------------------------------------------------------------------

    def _groups(self, plain: ScopedExpressions) -> tuple[str, dict[str, Typed], set[type[exp.Expr]]]:
        group = self.node.args.get("group")
        groups: dict[str, Typed] = {}
        kinds: set[type[exp.Expr]] = set()
        if group is None:
            return "", groups, kinds
        if any(v for k, v in group.args.items() if k not in ("expressions", "rollup", "cube")) or not group.expressions:
            raise Refused("it groups by ALL, or in a way that is left to Spark")

        def one(e: exp.Expr) -> str:
            e = self._grouping_expression(e)
            t = plain.compile(e)
            groups[t.sql] = t
            kinds.add(type(e.unnest()))
            return signless_zero(t)

        texts = [_grouping_text(e, one) for e in group.expressions]
        for word in ("rollup", "cube"):
            if group.args.get(word):
                if any(x.expressions for x in group.args[word]):
                    raise Refused(f"it has {word.upper()} beside other groups")
                texts = [f"{word.upper()} ({', '.join(texts)})"]
        return "GROUP BY " + ", ".join(texts), groups, kinds

    def _grouping_expression(self, e: exp.Expr) -> exp.Expr:
        if not (isinstance(e, exp.Column) and self.scope.owns(e)):
            e = self._meant_by(e) or e
        if has_aggregate(e) or not e.find(exp.Column) or e.find(exp.Query, exp.Window):
            raise Refused("it groups by an aggregate, a constant or a subquery")
        return e

    def _meant_by(self, e: exp.Expr) -> exp.Expr | None:
        """The item of the SELECT list that a position or a name means."""
        found = SelectList(self.items).meant_by(e)
        if isinstance(found, Field) and isinstance(e, exp.Literal):
            raise Refused("a position of a column that * stands for")
        return found if isinstance(found, exp.Expr) else None

    def _without_aliases(self, e: exp.Expr, *, prefer_output: bool) -> exp.Expr:
        return without_aliases(e, self._meant_by, self.scope.owns, prefer_output=prefer_output)

    def _sorted_by(self, o: exp.Ordered) -> int | exp.Expr:
        """The place in the SELECT list that ORDER BY means, or an expression over outputs and columns."""
        at = SelectList(self.items).place(o.this)
        return not_constant(self._without_aliases(o.this, prefer_output=True)) if at is None else at

    def _sorted(self, o: exp.Expr, outputs: list[Typed], texts: list[str], expressions: ScopedExpressions) -> str:
        o = sort_key(o)
        by = self._sorted_by(o)
        if isinstance(by, exp.Expr):
            t = expressions.compile(by)
            text = signless_zero(t) if self.distinct else t.sql
            sorts_selected(text in texts, self.distinct)
            if text not in texts:
                return f"{signless_zero(t)} {direction(o)}"
            by = texts.index(text)
        floats = outputs[by].type in ("float", "double") and not self.distinct
        return f"{signless_zero(outputs[by]) if floats else f'c{by}'} {direction(o)}"


def _grouping_text(e: exp.Expr, one: Callable[[exp.Expr], str]) -> str:
    match e:
        case exp.Rollup() | exp.Cube():
            word = "ROLLUP" if isinstance(e, exp.Rollup) else "CUBE"
            return f"{word} ({', '.join(_set_text(x, one) for x in e.expressions)})"
        case exp.GroupingSets():
            return f"GROUPING SETS ({', '.join(_set_text(x, one) for x in e.expressions)})"
    return one(e)


def _set_text(e: exp.Expr, one: Callable[[exp.Expr], str]) -> str:
    match e:
        case exp.Tuple():
            return f"({', '.join(one(x) for x in e.expressions)})"
        case exp.Paren():
            return f"({one(e.this)})"
        case exp.Rollup() | exp.Cube() | exp.GroupingSets():
            raise Refused("grouping sets inside grouping sets")
    return one(e)
