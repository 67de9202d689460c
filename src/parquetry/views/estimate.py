"""How many groups a set of expressions has, from a bounded sample of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from parquetry.layouts.write_rows import few_bytes
from parquetry.model.state import TableState
from parquetry.storage.scan.arrow import scanned_rows
from parquetry.storage.scan.scan import plan_scan
from parquetry.storage.scan.spark import stored_rows
from parquetry.storage.spark_text import quote
from parquetry.storage.store import Store
from parquetry.views.here import Compile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SAMPLE_ROWS = 200_000


def sampled_groups(
    spark: Callable[[], SparkSession], store: Store, table: TableState, expressions: Sequence[str], compile_: Compile
) -> pa.Table:
    """The expressions' values in a sample of at most about ``SAMPLE_ROWS`` stored rows, in the columns e0, e1, …

    Of a small table they are computed in the process, where the compiler of local queries knows how.
    """
    if table.deltas and few_bytes(table, table.deltas):
        found = _sampled_here(store, table, expressions, compile_)
        if found is not None:
            return found
    frame = stored_rows(spark(), store, plan_scan(table, table.deltas))
    if table.rows > SAMPLE_ROWS:
        frame = frame.sample(fraction=SAMPLE_ROWS / table.rows, seed=0)
    return frame.selectExpr(*[f"{e} AS e{i}" for i, e in enumerate(expressions)]).toArrow()


def _sampled_here(store: Store, table: TableState, expressions: Sequence[str], compile_: Compile) -> pa.Table | None:
    import duckdb

    listed = ", ".join(f"{e} AS e{i}" for i, e in enumerate(expressions))
    compiled = compile_(f"SELECT {listed} FROM {quote(table.name)}", {table.name: table.schema})
    if compiled is None:
        return None
    rows = scanned_rows(store, plan_scan(table, table.deltas, visible=False), table.deltas)
    if rows.num_rows > SAMPLE_ROWS:
        rows = rows.filter(np.random.default_rng(0).random(rows.num_rows) < SAMPLE_ROWS / rows.num_rows)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("stored", rows)
        try:
            found = connection.sql(compiled.over({table.name: "stored"})).to_arrow_table()
        except duckdb.Error:
            return None
    return found.rename_columns([f"e{i}" for i in range(len(expressions))])


def group_estimator(sample: pa.Table, expressions: Sequence[str], rows: int) -> Callable[[frozenset[str]], float]:
    """A function from grouping expressions to the estimated number of groups in a table of ``rows`` rows.

    Groups that the sample has once stand for many that it has not. Their number grows with the square root of the
    table's size over the sample's where they are few, and with all of it where every sampled row is a group of its own.
    """
    import duckdb

    place = {e: f"e{i}" for i, e in enumerate(expressions)}
    sampled = max(1, sample.num_rows)

    def estimate(groups: frozenset[str]) -> float:
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.register("sample", sample)
            listed = ", ".join(place[g] for g in sorted(groups))
            counted = f"SELECT count(*) AS n FROM sample GROUP BY {listed}"
            found = connection.execute(f"SELECT count(*), count(*) FILTER (WHERE n = 1) FROM ({counted})").fetchone()
        distinct, once = found if found is not None else (0, 0)
        return float(distinct - once + once * max(1.0, rows / sampled) ** (0.5 + 0.5 * once / sampled))

    return estimate
