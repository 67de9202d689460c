"""Random texts: the right answer or a refusal in one line, whoever runs them and whatever is skipped."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import parquetry
from parquetry.catalog.definitions import schema_of
from parquetry.model.schema import Column, TableSchema
from parquetry.query.compile.plain_select import Refusal
from parquetry.query.planning.bind import bind
from parquetry.query.rules import RULE_NAMES as RULES
from parquetry.warehouse import Warehouse
from tests.differential.fed import KEYED
from tests.differential.golden import QUERIES
from tests.differential.raw_files import TPCH_KEYS, ZOO, ZOO_KEY
from tests.differential.reference import reference_session
from tests.fuzz.cases import Budget, Fuzz
from tests.fuzz.grammar import Grammar, Text
from tests.fuzz.mutate import mutated
from tests.fuzz.outcomes import Outcome, difference, outcome_of
from tests.fuzz.quick import made_quick
from tests.query.compile.random_queries import Generator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPEN = re.compile(r"\b(limit|offset|tablesample|rand|uuid|now|current_\w+|first|last|any_value|collect_\w+)\b", re.I)
_CHANGING = re.compile(r"\s*(create|drop|alter)\b", re.I)


@pytest.fixture(scope="module")
def wh(filled: Path, quick: SparkSession) -> Iterator[Warehouse]:
    with parquetry.connect(filled, spark=quick) as opened:
        yield opened


@pytest.fixture(scope="module")
def small(fed_folder: Path, quick: SparkSession) -> Iterator[Warehouse]:
    with parquetry.connect(fed_folder, spark=quick) as opened:
        yield opened


@pytest.fixture(scope="module")
def small_reference(spark: SparkSession, raw_files: dict[str, list[Path]]) -> SparkSession:
    return made_quick(reference_session(spark, raw_files))


@pytest.fixture(scope="module")
def without_spark(filled: Path) -> Iterator[Warehouse]:
    with parquetry.connect(filled) as opened:
        yield opened


def _text(fuzz: Fuzz, rng: random.Random) -> Text:
    text = Grammar(rng).text()
    return text if rng.random() < 0.75 else Text(mutated(rng, text.sql))


def test_planning(budget: Budget, without_spark: Warehouse) -> None:
    """Any text can be bound, or is refused in one line; what runs locally reads the same rows with all rules off."""
    fuzz = Fuzz("planning", budget, few=600, of_time=0.15)
    schemas = {n: t.readable for n, t in without_spark.catalog.state().tables.items()}
    for i, rng in fuzz.cases():
        sql = _text(fuzz, rng).sql
        bound = None

        def planned(sql: str = sql) -> None:
            nonlocal bound
            bound = bind(sql, schemas)

        found = outcome_of(planned)
        if found.raw:
            fuzz.problem(i, found.raw, f"{sql}\n{found.details}")
        if bound is None:
            fuzz.count("refused")
        elif not isinstance(bound.local, Refusal):
            fuzz.count("run locally")
            _same_without_rules(fuzz, i, sql, without_spark)
    fuzz.finish()


def test_planning_of_golden_queries(budget: Budget) -> None:
    """Mutations of them can be bound, or are refused in one line."""
    fuzz = Fuzz("golden_planning", budget, few=150, of_time=0.05)
    schemas = _golden_schemas()
    for i, rng in fuzz.cases():
        sql = mutated(rng, rng.choice(list(QUERIES.values())))
        found = outcome_of(partial(bind, sql, schemas))
        fuzz.count("refused" if found.refused else "bound")
        if found.raw:
            fuzz.problem(i, found.raw, f"{sql}\n{found.details}")
    fuzz.finish()


def _golden_schemas() -> dict[str, TableSchema]:
    """Of all tables that the golden queries name; types of TPC-H do not matter for planning."""
    found = {"zoo": schema_of(ZOO, ZOO_KEY, "append", None, None)}
    for name, d in KEYED.items():
        found[name] = schema_of(d["schema"], d["key"], d.get("model", "append"), d.get("values"), d.get("sequence"))
    words = set(re.findall(r"\b[a-z]+_[a-z]+\b", " ".join(QUERIES.values())))
    for name, key in TPCH_KEYS.items():
        prefix = key[0].split("_")[0] + "_"
        columns = tuple(Column(w, "int") for w in sorted(words | set(key)) if w.startswith(prefix))
        found[name] = TableSchema(columns, tuple(key))
    return found


@pytest.mark.slow
def test_golden_answers(budget: Budget, small: Warehouse, small_reference: SparkSession) -> None:
    """Mutations of the golden queries over small tables, where no join can grow large, and random joins."""
    fuzz = Fuzz("golden_answers", budget, few=12, of_time=0.25)
    golden = [sql for name, sql in QUERIES.items() if not name.startswith("tpch ")]
    for i, rng in fuzz.cases():
        joins = rng.random() < 0.5
        sql = Generator(rng.randrange(1 << 30)).query() if joins else mutated(rng, rng.choice(golden))
        _compare(fuzz, i, Text(sql), small, small_reference)
    fuzz.finish()


def _arrow(wh: Warehouse, sql: str, executor: str) -> pa.Table:
    return wh.sql(sql, executor=executor).arrow()


def _same_without_rules(fuzz: Fuzz, i: int, sql: str, wh: Warehouse) -> None:
    skipped, whole = (outcome_of(partial(_local, wh, sql, off)) for off in ((), RULES))
    for found in (skipped, whole):
        if found.raw:
            fuzz.problem(i, found.raw, f"{sql}\n{found.details}")
    if skipped.rows is not None and whole.rows is not None:
        wrong = difference(skipped.rows, whole.rows, count_only=bool(_OPEN.search(sql)))
        if wrong:
            fuzz.problem(i, "wrong answer: rules change it", f"{sql}\n  {wrong}")


def _local(wh: Warehouse, sql: str, off: tuple[str, ...]) -> object:
    return wh.sql(sql, executor="local", off=off).arrow()


@pytest.mark.slow
def test_answers(budget: Budget, wh: Warehouse, plain: SparkSession) -> None:
    """Both executors answer as plain Spark over the raw rows."""
    fuzz = Fuzz("answers", budget, few=25, of_time=0.3)
    for i, rng in fuzz.cases():
        _compare(fuzz, i, _text(fuzz, rng), wh, plain)
    fuzz.finish()
    if fuzz.budget.only is None:
        assert fuzz.share("answered by plain Spark", "cases") > 0.5, "most texts should mean something"
        assert fuzz.share("refused, but plain Spark answers", "answered by plain Spark") < 0.3


def _compare(fuzz: Fuzz, i: int, text: Text, wh: Warehouse, plain: SparkSession) -> None:
    sql = text.sql
    if _CHANGING.match(sql):
        return
    expected, analyzed = _plainly(plain, sql)
    if expected.rows is not None:
        fuzz.count("answered by plain Spark")
    for executor in ("local", "spark"):
        found = outcome_of(partial(_arrow, wh, sql, executor))
        if found.raw:
            fuzz.problem(i, found.raw, f"{sql}\n{found.details}")
        elif found.rows is None:
            if expected.rows is not None and executor == "spark":
                fuzz.count("refused, but plain Spark answers")
                fuzz.count(f"refusal: {found.refused[:60]}")
            elif expected.rows is not None:
                fuzz.count("left to Spark")
        elif expected.rows is not None:
            fuzz.count(f"right on {executor}")
            wrong = difference(found.rows, expected.rows, ordered=text.ordered, count_only=bool(_OPEN.search(sql)))
            if wrong and not (text.ordered and not difference(found.rows, expected.rows)):
                fuzz.problem(i, f"wrong answer on {executor}", f"{sql}\n  {wrong}")
            elif wrong:
                fuzz.problem(i, f"wrong order on {executor}", f"{sql}\n  {wrong}")
        elif not analyzed:
            fuzz.problem(i, f"{executor} answers what Spark refuses", f"{sql}\n  {expected.raw} {expected.refused}")


def _plainly(plain: SparkSession, sql: str) -> tuple[Outcome, bool]:
    """The outcome on plain Spark, and whether Spark understands the text: what fails later depends on the plan."""
    analyzed = False

    def run() -> object:
        nonlocal analyzed
        frame = plain.sql(sql)
        analyzed = True
        return frame.toArrow()

    return outcome_of(run), analyzed
