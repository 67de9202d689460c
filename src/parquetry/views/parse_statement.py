"""The SQL statements about views and profiles.

``CREATE MATERIALIZED VIEW v [ORDER BY …] AS SELECT …``, ``DROP MATERIALIZED VIEW v``,
``ALTER DATABASE SET PROFILE freshness | speed | cost`` and ``ALTER DATABASE SET (target_lag_s = 60, slots = 2)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from parquetry.errors import QueryError
from parquetry.workload.sql_text import SparkText

_CREATE = re.compile(r"\s*create\s+materialized\s+view\b", re.I)
_DROP = re.compile(r"\s*drop\s+(?:materialized\s+)?view\b", re.I)
_ALTER = re.compile(r"\s*alter\s+database\s+set\b", re.I)
_DROPPED = re.compile(r"(\s+if\s+exists)?\s+(`?)(\w+)\2\s*;?\s*", re.I)


@dataclass(frozen=True)
class CreateView:
    name: str
    sql: str
    order: tuple[str, ...]
    if_not_exists: bool


@dataclass(frozen=True)
class DropView:
    name: str
    if_exists: bool


@dataclass(frozen=True)
class SetProfile:
    name: str | None
    targets: Mapping[str, float]


Statement = CreateView | DropView | SetProfile


def parse_statement(text: str) -> Statement | None:
    """The statement about a view or the profile in ``text``; None when it is something else."""
    if start := _ALTER.match(text):
        return _profile(text[start.end() :].strip().rstrip(";").strip())
    if _CREATE.match(text):
        return _create(text)
    if start := _DROP.match(text):
        dropped = _DROPPED.fullmatch(text, start.end())
        if dropped is None:
            raise QueryError("cannot read the statement; write DROP MATERIALIZED VIEW [IF EXISTS] name")
        return DropView(dropped[3], dropped[1] is not None)
    return None


def _profile(rest: str) -> SetProfile:
    named = re.fullmatch(r"profile\s+'?(\w+)'?\s*(\(.*\))?", rest, re.I | re.S)
    listed = named[2] if named else rest
    targets: dict[str, float] = {}
    if listed:
        for part in listed.strip("()").split(","):
            one = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+(?:\.\d+)?)\s*", part)
            if one is None:
                raise QueryError("write ALTER DATABASE SET PROFILE name, or SET (target_lag_s = 60, slots = 2)")
            targets[one[1].lower()] = float(one[2]) if one[1].lower() == "target_lag_s" else int(float(one[2]))
    return SetProfile(named[1].lower() if named else None, targets)


def _create(text: str) -> CreateView:
    created, sql = _parsed(text)
    if not isinstance(created, exp.Create) or created.args.get("expression") is None or not sql:
        raise QueryError("cannot read the statement; write CREATE MATERIALIZED VIEW name [ORDER BY a, b] AS SELECT …")
    if created.args.get("replace") or created.this.args.get("db"):
        raise QueryError("a view has a plain name and is not replaced; drop the old one first")
    properties = created.args.get("properties")
    order = properties.find(exp.Order) if properties is not None else None
    columns: list[exp.Expr] = []
    for o in order.expressions if order is not None else []:
        if isinstance(o, exp.Ordered) and o.args.get("desc"):
            raise QueryError("a view is stored in ascending order; leave out DESC")
        inner = o.this if isinstance(o, exp.Ordered) else o
        columns += inner.expressions if isinstance(inner, exp.Tuple) else [inner.unnest()]
    if not all(isinstance(c, exp.Column) for c in columns):
        raise QueryError("ORDER BY of a view names its columns")
    names = tuple(c.name for c in columns)
    return CreateView(created.this.name, sql, names, bool(created.args.get("exists")))


def _parsed(text: str) -> tuple[exp.Expr, str]:
    """The statement up to its first AS, and the query behind that as the user wrote it, which is read as all others."""
    try:
        tokens = sqlglot.tokenize(text, dialect=SparkText)
        end = next((t.end + 1 for t in tokens if t.token_type == TokenType.ALIAS), len(text))
        found = sqlglot.parse(f"{text[:end]} SELECT 1", dialect=SparkText)
    except Exception as e:  # the parser's own mistakes as well
        why = (str(e).splitlines() or [type(e).__name__])[0][:200]
        raise QueryError(f"cannot parse the statement: {why}") from None
    if len(found) != 1 or found[0] is None:
        raise QueryError("one statement at a time")
    return found[0], text[end:].strip().rstrip(";").strip()
