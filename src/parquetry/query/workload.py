"""The workload: logged and imported queries, each reduced to what it demands of one table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot.tokenizer_core import TokenType

from parquetry.catalog import Catalog
from parquetry.errors import ParquetryError, QueryError
from parquetry.model.predicate import Anything, Nothing
from parquetry.model.schema import TableSchema
from parquetry.model.workload import LoggedQuery
from parquetry.query.bind import TableRef, bind
from parquetry.workload.boxes import to_boxes

IMPORTED = "imported"


@dataclass(frozen=True)
class Rejected:
    line: int
    sql: str
    why: str


@dataclass(frozen=True)
class Imported:
    """What became of a file of queries; the rejected ones are named, the others are in the log."""

    queries: int
    rejected: tuple[Rejected, ...]


def shape_of(ref: TableRef) -> dict[str, Any]:
    """What the log keeps of one reference: columns, filters as text, and the filter's boxes (PW-07)."""
    boxes = to_boxes(ref.predicate)
    return {
        "table": ref.table,
        "columns": list(ref.columns),
        "filters": list(ref.filters),
        "boxes": [b.to_json() for b in boxes.boxes],
        "opaque": list(boxes.opaque),
    }


def import_queries(catalog: Catalog, tables: Mapping[str, TableSchema], path: Path) -> Imported:
    """Adds the queries of a file (``;``-separated, or one per line) to the log; broken ones are reported."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise QueryError(f"cannot read the workload file '{path}': {e}; check the path") from e
    rows: list[dict[str, Any]] = []
    rejected: list[Rejected] = []
    started = time.time()
    for line, sql in split_statements(text):
        try:
            bound = bind(sql, tables)
        except ParquetryError as e:
            rejected.append(Rejected(line, sql[:80], str(e)))
            continue
        rows.append(
            {
                "at": started + len(rows) * 1e-6,  # keeps the order of the file
                "sql": sql,
                "tables": sorted({r.table for r in bound.refs}),
                "executor": IMPORTED,
                "qt": 0,
                "elapsed_ms": 0.0,
                "plan_ms": 0.0,
                "rows_out": 0,
                "bytes_read": 0,
                "stats": {},
                "shape": [shape_of(r) for r in bound.refs],
            }
        )
    if rows:
        catalog.log_queries(rows)
    return Imported(len(rows), tuple(rejected))


def split_statements(text: str) -> Iterable[tuple[int, str]]:
    """(line number, statement) of a file of SQL: separated by semicolons if there are any, else one per line."""
    if ";" not in text:
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not line.strip().startswith("--"):
                yield number, line.strip()
        return
    try:
        ends = [t.start for t in sqlglot.tokenize(text, dialect="spark") if t.token_type == TokenType.SEMICOLON]
    except sqlglot.errors.TokenError:
        ends = [i for i, c in enumerate(text) if c == ";"]  # an open quote somewhere: the plain rule finds its line
    start = 0
    for end in [*ends, len(text)]:
        statement = text[start:end]
        lead = len(statement) - len(statement.lstrip())
        if statement.strip() and not all(
            line.strip().startswith("--") or not line.strip() for line in statement.splitlines()
        ):
            yield text.count("\n", 0, start + lead) + 1, statement.strip()
        start = end + 1


def workload_of(sqls: Iterable[str], table: str, tables: Mapping[str, TableSchema]) -> list[LoggedQuery]:
    """The conditions that these queries, oldest first, put on ``table``; those without one are left out."""
    found = []
    for sql in sqls:
        try:
            refs = bind(sql, tables).refs
        except ParquetryError:
            continue  # logged under an older schema
        found += [
            LoggedQuery(r.predicate)
            for r in refs
            if r.table == table and not isinstance(r.predicate, Anything | Nothing)
        ]
    return found


def logged_workload(catalog: Catalog, table: str, tables: Mapping[str, TableSchema], limit: int) -> list[LoggedQuery]:
    """The newest ``limit`` queries of the log that filter ``table``, oldest first."""
    rows = catalog.queries(limit, table)
    return workload_of((r["sql"] for r in reversed(rows)), table, tables)
