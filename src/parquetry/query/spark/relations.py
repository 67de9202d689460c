"""What Spark itself reads in a text before it runs: the last word on what was understood and what is allowed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from parquetry.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KNOWN = frozenset(
    re.findall(
        r"\w+",
        """
        Aggregate Distinct Except Expand Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit
        LocalRelation Offset OneRowRelation PipeOperator Pivot Project Repartition RepartitionByExpression
        ResolvedInlineTable Sample Sort SubqueryAlias Tail Union UnionLoop Unpivot UnresolvedHaving UnresolvedHint
        UnresolvedInlineTable UnresolvedOrdinal UnresolvedQualify UnresolvedRelation UnresolvedSubqueryColumnAliases
        UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith Window WithWindowDefinition
        """,
    )
)
"""The parts of a plan that only compute: no command, script, stream, file, time travel or name made at run time."""


def relations_in(session: SparkSession, sql: str, tables: Collection[str], trusted: bool) -> Counter[str]:
    """How often Spark's parser finds each relation in the text, by lowered name.

    Raises QueryError where the text holds more than a query over ``tables``, unless the caller is ``trusted``.
    """
    names: Counter[str] = Counter()
    ours = {t.lower() for t in tables}
    foreign: set[str] = set()
    for node, ctes in _parts(session._jsparkSession.sessionState().sqlParser().parsePlan(sql)):
        kind = _kind(node)
        if kind not in _KNOWN and not trusted:
            raise QueryError(f"a query cannot have {kind}; trusted callers may: connect(trusted=True)")
        if kind == "UnresolvedRelation":
            parts = [part.lower() for part in _items(node.multipartIdentifier())]
            names[".".join(parts)] += 1
            if len(parts) > 1 or not {*parts} <= ours | ctes:
                foreign.add(".".join(parts))
    if foreign and not trusted:
        raise QueryError(f"unknown table '{min(foreign)}'; tables: {', '.join(sorted(tables)) or 'none'}")
    return names


def _parts(plan: Any) -> Iterator[tuple[Any, frozenset[str]]]:
    """Every node of the plan, those of its subqueries and CTEs included, with the CTEs whose names it may use."""
    stack: list[tuple[Any, frozenset[str]]] = [(plan, frozenset())]
    while stack:
        node, ctes = stack.pop()
        yield node, ctes
        if _kind(node) == "UnresolvedWith":
            for cte in _items(node.cteRelations()):
                named = ctes | {str(cte._1()).lower()}
                stack.append((cte._2(), named if node.allowRecursion() else ctes))
                ctes = named
            stack += [(below, ctes) for below in _items(node.children())]
        else:
            stack += [(below, ctes) for part in (node.children(), node.innerChildren()) for below in _items(part)]


def _kind(node: Any) -> str:
    return str(node.nodeName()).lstrip("'")


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]
