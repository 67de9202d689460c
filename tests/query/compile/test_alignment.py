"""Which tables of a query can be dealt out, and which others follow them: no more than the answer allows."""

from __future__ import annotations

import pytest
from sqlglot import exp

from parquetry.model.schema import Column, TableSchema
from parquetry.query.compile.alignment import find_alignment
from parquetry.workload.plain_select import NotPlain
from parquetry.workload.sql_text import parse_query

COLUMNS = {"a": "kxy", "b": "kxz", "c": "kw"}
TABLES = {n: TableSchema(tuple(Column(c, "int") for c in columns), ("k",)) for n, columns in COLUMNS.items()}


def dealt(sql: str) -> dict[str, set[str]]:
    """By the alias of every anchor and its column: what follows it."""
    tree = parse_query(sql)
    assert isinstance(tree, exp.Select)
    found = find_alignment(tree, TABLES)
    alias = {id(t): t.alias_or_name for t in tree.find_all(exp.Table)}
    return {
        f"{alias[anchor]}.{column}": {
            f"{alias[node]}.{name}" for node, name in found.aligned(anchor, column).items() if node != anchor
        }
        for anchor in found.anchors
        for column in found.columns(anchor) or ["k"]
    }


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1 FROM a JOIN b ON a.k = b.k", {"a.k": {"b.k"}, "b.k": {"a.k"}}),
        ("SELECT 1 FROM a, b WHERE a.k = b.x AND a.y > 1", {"a.k": {"b.x"}, "b.x": {"a.k"}}),
        ("SELECT 1 FROM a JOIN b USING (k)", {"a.k": {"b.k"}, "b.k": {"a.k"}}),
        (
            "SELECT 1 FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k",
            {"a.k": {"b.k", "c.k"}, "b.k": {"a.k", "c.k"}, "c.k": {"a.k", "b.k"}},
        ),
        ("SELECT 1 FROM a JOIN b ON a.k = b.k OR a.x = b.x", {"a.k": set(), "b.k": set()}),
        ("SELECT 1 FROM a JOIN b ON a.k <=> b.k", {"a.k": set(), "b.k": set()}),
        ("SELECT 1 FROM a JOIN b ON a.k = b.k + 1", {"a.k": set(), "b.k": set()}),
        ("SELECT 1 FROM a LEFT JOIN b ON a.k = b.k", {"a.k": {"b.k"}}),
        ("SELECT 1 FROM a LEFT JOIN b ON a.x = b.x WHERE a.k = b.k", {"a.x": {"b.x"}}),
        ("SELECT 1 FROM a LEFT SEMI JOIN b ON a.k = b.k", {"a.k": {"b.k"}}),
        ("SELECT 1 FROM a LEFT ANTI JOIN b ON a.k = b.k", {"a.k": {"b.k"}}),
        ("SELECT 1 FROM a CROSS JOIN b", {"a.k": set(), "b.k": set()}),
        ("SELECT 1 FROM a AS s JOIN a AS t ON s.k = t.x", {"s.k": {"t.x"}, "t.x": {"s.k"}}),
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", {"a.k": {"b.k"}}),
        ("SELECT 1 FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE z > y AND b.k = a.k)", {"a.k": {"b.k"}}),
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k OR z = 1)", {"a.k": set()}),
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k LIMIT 1)", {"a.k": set()}),
        ("SELECT 1 FROM a WHERE y > (SELECT avg(z) FROM b WHERE b.k = a.k)", {"a.k": {"b.k"}}),
        ("SELECT 1 FROM a WHERE y > (SELECT avg(z) FROM b)", {"a.k": set()}),
        ("SELECT 1 FROM a WHERE k IN (SELECT x FROM b)", {"a.k": {"b.x"}}),
        ("SELECT 1 FROM a WHERE k IN (SELECT x FROM b GROUP BY x HAVING sum(z) > 3)", {"a.k": {"b.x"}}),
        ("SELECT 1 FROM a WHERE k IN (SELECT max(x) FROM b)", {"a.k": set()}),
        ("SELECT 1 FROM a WHERE k IN (SELECT x FROM b ORDER BY x LIMIT 3)", {"a.k": set()}),
        ("SELECT 1 FROM a WHERE k NOT IN (SELECT x FROM b)", {"a.k": set()}),
        ("SELECT 1 FROM a WHERE k IN (SELECT x FROM b) OR y = 1", {"a.k": set()}),
        ("SELECT sum(n) FROM (SELECT a.y AS n FROM a JOIN b ON a.k = b.k) AS t", {"a.k": {"b.k"}, "b.k": {"a.k"}}),
        ("SELECT 1 FROM a JOIN (SELECT k FROM b) AS t ON a.k = t.k", {"a.k": set()}),
        ("SELECT 1 FROM a AS t(p, q, r) JOIN b ON p = b.k", {"b.k": set()}),
        ("WITH b AS (SELECT * FROM c) SELECT 1 FROM a JOIN b ON a.k = b.k", {"a.k": set()}),
    ],
)  # fmt: skip
def test_tables_follow_where_an_equality_always_holds(sql: str, expected: dict[str, set[str]]) -> None:
    assert dealt(sql) == expected


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT 1 FROM a RIGHT JOIN b ON a.k = b.k", "RIGHT JOIN"),
        ("SELECT 1 FROM a FULL JOIN b ON a.k = b.k", "FULL JOIN"),
        ("SELECT sum(n) FROM (SELECT count(*) AS n FROM a JOIN b ON a.k = b.k) AS t", "dealt out"),
        ("SELECT sum(n) FROM (SELECT DISTINCT a.y AS n FROM a) AS t", "dealt out"),
        ("SELECT 1 FROM (SELECT a.y AS n FROM a LIMIT 3) AS t", "dealt out"),
    ],
)
def test_what_cannot_be_dealt_out_says_why(sql: str, reason: str) -> None:
    with pytest.raises(NotPlain, match=reason):
        dealt(sql)
