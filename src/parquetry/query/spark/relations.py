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
    ctes: set[str] = set()
    for node in _parts(session._jsparkSession.sessionState().sqlParser().parsePlan(sql)):
        kind = str(node.nodeName()).lstrip("'")
        if kind not in _KNOWN and not trusted:
            raise QueryError(f"a query cannot have {kind}; trusted callers may: connect(trusted=True)")
        if kind == "UnresolvedRelation":
            names[".".join(_strings(node.multipartIdentifier())).lower()] += 1
        if kind == "UnresolvedWith":
            ctes.update(str(node.cteRelations().apply(i)._1()).lower() for i in range(node.cteRelations().size()))
    foreign = sorted(names.keys() - ctes - {t.lower() for t in tables})
    if foreign and not trusted:
        raise QueryError(f"unknown table '{foreign[0]}'; tables: {', '.join(sorted(tables)) or 'none'}")
    return names


def _parts(plan: Any) -> Iterator[Any]:
    """Every node of the plan, those of its subqueries and CTEs included."""
    stack = [plan]
    while stack:
        node = stack.pop()
        yield node
        for below in (node.children(), node.innerChildren()):
            stack.extend(below.apply(i) for i in range(below.size()))


def _strings(sequence: Any) -> list[str]:
    return [str(sequence.apply(i)) for i in range(sequence.size())]
