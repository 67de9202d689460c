"""Makes a view: checks its definition, asks Spark for its types, and gives it a table to be stored in."""

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
from parquetry.views.define import Definition, how_of, read_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def create_view_edit(
    spark: Callable[[], SparkSession], state: State, name: str, sql: str, order: Sequence[str], settings: Settings
) -> CreateTable:
    """The edit that makes the view; SchemaError with the reason when it cannot be maintained."""
    definition = read_definition(sql, state, order)  # most mistakes are found without starting Spark
    with active_session_kept():
        session = private_session(spark())
        for source, t in zip(definition.sources, definition.tables, strict=True):
            empty = session.createDataFrame([], spark_schema(t.readable))
            empty.createOrReplaceTempView(quote(source.alias))
            empty.createOrReplaceTempView(quote(t.name))
        spec = _typed(session, definition)
        made = aggregated(spec, session.sql(rows_text(spec)))
        types = {f.name: f.dataType.simpleString() for f in made.schema}
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
    for c in columns:
        _check_type(c)
    exact = all(c.type != "double" for c in columns if c.function in ("sum", "avg"))
    exact = exact or _averages_integers(session, replace(draft, columns=columns))
    return replace(draft, columns=columns, how=how_of(definition, exact))


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


def _averages_integers(session: SparkSession, spec: ViewSpec) -> bool:
    """Whether every double among the results is an average of integers: their sums are exact."""
    rows = session.sql(rows_text(spec)).schema
    for i, c in enumerate(spec.aggregates):
        if c.type == "double" and c.function in ("sum", "avg"):
            kind = rows[f"__a{i}"].dataType.simpleString()
            if c.function == "sum" or kind not in ("tinyint", "smallint", "int"):
                return False
    return True
