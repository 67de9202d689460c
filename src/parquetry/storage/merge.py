"""How rows of equal keys become one: the same law as DuckDB text and as a Spark frame (PP-05, NA-43).

Both read the columns of the table plus ``__order`` (later rows have a larger one) and give one row per key.
For upsert tables the latest row wins; for aggregate tables every value merges by its own function. Merging is
associative, so a merge of merged rows equals one merge of all rows: that lets a stream be merged piece by piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parquetry.model.distinct import SKETCH, merged_text
from parquetry.model.schema import TableSchema
from parquetry.storage import spark_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = "__order"
BLOCK = "__block"


def quote(name: str) -> str:
    """A column name as an SQL identifier of DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def merge_sql(schema: TableSchema, source: str, *, columns: Sequence[str] | None = None, carried: bool = False) -> str:
    """DuckDB text that merges the rows of ``source``; only ``columns`` are kept (the key always is).

    With ``carried`` the result also has ``__block`` and ``__order``, so that it can be merged again.
    """
    wanted = set(schema.names if columns is None else columns) | set(schema.key)
    key = [quote(k) for k in schema.key]
    group = [quote(BLOCK), *key] if carried else key
    if schema.model == "upsert":
        kept = [quote(n) for n in schema.names if n in wanted] + ([quote(BLOCK), quote(ORDER)] if carried else [])
        latest = [f"{quote(schema.sequence)} DESC NULLS LAST"] if schema.sequence else []
        latest.append(f"{ORDER} DESC")
        return (
            f"SELECT {', '.join(kept)} FROM {source} "
            f"QUALIFY row_number() OVER (PARTITION BY {', '.join(group)} ORDER BY {', '.join(latest)}) = 1"
        )
    select = [
        quote(c.name) if c.name in schema.key else f"{_merged_value(schema, c.name)} AS {quote(c.name)}"
        for c in schema.columns
        if c.name in wanted
    ]
    if carried:
        select += [quote(BLOCK), f"max({ORDER}) AS {ORDER}"]
    return f"SELECT {', '.join(select)} FROM {source} GROUP BY {', '.join(group)}"


def _merged_value(schema: TableSchema, name: str) -> str:
    column, how = quote(name), schema.values[name]
    if how in ("min", "max"):
        return f"{how}({column})"
    if how == SKETCH:
        return merged_text(column, duck=True)
    if how in ("sum", "count"):
        return f"CAST(sum({column}) AS {schema.column(name).type})"
    rank = f"{ORDER}"
    if schema.sequence:
        sequence = quote(schema.sequence)
        # A null sequence is older than any other; inside a struct DuckDB would take it for the largest.
        rank = f"struct_pack(a := {sequence} IS NOT NULL, b := {sequence}, c := {ORDER})"
    return f"arg_max(struct_pack(v := {column}), {rank}).v"


def merge_frame(frame: DataFrame, schema: TableSchema) -> DataFrame:
    """The same merge as a Spark frame. Filters on key columns pass below it by Spark's own optimiser."""
    from pyspark.sql import functions as F

    if not schema.keyed:
        return frame.select(*[_col(n) for n in schema.names])
    order = F.col(ORDER)
    rank: Any = order
    if schema.sequence:
        rank = F.struct(_col(schema.sequence).isNotNull(), _col(schema.sequence), order)
    values = [n for n in schema.names if n not in schema.key]
    if schema.model == "upsert":
        if not values:
            return frame.select(*[_col(k) for k in schema.key]).distinct()
        latest = F.max_by(F.struct(*[_col(v) for v in values]), rank).alias("__latest")
        merged = frame.groupBy(*[_col(k) for k in schema.key]).agg(latest)
        parts = [_col(n) if n in schema.key else F.col("__latest").getField(n).alias(n) for n in schema.names]
        return merged.select(*parts)
    merges = []
    for name in values:
        how = schema.values[name]
        if how == "replace":
            merges.append(F.max_by(F.struct(_col(name).alias("v")), rank).getField("v").alias(name))
        elif how == SKETCH:
            merges.append(F.expr(merged_text(spark_text.quote(name), duck=False)).alias(name))
        elif how in ("min", "max"):
            merges.append(getattr(F, how)(_col(name)).alias(name))
        else:
            merges.append(F.sum(_col(name)).cast(schema.column(name).type).alias(name))
    key = [_col(k) for k in schema.key]
    grouped = frame.groupBy(*key).agg(*merges) if merges else frame.select(*key).distinct()
    return grouped.select(*[_col(n) for n in schema.names])


def _col(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col(spark_text.quote(name))
