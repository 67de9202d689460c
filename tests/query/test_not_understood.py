"""The law of binding: a text that is not understood whole reads all of its tables, or is refused."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from parquetry.errors import ParquetryError, QueryError
from parquetry.model.predicate import Anything, OneOf
from parquetry.query.compile.plain_select import LocalPlan, Refusal
from parquetry.query.demands import shape_of, split_statements
from parquetry.query.planning.bind import BoundQuery, bind
from parquetry.workload.lexemes import lexemes
from tests.query.test_bind import TABLES, cases, table

T = {"t": table("k bigint, g int, v double, s string, b boolean, c boolean, y binary"), "u": table("k bigint, x int")}


def is_whole(bound: BoundQuery) -> bool:
    every = all(isinstance(r.predicate, Anything) and list(r.columns) == T[r.table].names for r in bound.refs)
    return bool(bound.doubt) and every and bound.tree is None and isinstance(bound.local, Refusal)


@pytest.mark.parametrize(
    "sql",
    [
        "WITH a AS (TABLE t) SELECT k, (SELECT count(*) FROM a) AS n FROM t WHERE k = 5",
        "(TABLE t) UNION ALL (SELECT * FROM t WHERE k = 5)",
        "FROM t |> WHERE k = 5",
        "SELECT * FROM t TABLESAMPLE (10 PERCENT) JOIN u ON t.k = u.k WHERE u.k = 5",
        "SELECT * FROM t PIVOT (sum(v) FOR g IN (1, 2)) WHERE k = 5",
        "SELECT * FROM t VERSION AS OF 1 WHERE k = 5",
        "SELECT * FROM t WHERE k = 5 AND s = :p",
        "SELECT * FROM t JOIN u JOIN t AS w ON u.k = w.k ON t.k = u.k WHERE t.k = 5",
        "WITH a AS MATERIALIZED (SELECT * FROM t) SELECT * FROM a WHERE k = 5",
        "SELECT * FROM t WHERE k = 5 AND b = c < true",
        "SELECT * FROM t WHERE k = 5 AND b = c IN (true)",
        "SELECT * FROM t WHERE k = 5 AND g & 1 + 1 = 2",
        'SELECT * FROM t WHERE k = 5 AND s = "a""b"',
        "SELECT * FROM t WHERE k = 2 */* c */ 3",
        f"SELECT k FROM t WHERE {'(' * 60}k = 1{')' * 60}",
        f"SELECT k FROM t WHERE k = {'-(' * 400}1{')' * 400}",
    ],
)
def test_a_text_with_parts_that_are_not_understood_is_left_to_spark_with_whole_tables(sql: str) -> None:
    bound = bind(sql, T)
    assert is_whole(bound)
    assert "t" in {r.table for r in bound.refs}


def test_names_inside_strings_count_as_tables_where_a_trusted_text_is_not_understood() -> None:
    sql = "SELECT * FROM u JOIN IDENTIFIER('t') AS x ON u.k = x.k WHERE u.k = 5 |> LIMIT 1"
    assert {r.table for r in bind(sql, T, trusted=True).refs} == {"t", "u"}


@pytest.mark.parametrize("terms", [350, 3000])
def test_long_chains_of_or_are_understood(terms: int) -> None:
    bound = bind("SELECT k FROM t WHERE " + " OR ".join(f"k = {i}" for i in range(terms)), T)
    assert bound.refs[0].predicate == OneOf("k", frozenset(range(terms)))
    assert isinstance(bound.local, LocalPlan)


def test_long_chains_of_union_are_understood() -> None:
    bound = bind(" UNION ALL ".join(f"SELECT k FROM t WHERE k = {i}" for i in range(500)), T)
    assert len(bound.refs) == 500
    assert not any(isinstance(r.predicate, Anything) for r in bound.refs)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count() FROM t",
        "SELECT MAP(DISTINCT k) FROM t",
        "SELECT 1 FROM t GROUP BY 1e309",
        "SELECT * FROM t |> UNION ALL SELECT 1",
        "SELECT k FROM t LIMIT 1e309",
        "SELECT k FROM t ORDER BY 1e309",
        "SELECT if() FROM t",
        "SELECT CASE END FROM t",
        "SELECT \x00 FROM t",
        "SELECT '\ud800' FROM t",
    ],
)
def test_odd_texts_raise_no_other_error_than_ours(sql: str) -> None:
    with suppress(ParquetryError):
        assert bind(sql, T).refs


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k FROM t LIMIT 3 ORDER BY k",
        "SELECT k, FROM t",
        "SELECT k FROM t GROUP BY k,",
        "SELECT k FROM t WHERE k = 1 WHERE k = 2",
        "SELECT k FROM t HAVING k > 1 GROUP BY k",
        "SELECT k FROM t OFFSET 1 LIMIT 1",
        "SELECT k FROM t WHERE k = 0x1F",
        "SELECT 0x1F AS a FROM t",
        "SELECT k FROM t WHERE y = 0x1F",
        "SELECT t.k FROM t JOIN u ON t.k = u.k WHERE y = 0X1f",
        "SELECT k {# c #} FROM t",
        "SELECT k FROM t WHERE s = N'x'",
        "SELECT k FROM t WHERE g = b'1'",
        "SELECT k FROM t WHERE b = NOT c",
        "SELECT count(DISTINCT *) FROM t",
        "SELECT FROM t",
        "SELECT k FROM t WHERE k NOT NULL",
        "SELECT k FROM t WHERE k ISNULL",
        "SELECT k FROM t WHERE k NOTNULL",
        "SELECT k FROM t WHERE k BETWEEN ASYMMETRIC 1 AND 3",
        "SELECT k FROM t WHERE k IS UNKNOWN",
        "SELECT k FROM t WHERE k ?? 3 = 3",
        "SELECT ALL, g FROM t",
        "SELECT k FROM t WHERE b <=> k > 0",
        "SELECT k FROM t WHERE k > 0 <=> b",
        "SELECT k AS, g FROM t",
        "SELECT k / 7 AS , g FROM t",
        "SELECT k AS FROM t",
        "SELECT k FROM t AS",
        "SELECT sum(SELECT count(*) FROM t) AS s FROM t",
        "SELECT sum( SELECT count(*) s) AS s FROM t",
        "SELECT k FROM t WHERE k = SELECT 1",
    ],
)
def test_the_local_executor_runs_nothing_that_only_our_parser_takes(sql: str) -> None:
    with suppress(QueryError):
        assert isinstance(bind(sql, T).local, Refusal)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT DISTINCT k, g FROM t WHERE k IN (1, 2) AND s IS DISTINCT FROM 'x' ORDER BY k DESC LIMIT 3 OFFSET 1",
        "select g, sum(k) from t where (k = 1 or k = 2) and not b group by g having sum(k) > 1 order by 1;",
        "SELECT count(*) FROM t WHERE s = 'x${y}' AND k >= 5L /* c */ -- d",
        "SELECT k, k IS NOT NULL AS b FROM t WHERE NOT (s IS NULL) AND k NOT IN (1, 2)",
        "SELECT CAST(k AS bigint) AS `as`, g AS n FROM t AS t",
    ],
)
def test_plain_texts_stay_local(sql: str) -> None:
    assert isinstance(bind(sql, T).local, LocalPlan)


def test_broken_lines_of_a_workload_file_are_left_out_and_the_others_kept(tmp_path: Path) -> None:
    from parquetry.query.demands import asked_in_file

    lines = ["SELECT count() FROM t", "SELECT MAP(DISTINCT k) FROM t", "SELECT {# FROM t", "SELECT reflect('a') FROM t"]
    (tmp_path / "w.sql").write_text(";\n".join([*lines, "SELECT k FROM t WHERE k = 1", "SELECT 'open FROM t"]))
    found = asked_in_file(tmp_path / "w.sql", "t", T)
    assert OneOf("k", frozenset([1])) in [a.query.predicate for a in found]


def test_mutated_texts_raise_only_our_errors_and_are_never_stumbled_over() -> None:
    rng = random.Random(11)
    texts = [[w.text for w in lexemes(sql)] for sql, _ in cases()]
    pool = [w for words in texts for w in words]
    for _ in range(600):
        words = list(rng.choice(texts))
        for _ in range(rng.randint(1, 4)):
            i = rng.randrange(len(words) + 1)
            words[i : i + rng.randint(0, 2)] = rng.choices(pool, k=rng.randint(0, 2))
        sql = " ".join(words)
        try:
            bound = bind(sql, TABLES)
        except ParquetryError:
            continue
        assert "failed" not in bound.doubt, sql
        for ref in bound.refs:
            shape_of(ref)
        assert [s for _, s in split_statements(f"{sql};{sql}")]
