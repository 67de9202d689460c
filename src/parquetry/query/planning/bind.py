"""SQL text to what planning needs: the tables it reads, columns and filters of each, and a local plan or why not."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from sqlglot import exp

from parquetry.errors import ParquetryError, UnknownTable
from parquetry.model.predicate import Anything, Opaque, Predicate
from parquetry.model.schema import TableSchema
from parquetry.query.compile.plain_select import LocalPlan, Refusal, plan_locally
from parquetry.query.compile.whole import WholeQuery, compile_query
from parquetry.query.sql.conditions import NOT_USED
from parquetry.query.sql.references import find_references
from parquetry.query.sql.scopes import Ref
from parquetry.workload.allowed import check_allowed
from parquetry.workload.lexemes import Lexeme
from parquetry.workload.simplify import both
from parquetry.workload.sql_text import TooDeep, parse_query, words_of
from parquetry.workload.understood import escapes, in_sparks_order, not_bound, not_understood

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


@dataclass(frozen=True)
class EqualColumns:
    """A row of reference ``target`` counts only if its column equals one of a row of reference ``source`` that counts.

    References by their numbers."""

    source: int
    source_column: str
    target: int
    target_column: str


@dataclass(frozen=True, eq=False)
class BoundQuery:
    """``written`` is the query's text, or what makes it: a text that only Spark reads need not be made for others."""

    written: str | Callable[[], str]
    refs: tuple[TableRef, ...]
    local: LocalPlan | WholeQuery | Refusal
    tree: exp.Query | None = None  # of the text; nobody changes it
    doubt: str = ""  # why the text was not taken apart, or its constants are not trusted; then nothing is skipped
    relations: Counter[str] | None = None  # how often the text names each relation, lowered; None: our own words
    equal: tuple[EqualColumns, ...] = ()
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


def bind(sql: str, tables: Mapping[str, TableSchema], trusted: bool = False) -> BoundQuery:
    """Parses and binds one query; raises QueryError, UnknownTable or UnknownColumn. Needs no JVM.

    A text that is not understood whole reads all of every table that it may name, and only Spark runs it. Who is not
    ``trusted`` may call Spark's pure functions only.
    """
    words = words_of(sql)
    if not trusted:
        check_allowed(words, {name.lower() for name in tables})
    doubt = not_understood(words)
    if doubt:
        return _whole(sql, words, tables, doubt)
    try:
        query = parse_query(sql, words)
        doubt = not_bound(query, sql, words)
        return _whole(sql, words, tables, doubt) if doubt else _bind(sql, query, words, tables)
    except (RecursionError, TooDeep):
        return _whole(sql, words, tables, "the text is nested too deeply")
    except UnknownTable:
        if trusted:  # who may read files and other catalogs, which Spark knows
            return _whole(sql, words, tables, "it names a relation that is no table of the warehouse")
        raise
    except ParquetryError:
        raise
    except Exception as e:  # what our reading stumbles over is not understood either
        return _whole(sql, words, tables, f"our reading of the text failed ({type(e).__name__}: {str(e)[:60]})")


def _bind(sql: str, query: exp.Query, words: Sequence[Lexeme], tables: Mapping[str, TableSchema]) -> BoundQuery:
    opaque = escapes(sql)
    found = find_references(query, tables, opaque)
    if not found.complete:
        return _whole(sql, words, tables, "the text names a relation in a place that is not read")
    refs = tuple(map(_table_ref, found.refs))
    local: LocalPlan | WholeQuery | Refusal
    if opaque:
        local = Refusal(opaque)
    elif not refs:
        local = Refusal("it reads no table")
    elif not in_sparks_order(words):
        local = Refusal("its words or clauses are not in Spark's order")
    else:
        local = _plan_locally(sql, query, found.refs, tables)
    number = {id(r): i for i, r in enumerate(found.refs)}
    equal = [
        EqualColumns(number[id(e.source.ref)], e.source.column, number[id(e.target.ref)], e.target.column)
        for e in ([] if opaque else found.equal)
    ]
    return BoundQuery(sql, refs, local, query, opaque, found.names, tuple(dict.fromkeys(equal)))


def _plan_locally(
    sql: str, query: exp.Query, refs: Sequence[Ref], tables: Mapping[str, TableSchema]
) -> LocalPlan | WholeQuery | Refusal:
    """As one SELECT over one table, of which more is known, or else as a whole."""
    if len(refs) == 1:
        local = plan_locally(query, refs[0].table, refs[0].schema, sql)
        if isinstance(local, LocalPlan):
            return local
    return compile_query(query, tables, sql)


def _whole(sql: str, words: Sequence[Lexeme], tables: Mapping[str, TableSchema], doubt: str) -> BoundQuery:
    """Every table that a word of the text may name, be it inside a string, with all of its columns and rows."""
    named = {part.lower() for w in words for part in (w.name, *re.findall(r"\w+", w.text))}
    refs = tuple(
        TableRef(name, name, tuple(schema.names), Anything(doubt), (f"{NOT_USED}{doubt}",))
        for name, schema in tables.items()
        if name.lower() in named
    )
    return BoundQuery(sql, refs, Refusal(doubt), None, doubt, Counter())


def table_refs(query: exp.Query, tables: Mapping[str, TableSchema]) -> tuple[TableRef, ...]:
    """What a query in our own words reads: no text has to be parsed."""
    return tuple(map(_table_ref, find_references(query, tables).refs))


def _table_ref(r: Ref) -> TableRef:
    return TableRef(
        r.table,
        r.alias,
        tuple(c for c in r.types if c in r.used),
        both(r.found),
        tuple(dict.fromkeys(r.notes)),
        tuple(dict.fromkeys(r.opaque)),
    )
