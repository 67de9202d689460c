"""SQL text to what planning needs: the tables it reads, columns and filters of each, and a local plan or why not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from sqlglot import exp

from parquetry.model.predicate import Opaque, Predicate
from parquetry.model.schema import TableSchema
from parquetry.query.local_plan import LocalPlan, Refusal, plan_locally
from parquetry.query.references import find_references
from parquetry.query.scopes import Ref
from parquetry.workload.simplify import both
from parquetry.workload.sql_text import parse_query

T = TypeVar("T")


@dataclass(frozen=True)
class TableRef:
    """One mention of a base table. Rows that do not satisfy ``predicate`` cannot change the answer."""

    table: str
    alias: str
    columns: tuple[str, ...]
    predicate: Predicate
    filters: tuple[str, ...]  # each filter's text: used for skipping, or not and why
    opaque: tuple[Opaque, ...] = ()  # filters that the predicate says less than, for layouts with such features


@dataclass(frozen=True, eq=False)
class BoundQuery:
    """``written`` is the query's text, or what makes it: a text that only Spark reads need not be made for others."""

    written: str | Callable[[], str]
    refs: tuple[TableRef, ...]
    local: LocalPlan | Refusal
    tree: exp.Query | None = None  # of the text; whoever takes it apart has it alone
    _found: dict[Hashable, Any] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @cached_property
    def sql(self) -> str:
        return self.written if isinstance(self.written, str) else self.written()

    def once(self, what: Hashable, find: Callable[[], T]) -> T:
        """What ``find`` finds, found once: it must follow from the text and the schemas, whatever the data."""
        with self._lock:
            if what not in self._found:
                self._found[what] = find()
            found: T = self._found[what]
            return found


def bind(sql: str, tables: Mapping[str, TableSchema]) -> BoundQuery:
    """Parses and binds one query; raises QueryError, UnknownTable or UnknownColumn. Needs no JVM."""
    query = parse_query(sql)
    opaque = _opaque(sql)
    found = find_references(query, tables, opaque)
    refs = tuple(map(_table_ref, found))
    local: LocalPlan | Refusal
    if opaque:
        local = Refusal(opaque)
    elif len(found) != 1:
        local = Refusal("it reads no table" if not found else "it reads more than one table")
    else:
        local = plan_locally(query, found[0].table, found[0].schema, sql)
    return BoundQuery(sql, refs, local, query)


def table_refs(query: exp.Query, tables: Mapping[str, TableSchema]) -> tuple[TableRef, ...]:
    """What a query in our own words reads: no text has to be parsed."""
    return tuple(map(_table_ref, find_references(query, tables)))


def _table_ref(r: Ref) -> TableRef:
    return TableRef(
        r.table,
        r.alias,
        tuple(c for c in r.types if c in r.used),
        both(r.found),
        tuple(dict.fromkeys(r.notes)),
        tuple(dict.fromkeys(r.opaque)),
    )


def _opaque(sql: str) -> str:
    """Why the parsed constants may differ from Spark's reading of the same text; empty when they do not."""
    if "\\" in sql:
        return "the text has backslash escapes"
    return "the text uses pipe syntax" if "|>" in sql else ""
