"""Texts that are nearly right: good ones with a few random changes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s+|'(?:[^']|'')*'|`[^`]*`|\"[^\"]*\"|\w+(?:\.\d+)?|<=>|\|>|\|\||[<>!=]=|<>|.", re.DOTALL)
_NUMBERS = (
    "0 1 -1 2 7 1.5 1e309 9223372036854775808 -9223372036854775808 99999999999999999999999999999999999999 0x1F 1L 1Y"
)
_STRINGS = "'' 'x${y}' '${env:HOME}' 'a\\\\b' '%' '\\'' '\\u00e9' '2024-02-30' 'NaN' r'a\\b'"
_OPERATORS = "= <> < <= > >= <=> == != + - * / % || AND OR IS IN LIKE"
_WORDS = (
    "TABLE VALUES LATERAL PIVOT NOT NULL DISTINCT ALL SELECT FROM WHERE WITH GROUP ORDER LIMIT UNION EXISTS CASE END "
    "CUBE ROLLUP OVER INTERVAL DATE CAST USING NATURAL"
)
_ODD = [
    "\u0000",
    "\ud800",
    "\u00a0",
    "é",
    "😀",
    *[";", "--", "/*", "*/", "{{", "$", "?", ":p", "@", "\\", '"', "`", "'", "("],
    "{# c #}",
]


def mutated(rng: random.Random, sql: str) -> str:
    """``sql`` with one to three changes, each anywhere."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        sql = rng.choice(_CHANGES)(rng, sql)
    return sql


def _tokens(sql: str) -> list[str]:
    return _TOKEN.findall(sql)


def _at(kind: Callable[[str], bool], make: Callable[[random.Random, list[str], int], str]) -> Callable[..., str]:
    """A change of one token of some kind."""

    def change(rng: random.Random, sql: str) -> str:
        tokens = _tokens(sql)
        places = [i for i, token in enumerate(tokens) if not token.isspace() and kind(token)]
        if not places:
            return sql
        i = rng.choice(places)
        tokens[i] = make(rng, tokens, i)
        return "".join(tokens)

    return change


def _is_word(token: str) -> bool:
    return token[0].isalpha()


def _is_operator(token: str) -> bool:
    return token.upper() in _OPERATORS.split()


def _other(rng: random.Random, tokens: list[str], _: int) -> str:
    return rng.choice([t for t in tokens if _is_word(t)])


def _swap(rng: random.Random, sql: str) -> str:
    tokens = _tokens(sql)
    if len(tokens) > 3:
        i, j = rng.sample(range(len(tokens)), 2)
        tokens[i], tokens[j] = tokens[j], tokens[i]
    return "".join(tokens)


def _moved(rng: random.Random, sql: str) -> str:
    """A stretch of the text once more, somewhere else."""
    tokens = _tokens(sql) or [" "]
    i = rng.randrange(len(tokens))
    part = tokens[i : i + rng.randint(1, 8)]
    at = rng.randrange(len(tokens) + 1)
    return "".join([*tokens[:at], " ", *part, " ", *tokens[at:]])


def _cut(rng: random.Random, sql: str) -> str:
    a, b = sorted(rng.randrange(len(sql) + 1) for _ in range(2))
    return sql[:a] + sql[b:] if rng.random() < 0.5 else sql[:b]


def _wrapped(rng: random.Random, sql: str) -> str:
    return rng.choice(
        [
            f"SELECT * FROM ({sql})",
            f"WITH q AS ({sql}) SELECT * FROM q",
            f"WITH q AS ({sql}) TABLE q",
            f"WITH q AS ({sql}) SELECT * FROM q AS a WHERE EXISTS (TABLE q)",
            f"({sql}) UNION ALL ({sql})",
            f"SELECT count(*) AS n FROM ({sql}) AS x",
            f"({sql})",
            f"{sql} |> WHERE true",
            f"FROM ({sql}) |> DISTINCT",
            f"{sql} /* c */ -- d",
            f"SELECT * FROM ({sql}) WHERE {'(' * 12}true{')' * 12}",
        ]
    )


_CHANGES: list[Callable[[random.Random, str], str]] = [
    _at(lambda t: t[0].isdigit(), lambda rng, *_: rng.choice([str(rng.randint(0, 50)), rng.choice(_NUMBERS.split())])),
    _at(lambda t: t[0] == "'", lambda rng, *_: rng.choice(_STRINGS.split())),
    _at(_is_operator, lambda rng, *_: rng.choice(_OPERATORS.split())),
    _at(_is_word, _other),
    _at(_is_word, _other),
    _at(_is_word, lambda rng, *_: rng.choice(_WORDS.split())),
    _at(lambda t: True, lambda *_: ""),
    _at(lambda t: True, lambda rng, tokens, i: f"{tokens[i]} {tokens[i]}"),
    _at(lambda t: True, lambda rng, tokens, i: f"{tokens[i]} {rng.choice(_WORDS.split())} "),
    _at(lambda t: True, lambda rng, tokens, i: tokens[i] + rng.choice(_ODD)),
    _at(lambda t: t.isupper(), lambda rng, tokens, i: tokens[i].lower()),
    _swap,
    _moved,
    _cut,
    _wrapped,
    _wrapped,
]
