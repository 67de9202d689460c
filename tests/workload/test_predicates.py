"""Conditions become predicates that their rows satisfy: the examples are a text file, the law is tested at random."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from parquetry.model.predicate import And, Anything, IsNull, Nothing, NotNull, OneOf, Or, Predicate, Range
from parquetry.query.compile.plain_expressions import Expressions, RowSource
from parquetry.query.compile.typed import Refused
from parquetry.workload.predicates import predicate
from parquetry.workload.sql_text import SparkText
from tests.query.sample_table import SCHEMA, sample_rows
from tests.workload.conditions import condition, satisfies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {c.name: c.type for c in SCHEMA.columns}
_FILE = Path(__file__).parent / "fixtures" / "predicates.txt"
_LINES = [x.split(" => ") for x in _FILE.read_text().splitlines() if x and not x.startswith("#")]


def shown(p: Predicate) -> str:
    """A predicate as the fixture writes it."""
    match p:
        case Anything():
            return "anything"
        case Nothing():
            return "nothing"
        case And(parts=parts):
            return "(" + " and ".join(shown(x) for x in parts) + ")"
        case Or(parts=parts):
            return "(" + " or ".join(shown(x) for x in parts) + ")"
        case IsNull(column=c):
            return f"{c} is null"
        case NotNull(column=c):
            return f"{c} is not null"
        case OneOf(column=c, values=values):
            return f"{c} in {{{', '.join(sorted(_text(v) for v in values))}}}"
        case Range():
            left = "-inf" if p.lo is None else _text(p.lo)
            right = "inf" if p.hi is None else _text(p.hi)
            opening = "(" if p.lo is None or p.lo_open else "["
            return f"{p.column} in {opening}{left}, {right}{')' if p.hi is None or p.hi_open else ']'}"
    raise AssertionError(p)


def _text(v: Any) -> str:
    return v.hex() if isinstance(v, bytes) else str(v)


def parse(text: str) -> Any:
    return sqlglot.parse_one(text, dialect=SparkText)


@pytest.mark.parametrize(("text", "expected"), [(a, b) for a, b in _LINES])
def test_reads_conditions_as_written_in_the_fixture(text: str, expected: str) -> None:
    assert shown(predicate(parse(text), TYPES)) == expected


def test_columns_are_found_without_case() -> None:
    assert predicate(parse("I = 1"), TYPES) == OneOf("i", frozenset([1]))


def test_what_is_not_understood_says_why() -> None:
    assert predicate(parse("s = i"), TYPES) == Anything("it compares two columns")
    assert predicate(parse("length(s) = 3"), TYPES) == Anything("it is not a comparison of one column with a constant")


@pytest.fixture(scope="module")
def rows() -> Iterator[Any]:
    table = sample_rows(rows=90, seed=3)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", table)
        connection.execute("CREATE TABLE sample AS SELECT * FROM rows")
        yield connection, table.to_pylist()


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_row_for_which_the_condition_is_true_satisfies_the_predicate(rows: Any, seed: int) -> None:
    connection, all_rows = rows
    text = condition(random.Random(seed))
    tree = parse(text)
    try:
        duck = Expressions(RowSource(SCHEMA, "t", "", text)).compile(tree)
    except Refused:
        return
    made = predicate(tree, TYPES)
    true = {k for (k,) in connection.execute(f"SELECT k FROM sample WHERE {duck.sql}").fetchall()}
    lost = [r for r in all_rows if r["k"] in true and not satisfies(made, r)]
    assert not lost, (text, made, lost[0])


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(6))
def test_a_row_for_which_spark_finds_the_condition_true_satisfies_the_predicate(seed: int, spark: SparkSession) -> None:
    rng = random.Random(seed)
    texts = [condition(rng, depth=0 if seed % 2 else 2) for _ in range(80)]
    table = sample_rows(rows=90, seed=3)
    frame = spark.createDataFrame(table)
    spark.conf.set("spark.sql.codegen.wholeStage", "false")  # so many expressions compile slowly and run once
    try:
        answers = frame.selectExpr("k", *(f"({t}) AS c{i}" for i, t in enumerate(texts))).toArrow().to_pylist()
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")
    by_key = {r["k"]: r for r in table.to_pylist()}
    understood = 0
    for i, text in enumerate(texts):
        made = predicate(parse(text), TYPES)
        understood += not isinstance(made, Anything)
        lost = [by_key[a["k"]] for a in answers if a[f"c{i}"] and not satisfies(made, by_key[a["k"]])]
        assert not lost, (text, made, lost[0])
    assert understood > len(texts) * 0.7
