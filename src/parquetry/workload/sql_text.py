"""SQL text to a syntax tree, in Spark's dialect, with one-line errors that point at the offending token."""

from __future__ import annotations

import logging

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from parquetry.errors import QueryError

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings would go to the user's terminal


class SparkText(Spark):
    """Spark's dialect as of Spark 4, where a doubled quote inside a string is one quote."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["\\", "'"]


def parse_query(sql: str) -> exp.Query:
    """The one query in ``sql``; raises QueryError for text that is no query, or more than one."""
    try:
        statements = [s for s in sqlglot.parse(sql, dialect=SparkText) if s is not None]
    except sqlglot.errors.ParseError as e:
        raise QueryError(_point_at(e)) from None
    except sqlglot.errors.TokenError:
        raise QueryError("cannot read the SQL text: a string, quoted name or comment is not closed") from None
    if not statements:
        raise QueryError("the SQL text is empty; write a SELECT")
    if len(statements) > 1:
        raise QueryError("one query at a time: the text has several statements separated by ';'")
    query = statements[0]
    while isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query) and query.this is query.unnest():
        if any(v for k, v in query.args.items() if k != "this"):
            break
        query = query.this
    if not isinstance(query, exp.Query) or query.args.get("into"):
        word = sql.split(maxsplit=1)[0].upper()
        raise QueryError(f"only queries can be run here: the text starts with {word}; write SELECT or WITH")
    return query


def _point_at(e: sqlglot.errors.ParseError) -> str:
    detail = e.errors[0] if e.errors else {}
    token = detail.get("highlight") or ""
    where = f"line {detail.get('line')}, column {detail.get('col')}" if detail else "unknown position"
    return f"cannot parse the SQL at {where}, near '{token}'" if token else f"cannot parse the SQL at {where}"
