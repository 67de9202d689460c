"""A query's answer in whatever form the caller wants, with what it took to get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from parquetry.errors import QueryError, SchemaError
from parquetry.model.types import type_name
from parquetry.query.planning.snapshots import Snapshot

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame

    from parquetry.query.planning.plan import Plan


T = TypeVar("T")


class Result:
    """Runs at the first use of its rows, once; the snapshot was fixed when it was made."""

    def __init__(
        self, plan: Plan, run: Callable[[Plan], tuple[pa.Table, dict[str, Any]]], frame: Callable[[Plan], DataFrame]
    ) -> None:
        self.plan = plan
        self._run, self._frame = run, frame
        self._table: pa.Table | None = None
        self._stats: dict[str, Any] | None = None

    def arrow(self) -> pa.Table:
        if self._table is None:
            self._table, self._stats = self._run(self.plan)
            # The rows are here, and no file is needed any more: vacuum need not wait for whoever keeps the result.
            self.plan = replace(self.plan, snapshot=Snapshot(self.plan.snapshot.state))
        return self._table

    def pandas(self) -> pandas.DataFrame:
        return self.arrow().to_pandas()

    def rows(self) -> list[dict[str, Any]]:
        return in_python(self.arrow().to_pylist)

    def spark(self) -> DataFrame:
        """The query as a lazy Spark frame over the same snapshot, whichever executor was chosen."""
        return self._frame(self.plan)

    @property
    def types(self) -> list[str]:
        """Spark's names of the columns' types."""
        return [_type_name(t) for t in self.arrow().schema.types]

    @property
    def stats(self) -> dict[str, Any]:
        """What was read, skipped and how long it took."""
        self.arrow()
        assert self._stats is not None
        return self._stats

    def show(self, limit: int = 20) -> None:
        """Prints the first rows as a table."""
        from rich.console import Console
        from rich.table import Table

        table = self.arrow()
        printed = Table(*table.column_names)
        for row in in_python(table.slice(0, limit).to_pylist):
            printed.add_row(*["null" if v is None else str(v) for v in row.values()])
        Console().print(printed)
        if table.num_rows > limit:
            Console().print(f"… {table.num_rows - limit:,} more rows")


def _type_name(arrow: pa.DataType) -> str:
    try:
        return type_name(arrow)
    except SchemaError:  # an interval or a null literal: no column of a table can have it, but a result can
        return str(arrow)


def in_python(convert: Callable[[], T]) -> T:
    """What ``convert`` makes of Arrow data, whose dates reach further than Python's."""
    try:
        return convert()
    except (OverflowError, ValueError) as e:
        raise QueryError(f"Python cannot hold a value of the answer ({e}); take it by arrow(), or cast it") from e


class Told(Result):
    """The answer to a statement that changes something: one row that says what was done."""

    def __init__(self, done: str, qt: int) -> None:
        self._table = pa.table({"result": [done]})
        self._stats = {
            "executor": "local", "qt": qt, "view": None, "replica": None, "deltas": 0, "blocks_total": 0,
            "blocks_read": 0, "skipped_by": {}, "files_read": 0, "rows_scanned": 0, "rows_out": 1, "bytes_read": 0,
            "splits": 0, "elapsed_ms": 0.0, "plan_ms": 0.0,
        }  # fmt: skip

    def spark(self) -> DataFrame:
        raise QueryError("a statement has no frame; run a query")
