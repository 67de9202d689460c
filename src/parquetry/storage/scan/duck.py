"""A scan in DuckDB's words: local executor, held rows and scan workers differ in the relation that a task becomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parquetry.model.distinct import SKETCH_TYPE
from parquetry.model.visible import visible_columns, visible_rows
from parquetry.storage.merge import ORDER, merge_sql, quote
from parquetry.storage.scan.scan import ReadTask, RowRange, TableScan
from parquetry.storage.store import Store

ROW_NUMBER = "file_row_number"
"""What DuckDB calls the number of a row in its file, by which it skips row groups as well."""

_TYPES = {
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
    "string": "VARCHAR",
    "binary": "BLOB",
    SKETCH_TYPE: "SMALLINT[]",
}


def whole_files(store: Store, paths: Iterable[str], options: str = "") -> str:
    """A relation with all rows of these files."""
    listed = ", ".join("'" + store.url(path).replace("'", "''") + "'" for path in paths)
    # A folder above the warehouse may be called k=5: no reason to take 5 for the column k.
    return f"read_parquet([{listed}], hive_partitioning = false{options})"


def numbered_rows(store: Store, path: str, ranges: Sequence[RowRange]) -> str:
    """A relation with these rows of a file."""
    within = " OR ".join(f"{ROW_NUMBER} BETWEEN {a} AND {b - 1}" for a, b in ranges)
    return f"{whole_files(store, [path], f', {ROW_NUMBER} = true')} WHERE {within}"


def stored_sql(scan: TableScan, relations: Iterable[tuple[ReadTask, str]], *, ordered: bool) -> str:
    """The stored rows of relations that tasks became; ``ordered``: with their delta's place in time.

    A column that a delta is too old to have is null there.
    """
    filled: dict[int, str] = {}
    selects = []
    for task, relation in relations:
        if task.schema_id not in filled:
            filled[task.schema_id] = _filled(scan, scan.table.schemas[task.schema_id].names)
        place = f", {task.place} AS {ORDER}" if ordered else ""
        selects.append(f"SELECT {filled[task.schema_id]}{place} FROM {relation}")
    if not selects:
        selects = [f"SELECT {_filled(scan, ())}{f', 0 AS {ORDER}' if ordered else ''} WHERE false"]
    return " UNION ALL ".join(selects)


def _filled(scan: TableScan, had: Sequence[str]) -> str:
    schema = scan.table.schema
    types = {n: schema.column(n).type for n in scan.columns if n not in had}
    return ", ".join(
        f"CAST(NULL AS {_TYPES.get(types[n], types[n])}) AS {quote(n)}" if n in types else quote(n)
        for n in scan.columns
    )


def table_sql(scan: TableScan, stored: str, *, merged: bool = False, key_filter: str | None = None) -> str:
    """The rows as a query sees them, from the text of stored ones; ``merged``: these have one row per key.

    Of a view, groups without rows are left out and averages divided.
    """
    rows = stored
    if scan.merge and not merged:
        filtered = f"(SELECT * FROM ({rows}) WHERE {key_filter})" if key_filter else f"({rows})"
        rows = merge_sql(scan.table.schema, filtered, columns=scan.columns)
    if scan.table.view is None:
        return rows
    spec = scan.table.view.spec
    columns = visible_columns(spec, quote, duck=True, wanted=scan.named) if scan.visible else []
    there = visible_rows(spec, quote)
    return f"SELECT {', '.join(columns) or '*'} FROM ({rows})" + (f" WHERE {there}" if there else "")
