"""Makes a view: checks its definition, finds its types, and gives it a table to be stored in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parquetry.errors import SchemaError
from parquetry.model.schema import Column, TableSchema
from parquetry.model.settings import Settings
from parquetry.model.state import CreateTable, State
from parquetry.model.types import arrow_type
from parquetry.model.view import ViewColumn, ViewSpec
from parquetry.model.visible import MOST_AVERAGED_DIGITS
from parquetry.spark import active_session_kept, private_session
from parquetry.storage.scan.spark import spark_schema
from parquetry.storage.spark_text import quote
from parquetry.views.changes import aggregated, definition_text, rows_text
from parquetry.views.define import Definition, averages_integers, how_of, read_definition
from parquetry.views.here import Compile
from parquetry.views.typed_here import typed_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def create_view_edit(
    spark: Callable[[], SparkSession],
    state: State,
    name: str,
    sql: str,
    order: Sequence[str],
    settings: Settings,
    compile_: Compile,
) -> CreateTable:
    """The edit that makes the view; SchemaError with the reason when it cannot be maintained."""
    definition = read_definition(sql, state, order)  # most mistakes are found without starting Spark
    spec, types = typed_here(definition, compile_) or _typed_by_spark(spark, definition)
    for column in spec.columns:
        _check_type(column)
    groups = [c.name for c in spec.groups]
    values = spec.merges
    stored = tuple(Column(n, types[n]) for n in (*groups, *values))
    for c in stored:
        arrow_type(c.type)  # a type that no table can hold is an error here, not in the first refresh
    if spec.how == "replace":
        schema = TableSchema(stored, definition.key, "upsert", null_keys=True)
    else:
        schema = TableSchema(stored, definition.key, "aggregate", values, null_keys=True)
    return CreateTable(name, schema, settings, spec)


def _typed_by_spark(spark: Callable[[], SparkSession], definition: Definition) -> tuple[ViewSpec, dict[str, str]]:
    """The definition with types, and those of its stored columns."""
    with active_session_kept():
        session = private_session(spark())
        for source, t in zip(definition.sources, definition.tables, strict=True):
            empty = session.createDataFrame([], spark_schema(t.readable))
            empty.createOrReplaceTempView(quote(source.alias))
            empty.createOrReplaceTempView(quote(t.name))
        spec = _typed(session, definition)
        made = aggregated(spec, session.sql(rows_text(spec)))
        return spec, {f.name: f.dataType.simpleString() for f in made.schema}


def _typed(session: SparkSession, definition: Definition) -> ViewSpec:
    """The definition with Spark's types. What our reading of it made of the text must mean the same to Spark."""
    try:
        asked = session.sql(definition.sql)
        draft = ViewSpec(definition.sql, definition.sources, definition.columns, definition.where, "merge")
        text = definition_text(draft, [t.name for t in definition.tables], definition.bare)
        understood = session.sql(text)
    except Exception as e:
        first = " ".join(str(e).split("\n== SQL")[0].split("\n\nJVM")[0].split())
        raise SchemaError(f"Spark cannot run the view's query: {first[:300]}") from e
    if not asked.sameSemantics(understood) and not _optimised_alike(asked, understood):
        raise SchemaError(
            "this view cannot be maintained: Spark reads its text in another way than Parquetry; "
            f"Parquetry took it for: {text[:300]}"
        )
    if not asked._jdf.queryExecution().analyzed().deterministic():
        raise SchemaError("this view cannot be maintained: a function in it has another value every time")
    types = [f.dataType.simpleString() for f in asked.schema.fields]
    columns = tuple(replace(c, type=t) for c, t in zip(definition.columns, types, strict=True))
    draft = replace(draft, columns=columns)
    rows = {f.name: f.dataType.simpleString() for f in session.sql(rows_text(draft)).schema}
    return replace(draft, how=how_of(definition, averages_integers(draft, rows)))


def _optimised_alike(asked: DataFrame, understood: DataFrame) -> bool:
    """Whether Spark makes the same plan of both, so that ``NOT x IS NULL`` is ``x IS NOT NULL``."""
    plans = [f._jdf.queryExecution().optimizedPlan() for f in (asked, understood)]
    # A plan that was folded to nothing would equal any other.
    return "<empty>" not in plans[0].toString() and bool(plans[0].sameResult(plans[1]))


def _check_type(c: ViewColumn) -> None:
    arrow = arrow_type(c.type)
    if c.function == "avg" and c.type != "double" and arrow.precision > MOST_AVERAGED_DIGITS + 4:
        raise SchemaError(
            f"this view cannot be maintained: {c.name} averages decimals of more than {MOST_AVERAGED_DIGITS} digits, "
            "which cannot be divided exactly; keep their sum and count instead"
        )
