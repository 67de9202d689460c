"""The workload: logged and imported queries, each reduced to what it demands of one table."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parquetry.catalog import Catalog, QueryRow
from parquetry.errors import ParquetryError, QueryError
from parquetry.layouts.pricing.price import Asked
from parquetry.model.logged_query import LoggedQuery
from parquetry.model.predicate import (
    ANYTHING,
    Anything,
    Predicate,
    predicate_from_json,
    predicate_to_json,
)
from parquetry.model.schema import TableSchema
from parquetry.model.through import about
from parquetry.query.planning.bind import BoundQuery, TableRef, bind
from parquetry.query.sql.conditions import NOT_USED
from parquetry.workload.lexemes import semicolons
from parquetry.workload.simplify import both

IMPORTED = "imported"
_MOST_LOGGED = 1 << 14  # characters of what joins said of one reference
_NOT_RUN = {"executor": IMPORTED, "qt": 0, "elapsed_ms": 0.0, "plan_ms": 0.0, "rows_out": 0, "bytes_read": 0}


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


def shape_of(ref: TableRef, induced: Predicate = ANYTHING) -> dict[str, Any]:
    """What the log keeps of one reference: columns, filters as text, which of them nothing can be skipped by, and what
    its joins said of it then, unless that is long.

    The text is bound again when a layout is learned (PW-07), so no more is kept.
    """
    unused = [f.removeprefix(NOT_USED) for f in ref.filters if f.startswith(NOT_USED)]
    shape = {"table": ref.table, "columns": list(ref.columns), "filters": list(ref.filters), "opaque": unused}
    if isinstance(induced, Anything):
        return shape
    told = predicate_to_json(induced)
    return {**shape, "induced": told} if len(json.dumps(told)) <= _MOST_LOGGED else shape


def import_queries(catalog: Catalog, path: str | os.PathLike[str]) -> Imported:
    """Adds the queries of a file (``;``-separated, or one per line) to the log; broken ones are reported."""
    text, tables = read_workload(path), catalog.state().readable
    rows: list[QueryRow] = []
    rejected: list[Rejected] = []
    started = time.time()
    for line, sql in split_statements(text):
        try:
            bound = bind(sql, tables)
        except ParquetryError as e:
            rejected.append(Rejected(line, sql[:80], str(e)))
            continue
        at = started + len(rows) * 1e-6  # keeps the order of the file
        reads = sorted({r.table for r in bound.refs})
        rows.append(QueryRow.of(at, sql, reads, [shape_of(r) for r in bound.refs], _NOT_RUN))
    if rows:
        catalog.log_queries(rows)
    return Imported(len(rows), tuple(rejected))


def read_workload(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise QueryError(f"cannot read the workload file '{path}': {e}; check the path") from e


def split_statements(text: str) -> Iterable[tuple[int, str]]:
    """(line number, statement) of a file of SQL: separated by semicolons if there are any, else one per line."""
    if ";" not in text:
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not line.strip().startswith("--"):
                yield number, line.strip()
        return
    ends = semicolons(text)
    start = 0
    for end in [*ends, len(text)]:
        statement = text[start:end]
        lead = len(statement) - len(statement.lstrip())
        if statement.strip() and not all(
            line.strip().startswith("--") or not line.strip() for line in statement.splitlines()
        ):
            yield text.count("\n", 0, start + lead) + 1, statement.strip()
        start = end + 1


def logged_workload(
    catalog: Catalog, table: str, limit: int, file: str | os.PathLike[str] | None = None
) -> list[LoggedQuery]:
    """The newest ``limit`` queries of the log, or those of a file, that filter ``table``, oldest first."""
    return [a.query for a in asked_queries(catalog, table, limit, file) if a.filters]


@dataclass(frozen=True)
class Ran:
    """A logged query of one table alone, with what it really read."""

    asked: Asked
    executor: str
    bytes_read: int


def asked_of(sql: str, table: str, tables: Mapping[str, TableSchema], induced: Sequence[Predicate] = ()) -> list[Asked]:
    """What the query asks of ``table``, once for each mention; full scans and contradictions included.

    ``induced`` is what joins say of each of its references, if that is known.
    """
    return _asked_of(bind(sql, tables).refs, table, induced)


def _asked_of(refs: Sequence[TableRef], table: str, induced: Sequence[Predicate]) -> list[Asked]:
    known = induced if len(induced) == len(refs) else (ANYTHING,) * len(refs)
    return [
        Asked(LoggedQuery(both([r.predicate, i]), opaque=r.opaque), r.columns)
        for r, i in zip(refs, known, strict=True)
        if r.table == table
    ]


def induced_then(shape: Sequence[Mapping[str, Any]], tables: Mapping[str, TableSchema]) -> list[Predicate]:
    """What joins said of each reference of a logged query, as far as its table still has the columns."""
    found = []
    for ref in shape:
        told = predicate_from_json(ref["induced"]) if "induced" in ref else ANYTHING
        found.append(about(told, tables[ref["table"]].names if ref["table"] in tables else ()))
    return found


def asked_queries(catalog: Catalog, table: str, limit: int, file: str | os.PathLike[str] | None = None) -> list[Asked]:
    """What the newest ``limit`` logged queries, or those of a file, ask of ``table``, oldest first."""
    state = catalog.state()
    name = state.table(table).name
    if file is not None:
        return asked_in_file(file, name, state.readable)
    found: list[Asked] = []
    for row in reversed(catalog.queries(limit, name)):
        try:
            found += asked_of(row["sql"], name, state.readable, induced_then(row["shape"] or (), state.readable))
        except ParquetryError:
            continue  # logged under an older schema
    return found


def asked_in_file(path: str | os.PathLike[str], table: str, tables: Mapping[str, TableSchema]) -> list[Asked]:
    """What the queries of a file ask of ``table``, in the file's order; what cannot be bound is left out."""
    found: list[Asked] = []
    for _, sql in split_statements(read_workload(path)):
        try:
            found += asked_of(sql, table, tables)
        except ParquetryError:
            continue  # written for an older schema
    return found


def part_of_query(query: BoundQuery, table: str | None, induced: Sequence[Predicate]) -> tuple[str, Asked]:
    """The table that a query is about and what it asks of it; ``table`` decides where it reads several."""
    names = list(dict.fromkeys(r.table for r in query.refs))
    chosen = [n for n in names if table is None or n.lower() == table.lower()]
    if len(chosen) != 1:
        which = f"it reads {', '.join(names) or 'no table'}"
        raise QueryError(f"say which table of the query to price: {which}")
    asked = _asked_of(query.refs, chosen[0], induced)
    if len(asked) != 1:
        raise QueryError(f"the query mentions '{chosen[0]}' {len(asked)} times; price one part of it at a time")
    return chosen[0], asked[0]


def ran_since(catalog: Catalog, table: str, since: float, limit: int) -> list[Ran]:
    """The newest queries that ran after ``since`` and read ``table`` once and nothing else, oldest first."""
    tables = catalog.state().readable
    found = []
    for row in reversed(catalog.queries(limit, table)):
        if row["at"] <= since or row["executor"] == IMPORTED or len(row["tables"]) != 1:
            continue
        try:
            asked = asked_of(row["sql"], table, tables)
        except ParquetryError:
            continue
        if len(asked) == 1:
            found.append(Ran(asked[0], str(row["executor"]), int(row["bytes_read"] or 0)))
    return found
