"""Binding: which tables a query reads, with which columns and filters, and what is refused with one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from parquetry.errors import QueryError, UnknownColumn, UnknownTable
from parquetry.model.predicate import ANYTHING, OneOf, Range
from parquetry.model.schema import Column, TableSchema
from parquetry.model.types import parse_columns
from parquetry.query.planning.bind import bind
from tests.workload.test_predicates import shown


def table(ddl: str) -> TableSchema:
    columns = [Column(n, t, nullable) for n, t, nullable in parse_columns(ddl)]
    return TableSchema(tuple(columns), key=(columns[0].name,))


TABLES = {
    "orders": table("ok bigint, ck bigint, total decimal(15,2), day date, note string, tags array<string>"),
    "items": table("ok bigint, line int, price decimal(15,2), ship date, mode string, info struct<a:int,b:string>"),
    "customers": table("ck bigint, name string, nation int"),
    "sys.deltas": table("id string, rows bigint"),
}


def described(sql: str) -> list[str]:
    """One line per reference: ``table alias(columns): predicate``."""
    refs = bind(sql, TABLES).refs
    return [f"{r.table} {r.alias}({', '.join(r.columns)}): {shown(r.predicate)}" for r in refs]


def cases() -> list[tuple[str, list[str]]]:
    """Blocks of a query and the lines that describe its references, separated by empty lines."""
    text = (Path(__file__).parent / "fixtures" / "bind.txt").read_text()
    blocks = [b.strip().splitlines() for b in text.split("\n\n")]
    made = []
    for lines in blocks:
        lines = [line for line in lines if not line.startswith("#")]
        query = [line for line in lines if not line.startswith("-> ")]
        if query:
            made.append(("\n".join(query), [line[3:] for line in lines if line.startswith("-> ")]))
    return made


@pytest.mark.parametrize(("sql", "expected"), cases())
def test_finds_references_columns_and_filters(sql: str, expected: list[str]) -> None:
    assert described(sql) == expected


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT ok FROM orders WHERE (", "cannot parse the SQL at line 1, column 29, near '('"),
        ("SELECT ok\nFROM orders WHERE ok = = 3", "cannot parse the SQL at line 2, column 24, near '='"),
        (
            "SELECT ok FROM orders WHERE note = 'x",
            "cannot read the SQL text: a string, quoted name or comment is not closed",
        ),
        ("", "the SQL text is empty; write a SELECT"),
        ("SELECT 1; SELECT 2", "one query at a time: the text has several statements separated by ';'"),
        ("DROP TABLE orders", "only queries can be run here: the text starts with DROP; write SELECT or WITH"),
        (
            "INSERT INTO orders SELECT 1",
            "only queries can be run here: the text starts with INSERT; write SELECT or WITH",
        ),
        ("frm orders", "only queries can be run here: the text starts with FRM; write SELECT or WITH"),
    ],
)
def test_bad_text_gets_one_line(sql: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        bind(sql, TABLES)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM nowhere",
        "SELECT * FROM orders WHERE ok IN (SELECT x FROM nowhere)",
        "WITH c AS (SELECT * FROM nowhere) SELECT 1 FROM orders",
        "SELECT * FROM other.orders",
        "SELECT * FROM parquet.`/tmp/x`",
    ],
)
def test_unknown_tables_are_named(sql: str) -> None:
    with pytest.raises(UnknownTable):
        bind(sql, TABLES)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nope FROM orders",
        "SELECT ok FROM orders WHERE nope = 3",
        "SELECT o.nope FROM orders o",
        "SELECT sum(nope) FROM orders GROUP BY ok",
        "SELECT ok FROM orders ORDER BY nope",
        "SELECT year(nope) FROM orders",
        "SELECT ok AS x FROM orders WHERE x = 3",
    ],
)
def test_unknown_columns_of_a_single_table_are_named(sql: str) -> None:
    with pytest.raises(UnknownColumn) as error:
        bind(sql, TABLES)
    assert "in table 'orders'" in str(error.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ok AS x FROM orders ORDER BY x",
        "SELECT ok AS x, x + 1 AS y FROM orders",
        "SELECT localtimestamp, current_user FROM orders",
        "SELECT timestampdiff(DAY, day, day) FROM orders",
        "SELECT transform(tags, x -> upper(x)) FROM orders",
        "SELECT info.a, items.info.b FROM items",
        "SELECT o.k FROM orders o JOIN customers c ON o.ck = c.ck",
    ],
)
def test_names_that_are_no_plain_columns_are_left_to_spark(sql: str) -> None:
    bind(sql, TABLES)


def test_filters_tell_what_was_used_and_what_not() -> None:
    (ref,) = bind("SELECT ok FROM orders WHERE ok > 5 AND length(note) = 3", TABLES).refs
    assert ref.filters == (
        "used: ok > 5",
        "not used: LENGTH(note) = 3 (it is not a comparison of one column with a constant)",
    )


def test_backslashes_make_constants_untrusted() -> None:
    (ref,) = bind("SELECT ok FROM orders WHERE note = 'a\\tb'", TABLES).refs
    assert ref.predicate == ANYTHING
    assert "backslash" in ref.filters[0]


def test_a_reused_cte_has_filters_of_its_own_at_each_mention() -> None:
    sql = (
        "WITH c AS (SELECT ok, day FROM orders) SELECT * FROM c a JOIN c b ON a.day = b.day WHERE a.ok = 1 AND b.ok > 2"
    )
    first, second = bind(sql, TABLES).refs
    assert first.predicate == OneOf("ok", frozenset([1]))
    assert second.predicate == Range("ok", lo=3)


def test_many_nested_ctes_stay_cheap() -> None:
    steps = [f"c{i} AS (SELECT a.ok FROM c{i - 1} a JOIN c{i - 1} b ON a.ok = b.ok)" for i in range(1, 20)]
    sql = f"WITH c0 AS (SELECT ok FROM orders), {', '.join(steps)} SELECT * FROM c19 WHERE ok = 1"
    bound = bind(sql, TABLES)
    assert len(bound.refs) <= 201  # not one per path, of which there are half a million
    assert {r.table for r in bound.refs} == {"orders"}
