"""SQL text to a syntax tree, in Spark's dialect, with one-line errors that point at the offending token."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from parquetry.errors import QueryError
from parquetry.workload.lexemes import NAME, SIGN, Lexeme, lexemes

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings would go to the user's terminal

_LONG = 32  # terms of a chain that are left as they are
_FIRST = ("select", "with", "from", "table", "values", "(")


class SparkText(Spark):
    """Spark's dialect as of Spark 4, where a doubled quote inside a string is one quote."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["\\", "'"]


class TooDeep(QueryError):
    """A text that the parser cannot take apart because of its depth; Spark may well run it."""

    def __init__(self) -> None:
        super().__init__("the SQL text is nested too deeply; use fewer parentheses")


def words_of(sql: str) -> list[Lexeme]:
    """The words of a text that may hold one query; raises QueryError for anything else."""
    words = lexemes(sql)
    while words and words[-1].text == ";":
        words.pop()
    if not words:
        raise QueryError("the SQL text is empty; write a SELECT")
    if any(w.text == ";" for w in words):
        raise QueryError("one query at a time: the text has several statements separated by ';'")
    if words[0].text.lower() not in _FIRST:
        raise QueryError(_no_query(words))
    return words


def parse_query(sql: str, words: Sequence[Lexeme] | None = None) -> exp.Query:
    """The one query in ``sql``; raises QueryError for text that is no query, or more than one.

    ``words`` are those of the text where they are known.
    """
    words = words_of(sql) if words is None else words
    try:
        statements = [s for s in sqlglot.parse(sql, dialect=SparkText) if s is not None]
    except sqlglot.errors.ParseError as e:
        raise QueryError(_point_at(e)) from None
    except sqlglot.errors.TokenError:
        raise QueryError("cannot read the SQL text: a string, quoted name or comment is not closed") from None
    except RecursionError:
        raise TooDeep from None
    except Exception as e:  # the parser's own mistakes: it meets what its authors did not think of
        raise QueryError(f"cannot parse the SQL text ({type(e).__name__}: {str(e)[:80]})") from e
    if len(statements) != 1:
        raise QueryError("one query at a time: the text has several statements separated by ';'")
    query = statements[0]
    while isinstance(query, exp.Subquery) and isinstance(query.this, exp.Query) and query.this is query.unnest():
        if any(v for k, v in query.args.items() if k != "this"):
            break
        query = query.this
    if not isinstance(query, exp.Query) or query.args.get("into"):
        raise QueryError(_no_query(words))
    return _balanced(query)


def read_otherwise(sql: str, words: Sequence[Lexeme]) -> bool:
    """Whether our parser cuts the text into other words than Spark does, so that its tree may say something else."""
    starts, ends = {w.start for w in words}, {w.end for w in words}
    points = {w.start for i, w in enumerate(words) if _is_fraction(words, i)}
    covered = 0
    at = 0
    for token in sqlglot.tokenize(sql, dialect=SparkText):
        if token.token_type == sqlglot.TokenType.SEMICOLON:
            continue
        if token.token_type == sqlglot.TokenType.HEX_STRING and sql[token.start] == "0":  # 0x1F is a name of Spark's
            return True
        if token.start in points:  # our parser puts the point and the number together again
            continue
        if token.start not in starts and token.start - 1 not in points or token.end + 1 not in ends:
            return True
        while at < len(words) and words[at].end <= token.end + 1:
            covered += words[at].start >= token.start or words[at].start in points
            at += 1
    return covered != len(words)


def _is_fraction(words: Sequence[Lexeme], at: int) -> bool:
    """Whether a number like ``.5`` stands where our parser takes a value, not the part of a name."""
    if not (words[at].text.startswith(".") and words[at].text[1:].isdigit() and at):
        return False
    before = words[at - 1]
    return before.text.lower() == "select" or before.kind == SIGN and before.text not in (")", "]", ".")


def _balanced(query: exp.Query) -> exp.Query:
    """The same query with long chains of AND or OR as trees of little depth: whoever walks them calls itself."""
    for node in list(query.find_all(exp.And, exp.Or)):
        if type(node.parent) is type(node):
            continue
        terms = list(node.flatten(unnest=False))
        if len(terms) > _LONG:
            node.replace(_tree(type(node), [t.copy() for t in terms]))
    return query


def _tree(kind: type[exp.Expr], terms: list[exp.Expr]) -> exp.Expr:
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return kind(this=_tree(kind, terms[:half]), expression=_tree(kind, terms[half:]))


def _no_query(words: Sequence[Lexeme]) -> str:
    first = words[0].text.upper() if words[0].kind == NAME else words[0].text
    return f"only queries can be run here: the text starts with {first}; write SELECT or WITH"


def _point_at(e: sqlglot.errors.ParseError) -> str:
    detail = e.errors[0] if e.errors else {}
    token = " ".join((detail.get("highlight") or "").split())[:40]
    where = f"line {detail.get('line')}, column {detail.get('col')}" if detail else "unknown position"
    return f"cannot parse the SQL at {where}, near '{token}'" if token else f"cannot parse the SQL at {where}"
