"""The words of a SQL text as Spark's own lexer cuts them, and no others.

Whoever reads a text in another way, with another parser, has to agree with this cut; what Spark's lexer does not know
is refused here, wherever the query would run.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from parquetry.errors import QueryError

NAME, QUOTED_NAME, STRING, NUMBER, SIGN = "name", "quoted name", "string", "number", "sign"

_LETTER = r"[^\W\d_]"
_LEXEME = re.compile(
    rf"""
    (?P<space> [ \t\r\n\f\v\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+ | --(?:\\\n|[^\r\n])*)
  | (?P<comment> /\*(?!\+))
  | (?P<string> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
  | (?P<quoted> `(?:[^`]|``)*`)
  | (?P<address> {_LETTER}+://[\w/.?=&\#%-]+)
  | (?P<number>
        (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[fFdD]|[bB][dD])?(?!\w)
      | [0-9]+[eE][+-]?[0-9]+(?:[fFdD]|[bB][dD])?(?!\w)
      | [0-9]+[eE][+-][0-9]+
      | [0-9]+(?:[lLsSyYfFdD]|[bB][dD])?(?!\w) )
  | (?P<name> \w+)
  | (?P<sign> /\*\+ | \*/ | <=> | >>> | << | >> | <= | >= | <> | != | !> | !< | == | \|\| | \|> | :: | -> | =>
      | [-+*/%~&|^:?!,.;()\[\]<>=])
    """,
    re.X | re.S,
)
_COMMENT_EDGE = re.compile(r"/\*(?!\+)|\*/")
_MOST_SHOWN = 20  # characters of what is not understood
_BASIC_PLANE = 0xFFFF


@dataclass(frozen=True)
class Lexeme:
    """One word: its kind, its text as written, and where it is."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """What a name says, without its quotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == QUOTED_NAME else self.text


def lexemes(text: str) -> list[Lexeme]:
    """The words of ``text``; raises QueryError at what is none of Spark's.

    >>> [w.text for w in lexemes("SELECT `a b`, 'it''s' -- why\\nFROM t")]
    ['SELECT', '`a b`', ',', "'it''s'", 'FROM', 't']
    """
    return list(_cut(text))


def semicolons(text: str) -> list[int]:
    """Where statements end in a file of SQL, be some of them broken: only the words count, not what they say.

    >>> semicolons("SELECT ';'; SELECT {}; SELECT 'open; SELECT 1")
    [10, 21, 35]
    """
    found, at = [], 0
    while at < len(text):
        word = _LEXEME.match(text, at)
        if word is not None and word[0] == ";":
            found.append(at)
        end = at + 1 if word is None else word.end()
        if word is not None and word.lastgroup == "comment":
            with suppress(QueryError):
                end = _end_of_comment(text, end)
        at = end
    return found


def _cut(text: str) -> Iterator[Lexeme]:
    at = 0
    while at < len(text):
        found = _LEXEME.match(text, at)
        if found is None:
            raise QueryError(_unknown(text, at))
        kind, start, at = found.lastgroup, at, found.end()
        match kind:
            case "space":
                continue
            case "comment":
                at = _end_of_comment(text, at)
                continue
            case "name" | "address":
                if not found[0].isascii() and not all(map(_in_a_name, found[0])):
                    raise QueryError(_unknown(text, start))
                yield Lexeme(NAME, found[0], start, at)
            case "quoted":
                yield Lexeme(QUOTED_NAME, found[0], start, at)
            case "string":
                yield Lexeme(STRING, found[0], start, at)
            case "number":
                yield Lexeme(NUMBER, found[0], start, at)
            case _:
                yield Lexeme(SIGN, found[0], start, at)


def _in_a_name(c: str) -> bool:
    return c.isascii() or (unicodedata.category(c).startswith("L") and ord(c) <= _BASIC_PLANE)


def _end_of_comment(text: str, at: int) -> int:
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise QueryError("cannot read the SQL text: a string, quoted name or comment is not closed")


def _unknown(text: str, at: int) -> str:
    if text[at] in "'\"`":
        return "cannot read the SQL text: a string, quoted name or comment is not closed"
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    near = text[at : at + _MOST_SHOWN].split("\n")[0]
    return f"cannot read the SQL at line {line}, column {column}, near '{near}': that is no word of Spark SQL"
