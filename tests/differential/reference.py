"""Plain Spark over the raw files, and how two answers are compared."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a keyed table should hold, from its raw rows: written with windows, unlike the product's own merge.
MERGED = {
    "latest": """
        SELECT id, who, v, note FROM (
          SELECT *, row_number() OVER (PARTITION BY id, who ORDER BY batch DESC, place DESC) AS age FROM raw_latest)
        WHERE age = 1""",
    "sequenced": """
        SELECT id, seq, v, w FROM (
          SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC NULLS LAST, batch DESC, place DESC) AS age
          FROM raw_sequenced)
        WHERE age = 1""",
    "totals": """
        SELECT day, shop, sum(amount) AS amount, CAST(sum(cents) AS decimal(12,2)) AS cents, min(lowest) AS lowest,
               max(highest) AS highest, count(*) AS n, max(CASE WHEN age = 1 THEN note END) AS note
        FROM (
          SELECT *, row_number() OVER (PARTITION BY day, shop ORDER BY batch DESC, place DESC) AS age FROM raw_totals)
        GROUP BY day, shop""",
}


def reference_session(spark: SparkSession, files: dict[str, list[Path]]) -> SparkSession:
    """A session in which every table's name is a view over its raw files."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.variable.substitute", "false")  # a text means what it says
    for name, paths in files.items():
        frame = session.read.option("mergeSchema", "true").parquet(*map(str, paths))
        if name in MERGED:
            placed = frame.selectExpr("*", "_metadata.file_name AS batch", "_metadata.row_index AS place")
            placed.createOrReplaceTempView(f"raw_{name}")
            session.sql(MERGED[name]).createOrReplaceTempView(name)
        else:
            frame.createOrReplaceTempView(name)
    return session


def differences(got: pa.Table, expected: pa.Table, *, ordered: bool) -> list[str]:
    """What is not the same: names, Arrow types, rows. Exact but for the last digits of floats."""
    if got.schema.names != expected.schema.names:
        return [f"columns {got.schema.names} instead of {expected.schema.names}"]
    types = [
        f"{g.name}: {g.type} instead of {e.type}"
        for g, e in zip(got.schema, expected.schema, strict=True)
        if g.type != e.type
    ]
    if types or got.num_rows != expected.num_rows:
        return types or [f"{got.num_rows} rows instead of {expected.num_rows}"]
    mine, theirs = _rows(got), _rows(expected)
    if not ordered:
        mine, theirs = sorted(mine, key=repr), sorted(theirs, key=repr)
    return [f"{a} instead of {b}" for a, b in zip(mine, theirs, strict=True) if not _same(a, b)]


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    days = [i for i, f in enumerate(table.schema) if pa.types.is_date(f.type)]  # may lie beyond what Python can hold
    for i in days:
        table = table.set_column(i, table.schema.names[i], table.column(i).cast(pa.int32()))
    return [tuple(_plain(v) for v in row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]


def _plain(v: Any) -> Any:
    """One text for equal values, so that sorting by it agrees: floats to nine digits, one zero, one NaN."""
    if isinstance(v, float):
        return math.nan if math.isnan(v) else v if math.isinf(v) else float(f"{v:.9g}") + 0.0
    return v


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-8)
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a == b and a.as_tuple().exponent == b.as_tuple().exponent
    return type(a) is type(b) and bool(a == b)
